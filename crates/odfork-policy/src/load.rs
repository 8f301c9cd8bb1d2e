//! Load control: when memory cannot be held, which process leaves, and who comes back first.
//!
//! Source: Babaoglu & Joy 1981. Out goes the oldest among the n = 4 largest resident: largest-first
//! would never let a big one make progress, oldest-first would swap small ones for nothing. Back
//! comes the smallest first, but time out counts, so that nobody waits for ever. Between two swaps
//! there is time for useful work. Pure: sizes and times are given.

const SECOND: u64 = 1_000_000_000;

/// A process that may be swapped out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident<Id> {
    /// The caller's name for it.
    pub id: Id,
    /// Its pages in the active list.
    pub resident: u32,
    /// Since when it is in memory (its start, or its last return): the smallest is the oldest.
    pub since_ns: u64,
}

/// A process that was swapped out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwappedOut<Id> {
    /// The caller's name for it.
    pub id: Id,
    /// Pages it had in the active list when it left.
    pub resident: u32,
    /// When it left.
    pub out_ns: u64,
}

/// The oldest among the `n` largest; equals are told apart by their order in the list. Nobody
/// without pages is chosen.
pub fn choose_out<Id: Copy>(candidates: &[Resident<Id>], n: usize) -> Option<Id> {
    let mut largest: Vec<&Resident<Id>> = candidates.iter().filter(|c| c.resident > 0).collect();
    largest.sort_by_key(|candidate| std::cmp::Reverse(candidate.resident));
    largest.truncate(n.max(1));
    largest.iter().min_by_key(|candidate| candidate.since_ns).map(|candidate| candidate.id)
}

/// Who comes back first: the least of size in `frames_per_second` (what memory can supply) less
/// time out. A process of S pages is overtaken only by smaller ones that left less than S /
/// `frames_per_second` seconds after it.
pub fn choose_in<Id: Copy>(
    out: &[SwappedOut<Id>],
    now_ns: u64,
    frames_per_second: u64,
) -> Option<Id> {
    let rank = |process: &&SwappedOut<Id>| {
        let size_ns = u128::from(process.resident) * u128::from(SECOND)
            / u128::from(frames_per_second.max(1));
        let waited_ns = now_ns.saturating_sub(process.out_ns);
        size_ns as i128 - i128::from(waited_ns)
    };
    out.iter().min_by_key(rank).map(|process| process.id)
}

/// What load control wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Stay,
    /// Stop a process and swap it out.
    SwapOut,
    /// Let one come back.
    SwapIn,
}

/// Who is out, as far as the rule needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How long the one that left first has been out.
    pub longest_ns: u64,
    /// Pages that the one who is to return next had in the active list.
    pub next: u32,
}

/// When to swap; times in nanoseconds, supplies in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A supply below this, for `short_for_ns`, is contention.
    pub lowest: u32,
    /// A supply of this or more lets a process come back; this and all that it had, even at once.
    pub enough: u32,
    /// How long memory must be short.
    pub short_for_ns: u64,
    /// Time between two swaps, for useful work.
    pub between_ns: u64,
    /// A process that is out longer comes back whatever the supply; another has to leave then.
    pub longest_out_ns: u64,
}

impl Limits {
    /// For an low watermark: contention below 1/4 of it for 5 s, return at the low watermark, 10 s
    /// between swaps, at most a minute out.
    pub fn for_low_watermark(low_watermark: u32) -> Limits {
        Limits {
            lowest: (low_watermark / 4).max(1),
            enough: low_watermark,
            short_for_ns: 5 * SECOND,
            between_ns: 10 * SECOND,
            longest_out_ns: 60 * SECOND,
        }
    }
}

/// Watches the supply.
#[derive(Clone, Copy, Debug)]
pub struct LoadControl {
    limits: Limits,
    short_since: Option<u64>,
    swapped_ns: Option<u64>,
}

impl LoadControl {
    /// Nothing has been swapped yet.
    pub fn new(limits: Limits) -> LoadControl {
        LoadControl { limits, short_since: None, swapped_ns: None }
    }

    /// Updates the state with the supply (pool and frames on their way to it); to be called at
    /// least once a second. `running`: processes that compete for memory; `waiting`: those that are
    /// out. After a decision other than `Stay` the time between swaps begins.
    pub fn update(
        &mut self,
        now_ns: u64,
        supply: u32,
        running: usize,
        waiting: Option<Waiting>,
    ) -> Decision {
        let short = supply < self.limits.lowest;
        let since = *self.short_since.get_or_insert(now_ns);
        if !short {
            self.short_since = None;
        }
        let rested = self
            .swapped_ns
            .is_none_or(|then| now_ns.saturating_sub(then) >= self.limits.between_ns);
        // Others have ended or rest: right after a swap-out there is no more than what left.
        let fits = |out: Waiting| supply >= self.limits.enough.saturating_add(out.next);
        let roomy = waiting.is_some_and(fits) || running == 0;
        if !(rested || roomy && waiting.is_some()) {
            return Decision::Stay;
        }
        let starving = waiting.is_some_and(|out| out.longest_ns >= self.limits.longest_out_ns);
        let relaxed = roomy || supply >= self.limits.enough;
        let decision = if waiting.is_some() && (relaxed || starving) {
            Decision::SwapIn
        } else if short && running > 1 && now_ns.saturating_sub(since) >= self.limits.short_for_ns {
            Decision::SwapOut
        } else {
            return Decision::Stay;
        };
        self.swapped_ns = Some(now_ns);
        self.short_since = None;
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(id: u32, resident: u32, since_ns: u64) -> Resident<u32> {
        Resident { id, resident, since_ns }
    }

    #[test]
    fn the_oldest_of_the_four_largest_leaves() {
        let all = [
            resident(1, 10, 0), // the oldest, but small
            resident(2, 500, 40),
            resident(3, 900, 50), // the largest, but young
            resident(4, 400, 30),
            resident(5, 300, 20),
            resident(6, 200, 10),
        ];
        assert_eq!(choose_out(&all, 4), Some(5));
        assert_eq!(choose_out(&all, 1), Some(3));
        assert_eq!(choose_out(&all, 99), Some(1));
        assert_eq!(choose_out(&all[..0], 4), None);
        assert_eq!(choose_out(&[resident(1, 0, 0)], 4), None);
        assert_eq!(choose_out(&[resident(1, 5, 0), resident(2, 5, 0)], 4), Some(1));
    }

    #[test]
    fn small_ones_return_first_until_a_big_one_has_waited_long() {
        let out = |id, resident, out_ns| SwappedOut { id, resident, out_ns };
        let both = [out(1, 10_000, 0), out(2, 100, SECOND)];
        assert_eq!(choose_in(&both, 2 * SECOND, 1000), Some(2));
        // A small one that left 20 s later does not overtake 10,000 pages at 1,000 pages/s.
        let later = [out(1, 10_000, 0), out(2, 100, 20 * SECOND)];
        assert_eq!(choose_in(&later, 21 * SECOND, 1000), Some(1));
        assert_eq!(choose_in::<u32>(&[], 0, 0), None);
    }

    #[test]
    fn a_short_dip_swaps_nobody_and_a_long_one_swaps_once_in_a_while() {
        let limits = Limits::for_low_watermark(400);
        let mut control = LoadControl::new(limits);
        let mut look = |second: u64, supply| control.update(second * SECOND, supply, 3, None);
        for second in 0..5 {
            assert_eq!(look(second, 0), Decision::Stay);
        }
        assert_eq!(look(5, 100), Decision::Stay, "recovered");
        let swaps: Vec<u64> =
            (6..40).filter(|&second| look(second, 0) == Decision::SwapOut).collect();
        assert_eq!(swaps, [11, 21, 31]);
    }

    #[test]
    fn the_last_one_is_never_swapped_out_and_nobody_starves() {
        let mut control = LoadControl::new(Limits::for_low_watermark(400));
        for second in 0..100 {
            assert_eq!(control.update(second * SECOND, 0, 1, None), Decision::Stay);
        }
        let out = |seconds, next| Some(Waiting { longest_ns: seconds * SECOND, next });
        assert_eq!(control.update(100 * SECOND, 0, 1, out(61, 500)), Decision::SwapIn);
        assert_eq!(control.update(101 * SECOND, 0, 1, out(61, 500)), Decision::Stay, "not rested");
        assert_eq!(control.update(111 * SECOND, 400, 1, out(1, 500)), Decision::SwapIn);
        assert_eq!(control.update(112 * SECOND, 899, 1, out(1, 500)), Decision::Stay, "what left");
        assert_eq!(control.update(113 * SECOND, 900, 1, out(1, 500)), Decision::SwapIn, "all fits");
        assert_eq!(
            control.update(114 * SECOND, 0, 0, out(1, 500)),
            Decision::SwapIn,
            "nobody runs"
        );
        assert_eq!(control.update(115 * SECOND, 9999, 1, None), Decision::Stay, "nobody is out");
    }
}
