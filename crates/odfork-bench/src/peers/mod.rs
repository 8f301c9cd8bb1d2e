//! What the kernel has against too little memory, set up for an experiment and put back: a memory limit, swap on a file,
//! swap on compressed memory.
//!
//! Everything made here is written into a ledger before it is made. Dropping it undoes it; if this process dies first, by
//! whatever signal, a second process that waits for exactly that undoes what is still owed (`ledger`).

pub mod group;
pub mod ledger;
pub mod swap;
pub mod tasks;

use std::fs;
use std::path::Path;

/// Whether this user may set up swap and limits at all.
pub fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .map_err(|error| format!("cannot write {text} to {}: {error}", path.display()))
}
