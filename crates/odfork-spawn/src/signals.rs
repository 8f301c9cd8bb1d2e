//! A set of signals as the kernel has it: one bit each, 64 of them.
//!
//! Owns the type and its sums. It does not block or handle anything.

/// Signals 1 to 64, the real-time ones and those the C library keeps for itself included.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// No signal.
    pub const fn empty() -> Self {
        SignalSet(0)
    }

    /// Every signal.
    pub const fn all() -> Self {
        SignalSet(u64::MAX)
    }

    /// The set with `signal` in it. A number outside of 1 to 64 changes nothing.
    #[must_use]
    pub const fn with(self, signal: i32) -> Self {
        SignalSet(self.0 | bit(signal))
    }

    /// The set without `signal`.
    #[must_use]
    pub const fn without(self, signal: i32) -> Self {
        SignalSet(self.0 & !bit(signal))
    }

    /// Is `signal` in it?
    pub const fn contains(self, signal: i32) -> bool {
        self.0 & bit(signal) != 0
    }

    /// The kernel's word: bit `n - 1` is signal `n`.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// A set from the kernel's word.
    pub const fn from_bits(bits: u64) -> Self {
        SignalSet(bits)
    }
}

const fn bit(signal: i32) -> u64 {
    if signal >= 1 && signal <= 64 {
        1 << (signal - 1)
    } else {
        0
    }
}

impl core::fmt::Debug for SignalSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries((1..=64).filter(|&signal| self.contains(signal))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_bits_from_one() {
        let set = SignalSet::empty().with(libc::SIGHUP).with(64);
        assert_eq!(set.bits(), 1 | 1 << 63);
        assert!(set.contains(64) && !set.contains(2));
        assert_eq!(set.without(64), SignalSet::from_bits(1));
        assert_eq!(format!("{set:?}"), "{1, 64}");
    }

    #[test]
    fn numbers_that_are_no_signals_change_nothing() {
        let all = SignalSet::all();
        for wrong in [0, -1, 65, i32::MIN] {
            assert_eq!(SignalSet::empty().with(wrong), SignalSet::empty());
            assert_eq!(all.without(wrong), all);
            assert!(!all.contains(wrong));
        }
    }
}
