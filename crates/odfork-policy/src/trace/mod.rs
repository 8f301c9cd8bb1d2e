//! Page-reference traces: the text form, read fast, and the compact form that policies run over.
//!
//! Text: one reference a line, `PAGE [r|w] [PROCESS]` in columns parted by blanks, tabs or commas,
//! the two options in either order; PAGE in decimal, or in hexadecimal after `0x`; PROCESS any
//! word. Empty lines and lines that begin with `#` are skipped, but `# anomalous PROCESS on` (or
//! `off`) marks a phase for which a process gives advice; `-` stands for the process of references
//! without one. Owns parsing and numbering; opening and unpacking files is the caller's.

mod numbering;
mod parse;

pub use parse::{Malformed, Parser};

use crate::clock::Owner;

/// Pages by number, in the order of their first appearance; a page of another process is another
/// page.
pub type Page = u32;

/// One reference: 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference(u32);

impl Reference {
    /// `page` is below 2^31.
    pub fn new(page: Page, write: bool) -> Reference {
        Reference(page << 1 | u32::from(write))
    }

    /// The page touched.
    #[inline]
    pub fn page(self) -> Page {
        self.0 >> 1
    }

    /// Whether it was a write.
    #[inline]
    pub fn is_write(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A process enters or leaves an anomalous phase before reference `at` of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Index into the batch.
    pub at: usize,
    /// The process.
    pub owner: Owner,
    /// Entering.
    pub on: bool,
}

/// A piece of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In order.
    pub references: Vec<Reference>,
    /// The process of each page that is new in this batch: page numbers go on where the batch
    /// before ended.
    pub new_pages: Vec<Owner>,
    /// In order.
    pub marks: Vec<Mark>,
}

/// What must be known of a whole trace to divide memory between its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// References in all.
    pub references: u64,
    /// Distinct pages of each process.
    pub footprints: Vec<u32>,
}

impl Summary {
    /// Adds what a batch brings.
    pub fn add(&mut self, batch: &Batch) {
        self.references += batch.references.len() as u64;
        for &owner in &batch.new_pages {
            if self.footprints.len() <= owner as usize {
                self.footprints.resize(owner as usize + 1, 0);
            }
            self.footprints[owner as usize] += 1;
        }
    }

    /// Distinct pages.
    pub fn pages(&self) -> u64 {
        self.footprints.iter().map(|&pages| u64::from(pages)).sum()
    }
}

/// Makes batches from pairs of page and write, for one process; mostly for tests.
pub fn from_pairs(pairs: impl IntoIterator<Item = (u64, bool)>) -> Batch {
    let mut numbers = numbering::Numbering::new();
    let mut batch = Batch::default();
    for (page, write) in pairs {
        let (number, new) = numbers.number(page, 0);
        batch.new_pages.extend(new.then_some(0));
        batch.references.push(Reference::new(number, write));
    }
    batch
}
