//! In place of `begun` where no thread is held by ptrace: nobody asks.

use crate::held::Pipe;

/// Makes the call.
pub fn timed<T>(_: i64, call: impl FnOnce() -> T) -> T {
    call()
}

/// Not known.
pub fn since(_: Pipe, _: i32, _: i32, _: u64, _: u64) -> Option<u64> {
    None
}
