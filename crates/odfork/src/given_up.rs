//! How much frozen memory the program has given up since its files were last looked at, and what
//! that has cost.
//!
//! Owns the account, read and changed at any time, so atomic: a look is due once a tenth of the
//! frozen memory has come together, so that looking costs little beside what giving up costs.
//!
//! The rental rule for the other price: giving back costs several times as much in frozen memory as
//! in anonymous memory. Once the calls have cost what thawing a part of it costs, the part that the
//! latest of them is in is thawed. So all thaws together never cost more than the calls did. It
//! stays anonymous for a number of forks, which doubles with every time that it was too few.
//! Memory has its own rule: once files retain a tenth of what is frozen, of memory given up in
//! place, the part of which they retain most is thawed, whatever that costs.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// So much may always be kept (8 MB).
const FLOOR: u64 = 8 << 20;

/// What thawing a part is believed to cost before it was done, and at least.
const BELIEVED_NS: u64 = 8_000_000;
const LEAST_NS: u64 = 1_000_000;

/// Forks that copy the page tables of so much memory have cost about what thawing and freezing it
/// costs.
const FORKS: u64 = 32;

/// What is not to be had while children live is not waited for much longer when they are gone.
const MOST_STUCK: u64 = 2;

/// Bytes of frozen memory given up and not looked for yet.
pub struct GivenUp {
    bytes: AtomicU64,
    /// What calls have cost since the latest thaw, and what the next one costs.
    spent_ns: AtomicU64,
    price_ns: AtomicU64,
    /// At this number of forks what was thawed may be frozen again; 0: nothing was. And how many
    /// forks that is.
    until: AtomicU64,
    patience: AtomicU64,
    /// Attempts in a row that found nothing to give back: children show the files. Each doubles
    /// what has to come together before the next.
    vain: AtomicU64,
    /// Bytes that files retain of memory given up in place. And attempts in a row to thaw the part
    /// of which they retain most, in vain.
    retained: AtomicU64,
    stuck: AtomicU64,
}

impl GivenUp {
    /// Nothing.
    pub const fn new() -> Self {
        GivenUp {
            bytes: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
            price_ns: AtomicU64::new(BELIEVED_NS),
            until: AtomicU64::new(0),
            patience: AtomicU64::new(FORKS),
            vain: AtomicU64::new(0),
            retained: AtomicU64::new(0),
            stuck: AtomicU64::new(0),
        }
    }

    /// In a child, which has paid nothing.
    pub fn begin_child(&self) {
        self.spent_ns.store(0, Relaxed);
        self.price_ns.store(BELIEVED_NS, Relaxed);
        self.until.store(0, Relaxed);
        self.patience.store(FORKS, Relaxed);
        self.retained.store(0, Relaxed);
        self.stuck.store(0, Relaxed);
    }

    /// Files retain so much.
    pub fn note_retained(&self, bytes: usize) {
        self.retained.store(bytes as u64, Relaxed);
    }

    /// That is too much of the frozen memory.
    pub fn is_too_much_retained(&self, frozen: u64) -> bool {
        self.retained.load(Relaxed) >= (FLOOR + frozen / 10) << self.stuck.load(Relaxed)
    }

    /// The part of which most was retained was thawed or not.
    pub fn released(&self, done: bool) {
        let stuck = if done { 0 } else { (self.stuck.load(Relaxed) + 1).min(MOST_STUCK) };
        self.stuck.store(stuck, Relaxed);
    }

    /// A call took so long.
    pub fn cost(&self, ns: u64) {
        self.spent_ns.fetch_add(ns, Relaxed);
    }

    /// Calls have cost what thawing costs.
    pub fn is_thaw_due(&self) -> bool {
        self.spent_ns.load(Relaxed) >= self.price_ns.load(Relaxed)
    }

    /// Thawing so many bytes took so long; 0: it could not be done, and is tried ever more rarely.
    /// The process has made so many forks. Files were looked at and punched as well.
    pub fn thawed(&self, bytes: u64, ns: u64, forks: u64) {
        let before = self.price_ns.load(Relaxed);
        if bytes == 0 {
            self.price_ns.store(before.saturating_mul(2).max(2 * ns), Relaxed);
        } else {
            self.price_ns.store(ns.max(LEAST_NS), Relaxed);
            self.looked(true);
            if self.until.load(Relaxed) == 0 {
                self.until.store(forks + self.patience.load(Relaxed), Relaxed);
            }
        }
        self.spent_ns.store(0, Relaxed);
    }

    /// What was thawed may be frozen again, after so many forks.
    pub fn is_forgotten(&self, forks: u64) -> bool {
        let until = self.until.load(Relaxed);
        let is_over = until != 0 && forks >= until;
        if is_over {
            self.until.store(0, Relaxed);
            self.patience.store(self.patience.load(Relaxed).saturating_mul(2), Relaxed);
        }
        is_over
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
    fn a_thaw_is_due_when_calls_have_cost_as_much() {
        let given_up = GivenUp::new();
        given_up.cost(BELIEVED_NS - 1);
        assert!(!given_up.is_thaw_due());
        given_up.cost(1);
        assert!(given_up.is_thaw_due() && !given_up.is_forgotten(1000));
        given_up.thawed(0, 5, 3);
        given_up.cost(BELIEVED_NS);
        assert!(!given_up.is_thaw_due() && !given_up.is_forgotten(1000));
        given_up.cost(BELIEVED_NS);
        assert!(given_up.is_thaw_due());
        given_up.thawed(100, 2 * LEAST_NS, 3);
        given_up.cost(2 * LEAST_NS);
        assert!(given_up.is_thaw_due());
        assert!(!given_up.is_forgotten(2 + FORKS) && given_up.is_forgotten(3 + FORKS));
        given_up.thawed(100, 0, 100);
        assert!(!given_up.is_forgotten(99 + 2 * FORKS) && given_up.is_forgotten(100 + 2 * FORKS));
        given_up.begin_child();
        assert!(!given_up.is_thaw_due() && !given_up.is_forgotten(u64::MAX));
    }

    #[test]
    fn a_tenth_is_retained_at_most() {
        let given_up = GivenUp::new();
        given_up.note_retained(FLOOR as usize + 9);
        assert!(!given_up.is_too_much_retained(100) && given_up.is_too_much_retained(90));
        given_up.released(false);
        assert!(!given_up.is_too_much_retained(90));
        given_up.released(true);
        assert!(given_up.is_too_much_retained(90));
    }

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
