//! The same as warm_parent.c, from Rust, with the crate `odfork` and its feature `interpose`, which
//! links the wrappers of fork, madvise, mremap and realloc into the program: frozen memory needs
//! them.
//!
//!     cargo run --release -p odfork --features interpose --example warm_parent
//!
//! A child of a fork may only do what POSIX allows there: here, read, write and _exit.

use std::time::{Duration, Instant};

use odfork::Fork;

const ROWS: usize = 64 << 20; // 512 MB of 8-byte rows

/// Forks a child that changes one row and looks at another; the time fork() took in the parent.
fn ask(table: &mut [u64], question: usize) -> Duration {
    let begin = Instant::now();
    // SAFETY: the child only touches memory and leaves by _exit.
    let side = unsafe { odfork::fork() }.expect("fork failed");
    let time = begin.elapsed();
    let Fork::Parent { child } = side else {
        table[question] = 0;
        let right = table[question + 1] == 3 * (question as u64 + 1);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 0 } else { 1 }) }
    };
    let mut status = -1;
    // SAFETY: `status` is valid for writing.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(waited == child && status == 0 && table[question] == 3 * question as u64);
    time
}

fn ask_many(table: &mut [u64]) -> u128 {
    (0..20).map(|i| ask(table, i * 1_000_003)).sum::<Duration>().as_micros() / 20
}

fn main() {
    let mut table: Vec<u64> = (0..ROWS as u64).map(|row| 3 * row).collect();
    // One fork only: after some the library would freeze by itself.
    println!("plain:  {:8} us, one fork", ask(&mut table, 0).as_micros());
    if let Err(why) = odfork::freeze() {
        println!("not frozen ({}); forks stay plain", why.reason.explain());
        return;
    }
    println!("frozen: {:8} us a fork", ask_many(&mut table));
    table.extend_from_within(..1024); // grows the block: its content moves along
    assert!(table.iter().take(ROWS).enumerate().all(|(i, &row)| row == 3 * i as u64));
    println!("grown:  {:8} us a fork, a new freeze among them", ask_many(&mut table));
}
