//! How much frozen memory the program has given up since its files were last looked at.
//!
//! Owns the account, read and changed at any time, so atomic: a look is due once a tenth of the
//! frozen memory has come together, so that looking costs little beside what giving up costs.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// So much may always be kept (8 MB).
const FLOOR: u64 = 8 << 20;

/// Bytes of frozen memory given up and not looked for yet.
pub struct GivenUp {
    bytes: AtomicU64,
    /// Attempts in a row that found nothing to give back: children show the files. Each doubles
    /// what has to come together before the next.
    vain: AtomicU64,
}

impl GivenUp {
    /// Nothing.
    pub const fn new() -> Self {
        GivenUp { bytes: AtomicU64::new(0), vain: AtomicU64::new(0) }
    }

    /// So much more; true if it is time to look.
    pub fn add(&self, len: u64, frozen: u64) -> bool {
        let limit = (FLOOR + frozen / 10) << self.vain.load(Relaxed).min(10);
        self.bytes.fetch_add(len, SeqCst).saturating_add(len) >= limit
    }

    /// They were looked at, and something was found to give back or not.
    pub fn looked(&self, found: bool) {
        self.bytes.store(0, SeqCst);
        let vain = if found { 0 } else { self.vain.load(Relaxed) + 1 };
        self.vain.store(vain, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_comes_together_before_a_look() {
        let given_up = GivenUp::new();
        assert!(!given_up.add(FLOOR, 100) && given_up.add(FLOOR, 100));
        given_up.looked(false);
        assert!(!given_up.add(FLOOR + 10, 100) && given_up.add(FLOOR + 10, 100));
        given_up.looked(true);
        assert!(given_up.add(FLOOR + 10, 100));
        assert!(!given_up.add(0, 1 << 40));
    }
}
