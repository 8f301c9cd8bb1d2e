//! What `odfork page adopt` leaves in a program that runs already, for the library that it has
//! mapped there; and what the library answers.
//!
//! Nothing of the program's loader is used: the launcher writes addresses, and looks up by itself
//! what the library needs of the C library.

/// A number that is no system call: the library makes it when it has answered.
pub const ADOPTED_CALL: usize = 0x0df0_a001;

/// Bytes of a path, with the zero at its end.
pub const PATH: usize = 1024;

/// Most ranges of data, and functions that the C library chooses among variants by the processor.
pub const MOST: usize = 16;

/// A place to be filled in, and the function that tells by what.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Where the address goes.
    pub slot: u64,
    /// Takes no arguments.
    pub resolver: u64,
}

/// First and last address of data that must stay in memory, the last one not included.
pub type Range = (u64, u64);

/// The order and its answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Adoption {
    /// Those that are not 0.
    pub choices: [Choice; MOST],
    /// Of the library itself and of the C library; empty ones are none.
    pub data: [Range; MOST],
    /// The C library's `fork`, `_Fork` and `prctl`.
    pub fork: u64,
    /// See `fork`.
    pub plain_fork: u64,
    /// See `fork`.
    pub prctl: u64,
    /// In bytes, as is the next one.
    pub limit: u64,
    /// Of the store: compressed in memory, before its folder.
    pub pool: u64,
    /// Store, report and group: paths that end with zero, or empty ones.
    pub paths: [[u8; PATH]; 3],
    /// 0: nothing is left, the library may be unmapped; 1: a task runs in it.
    pub is_kept: u32,
    /// 0: it is paged; or an errno, and what failed.
    pub error: i32,
    /// Bytes of `what`.
    pub len: u32,
    /// In words.
    pub what: [u8; 256],
}

impl Adoption {
    /// Of nothing.
    #[must_use]
    pub const fn none() -> Adoption {
        Adoption {
            choices: [Choice { slot: 0, resolver: 0 }; MOST],
            data: [(0, 0); MOST],
            plain_fork: 0,
            prctl: 0,
            fork: 0,
            limit: 0,
            pool: 0,
            paths: [[0; PATH]; 3],
            is_kept: 0,
            error: 0,
            len: 0,
            what: [0; 256],
        }
    }
}
