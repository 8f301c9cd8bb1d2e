//! The entry of the `odfork` binary.
//!
//! It defines the C `main` itself instead of Rust's, because Rust's start-up code sets SIGPIPE to
//! "ignore" and opens /dev/null on closed descriptors 0-2 before it calls the program. `odfork run`
//! execs somebody else's program in place, and that program must find both as the launcher found
//! them. Nothing else belongs here.
#![no_main]

use std::ffi::{c_char, c_int};

/// Called by the C library; the arguments are read through `std::env`, which does not need Rust's
/// start-up code.
#[no_mangle]
pub extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    odfork_cli::main()
}
