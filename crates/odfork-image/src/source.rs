//! Where the pages of a save come from.

use crate::error::Result;

/// What is known of a page without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It has to be read.
    Nothing,
    /// It is all zeros.
    Zero,
    /// The checksum of its content.
    Sum(u64),
}

/// Memory that can be saved. Addresses and lengths are whole pages inside of the regions that are
/// saved.
pub trait Source {
    /// What is known of the pages from `address` on, one entry each.
    ///
    /// # Errors
    /// The source cannot be looked at.
    fn known(&mut self, address: u64, out: &mut [Known]) -> Result<()>;

    /// Their content.
    ///
    /// # Errors
    /// A page cannot be read.
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<()>;
}
