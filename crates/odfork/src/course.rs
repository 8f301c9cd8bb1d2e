//! How far a pass in slices has come.
//!
//! Owns what one slice leaves for the next; `slices.rs` makes them.

use crate::registry::MAX_FILES;

/// How far a pass has come; kept in the scratch memory between its slices.
pub struct Course {
    pub open: bool,
    /// What its look has found of files may be shared again later.
    pub known: bool,
    pub shares: bool,
    /// What may be shared is written back when it is.
    pub shares_later: bool,
    /// The next address to look at, or, for sharing, the slot of the next file.
    pub at: usize,
    pub slot: usize,
    /// In that file, where to go on.
    pub within: usize,
    /// Anonymous pages when memory was moved last, or found to be too thin.
    pub anonymous: usize,
    /// The same at the look of this pass, and how many of them it has moved since.
    pub found: usize,
    pub moved: usize,
    /// Files that descendants showed when it began, and that may be rebuilt.
    pub rebuilds: [bool; MAX_FILES],
}

impl Course {
    /// Another job has the scratch memory.
    pub fn end(&mut self) {
        (self.open, self.known) = (false, false);
    }
}
