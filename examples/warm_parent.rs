//! The same as warm_parent.c, from Rust: freeze once, then fork a child for every question.
//!
//! From the repository, without installing:
//!     make build
//!     rustc -O examples/warm_parent.rs -o target/warm_parent_rs -L target/release
//!     LD_LIBRARY_PATH=target/release target/warm_parent_rs
//!
//! The library is linked, so that its wrappers of fork, madvise, mremap and realloc are in the program: frozen
//! memory needs them. A child of a fork may only do what POSIX allows there: here, read, write and _exit.

use std::ffi::{c_char, c_int, CStr};
use std::time::{Duration, Instant};

#[link(name = "odfork")]
extern "C" {
    fn odfork_fork() -> c_int;
    fn odfork_freeze() -> c_int;
    fn odfork_reason() -> *const c_char;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

const ROWS: usize = 64 << 20; // 512 MB of 8-byte rows

/// Forks a child that changes one row and looks at another; the time fork() took in the parent.
fn ask(table: &mut [u64], question: usize) -> Duration {
    let begin = Instant::now();
    // SAFETY: the child only touches memory and leaves by _exit.
    let pid = unsafe { odfork_fork() };
    let time = begin.elapsed();
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        table[question] = 0;
        let right = table[question + 1] == 3 * (question as u64 + 1);
        // SAFETY: ends the child.
        unsafe { _exit(if right { 0 } else { 1 }) }
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writing.
    let waited = unsafe { waitpid(pid, &mut status, 0) };
    assert!(waited == pid && status == 0 && table[question] == 3 * question as u64);
    time
}

fn ask_many(table: &mut [u64]) -> u128 {
    (0..20).map(|i| ask(table, i * 1_000_003)).sum::<Duration>().as_micros() / 20
}

fn main() {
    let mut table: Vec<u64> = (0..ROWS as u64).map(|row| 3 * row).collect();
    // One fork only: after some the library would freeze by itself.
    println!("plain:  {:8} us, one fork", ask(&mut table, 0).as_micros());
    // SAFETY: may be called at any time outside signal handlers.
    if unsafe { odfork_freeze() } != 0 {
        // SAFETY: a constant string.
        let why = unsafe { CStr::from_ptr(odfork_reason()) };
        println!("not frozen ({}); forks stay plain", why.to_string_lossy());
        return;
    }
    println!("frozen: {:8} us a fork", ask_many(&mut table));
    table.extend_from_within(..1024); // grows the block: its content moves along
    assert!(table.iter().take(ROWS).enumerate().all(|(i, &row)| row == 3 * i as u64));
    println!("grown:  {:8} us a fork, a new freeze among them", ask_many(&mut table));
}
