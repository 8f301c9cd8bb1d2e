//! The three terms of a fork: process + entry x pages + copy x pages written (Smith and Maguire
//! 1988).
//!
//! Owns the sum and its parts, nothing else: the coefficients come from `CostModel` (the runtime's
//! freeze rule) or from a fit of measurements (`odfork predict`), so both go through this code.
//! Integers, as in the rest of the crate; all arithmetic saturates.
//!
//! A coefficient is worth nothing without the quantity it belongs to. Two are in use. The *call* is
//! what the parent waits for in fork(): entries are copied, no page is. The *round* is fork, the
//! child's writes, its exit and the wait (experiment `grid`): an entry is copied and torn down, a
//! written page is faulted in, copied and freed.

use crate::units::{ps_to_ns, saturate};

/// Coefficients of one engine on one machine.
///
/// ```
/// use odfork_model::ForkTerms;
/// // 0.1 ms for the process, 0.1 us an entry, 2 us a page written.
/// let terms = ForkTerms { process_ns: 100_000, entry_ps: 100_000, copy_ps: 2_000_000 };
/// let (pages, frac) = (262_144, 0.5);
/// assert_eq!(terms.parts_ns(pages, 131_072), [100_000, 26_214_400, 262_144_000]);
/// assert_eq!(terms.time_of(pages, frac), terms.time_ns(pages, 131_072));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkTerms {
    /// A process without memory, nanoseconds.
    pub process_ns: u64,
    /// One page-table entry of the parent, picoseconds.
    pub entry_ps: u64,
    /// One page the child writes, picoseconds; 0 when the quantity is the call.
    pub copy_ps: u64,
}

impl ForkTerms {
    /// Time of one fork in a process of so many page-table entries, of which `written` are copied,
    /// nanoseconds.
    pub const fn time_ns(&self, entries: u64, written: u64) -> u64 {
        let entries_ps = entries as u128 * self.entry_ps as u128;
        let copies_ps = written as u128 * self.copy_ps as u128;
        let memory_ns = saturate(entries_ps.saturating_add(copies_ps) / 1000);
        self.process_ns.saturating_add(memory_ns)
    }

    /// The same from the share of the pages that is written, as the paper writes it. A share
    /// outside of 0 to 1 counts as the nearer of the two, one that is no number as 0.
    pub fn time_of(&self, entries: u64, frac: f64) -> u64 {
        self.time_ns(entries, pages_written(entries, frac))
    }

    /// What each term adds, nanoseconds: process, entries, copies.
    pub const fn parts_ns(&self, entries: u64, written: u64) -> [u64; 3] {
        [self.process_ns, ps_to_ns(entries, self.entry_ps), ps_to_ns(written, self.copy_ps)]
    }
}

/// Pages a writer touches that writes `frac` of `pages`: it writes a page whole or not at all, so
/// the last counts.
pub fn pages_written(pages: u64, frac: f64) -> u64 {
    // The conversion saturates and makes 0 of what is no number. core has no ceil.
    let exact = pages as f64 * frac;
    let below = exact as u64;
    let above = if (below as f64) < exact { below.saturating_add(1) } else { below };
    above.min(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CostModel;

    const TERMS: ForkTerms =
        ForkTerms { process_ns: 90_000, entry_ps: 150_250, copy_ps: 2_500_125 };

    #[test]
    fn the_parts_add_up_to_the_time() {
        for (entries, written) in [(0, 0), (1, 1), (4_096, 1_000), (262_144, 262_144)] {
            let sum: u64 = TERMS.parts_ns(entries, written).iter().sum();
            assert!(TERMS.time_ns(entries, written).abs_diff(sum) <= 1);
        }
        assert_eq!(TERMS.time_ns(1_000, 500), 90_000 + 150_250 + 1_250_062);
    }

    #[test]
    fn the_call_of_the_cost_model_is_these_terms() {
        let mut model = CostModel::new();
        (0..5).for_each(|_| model.observe_fork(262_144, 5_600_000));
        for entries in [0, 1, 777, 262_144, u64::MAX] {
            assert_eq!(model.fork_ns(entries), model.call_terms().time_ns(entries, entries));
        }
        assert_eq!(model.call_terms().copy_ps, 0);
    }

    #[test]
    fn the_last_page_begun_is_written_whole() {
        assert_eq!(pages_written(10, 0.31), 4);
        assert_eq!(pages_written(10, 0.3), 3);
        assert_eq!(pages_written(10, 7.0), 10);
        assert_eq!((pages_written(10, -1.0), pages_written(10, f64::NAN)), (0, 0));
        assert_eq!(pages_written(u64::MAX, 1.0), u64::MAX);
    }

    #[test]
    fn extremes_saturate() {
        let huge = ForkTerms { process_ns: u64::MAX, entry_ps: u64::MAX, copy_ps: u64::MAX };
        assert_eq!(huge.time_ns(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(ForkTerms::default().time_ns(u64::MAX, u64::MAX), 0);
    }
}
