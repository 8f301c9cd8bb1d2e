//! Settings of this machine that a place needs, for as long as somebody is there.
//!
//! Owns setting `shmem_enabled` to `advise`, which changes nothing for memory that does not ask,
//! and setting it back when the last one leaves.

use std::fs;
use std::sync::Mutex;

const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// How many are there, and what was set before.
static THERE: Mutex<(usize, String)> = Mutex::new((0, String::new()));

/// `shmem_enabled` is `advise` while one of these lives.
pub struct Advise(());

impl Advise {
    pub fn set() -> Result<Advise, String> {
        let mut there = THERE.lock().map_err(|error| error.to_string())?;
        let told = |error| format!("{SETTING}: {error}");
        if there.0 == 0 {
            let text = fs::read_to_string(SETTING).map_err(told)?;
            there.1 = text.split(['[', ']']).nth(1).unwrap_or("never").to_owned();
            fs::write(SETTING, "advise").map_err(told)?;
        }
        there.0 += 1;
        Ok(Advise(()))
    }
}

impl Drop for Advise {
    fn drop(&mut self) {
        let Ok(mut there) = THERE.lock() else { return };
        there.0 -= 1;
        if there.0 == 0 {
            let _ = fs::write(SETTING, &there.1);
        }
    }
}
