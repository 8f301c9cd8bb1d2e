//! What the kernel offers against too little memory, set up for an experiment and undone after it:
//! a memory limit, swap on a file, swap on compressed memory.
//!
//! Whatever is made here is recorded in the clean-up journal before it is made.

pub mod cgroup;
pub mod journal;
pub mod swap;

use std::fs;
use std::path::Path;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .map_err(|error| format!("cannot write {text} to {}: {error}", path.display()))
}
