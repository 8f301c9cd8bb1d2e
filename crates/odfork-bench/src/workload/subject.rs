//! A subject: what it holds, and whether that is intact.
//!
//! What it does on command is in `operations` and `reruns`.

use super::buffer::Buffer;
use super::children::Failure;
use super::interface::Interface;
use super::memory::Memory;
use super::protocol::Answer;

pub(super) type Values = Result<Answer, Failure>;

/// A process with memory, ready to obey.
pub struct Subject {
    pub memory: Memory,
    pub engine: Interface,
    pub buffer: Option<Buffer>,
}

impl Subject {
    pub fn new(memory: Memory) -> Self {
        Subject { memory, engine: Interface::find(), buffer: None }
    }

    /// The parent's own view of its memory, one word a page.
    pub fn is_intact(&self) -> bool {
        self.memory.first_wrong_page().is_none()
    }

    pub(super) fn require_intact(&self, operation: &str) -> Result<(), Failure> {
        match self.memory.first_wrong_page() {
            None => Ok(()),
            Some(page) => Err(Failure::Wrong(format!(
                "after {operation}: page {page} of the parent has wrong content"
            ))),
        }
    }
}
