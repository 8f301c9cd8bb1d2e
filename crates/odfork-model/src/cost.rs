//! The cost model of fork, freeze and fold: amounts in, nanoseconds out.
//!
//! Owns the default figures with their origin, and their correction by measurement. Does not decide
//! anything (see `rental`). Unit costs are kept in picoseconds, because an entry costs tens of
//! nanoseconds and a machine four times as fast must not round to another figure. All arithmetic
//! saturates.

use crate::learned::Learned;
use crate::terms::ForkTerms;
use crate::trial::Trial;
use crate::units::{ps_to_ns, saturate, unit_ps, PS_PER_S};

/// Bytes of one page, and of what one page-table entry maps.
pub const PAGE_BYTES: u64 = 4096;

/// Unit costs a [`CostModel`] starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Fork of a process without memory to copy, nanoseconds.
    pub floor_ns: u64,
    /// Copying one page-table entry of anonymous memory in fork, picoseconds.
    pub entry_ps: u64,
    /// What the exit of the child (tearing the same entries down) costs beside the copy: 1000 = as
    /// much again.
    pub teardown_permille: u64,
    /// Freezing: bytes copied into the image per second.
    pub copy_bytes_per_s: u64,
    /// Folding one dirty page back in place, its part of the remap included, picoseconds.
    pub refreeze_page_ps: u64,
    /// Finding out about one page of anonymous memory, picoseconds.
    pub scan_entry_ps: u64,
    /// Finding out about one page of the image, clean or not, picoseconds.
    pub scan_page_ps: u64,
    /// Any look: reading the process map, nanoseconds.
    pub fixed_scan_ns: u64,
    /// Any freeze or fold: start of the helper, mounts, mappings, nanoseconds.
    pub fixed_buy_ns: u64,
    /// Freezing one more mapping: its file, anchors and mappings, nanoseconds.
    pub new_mapping_ns: u64,
    /// Folding one more dirty mapping: views of its file, nanoseconds.
    pub dirty_mapping_ns: u64,
}

impl Defaults {
    /// Measured on a 2-core virtual machine, Linux 6.18, 4 KB pages; bare metal is about 2.5 times
    /// faster at page tables, which measurement then finds out.
    pub const MEASURED: Self = Self {
        // 40-100 us measured, by number of mappings.
        floor_ns: 60_000,
        // 14.0 ms per 262,144 entries (1 GB).
        entry_ps: 53_400,
        // Measured 1000-1350 (exit and wait 18.9 ms after a fork of 13.9 ms); the lower end,
        // because a child that outlives its parent's patience pays its own exit.
        teardown_permille: 1_000,
        // 145 ms per 1,073,741,824 bytes.
        copy_bytes_per_s: 7_405_000_000,
        // 15 ms per 16,384 dirty pages, remap included.
        refreeze_page_ps: 915_000,
        // /proc/self/pagemap over 1 GB of 4 KB entries: 7.5 ms.
        scan_entry_ps: 28_000,
        // The same over 1 GB of clean huge image: 2.0 ms.
        scan_page_ps: 7_600,
        // /proc/self/maps, 30-120 us.
        fixed_scan_ns: 100_000,
        fixed_buy_ns: 500_000,
        // 500 mappings of 1 MB: 329 ms, of which 72 ms for their bytes.
        new_mapping_ns: 500_000,
        // The same with one dirty page each: 44 ms.
        dirty_mapping_ns: 88_000,
    };
}

/// Predicts costs, and corrects itself by what was measured.
///
/// ```
/// let mut model = odfork_model::CostModel::new();
/// let one_gb = 262_144;
/// assert_eq!(model.fork_ns(one_gb) / 1_000, 14_058); // microseconds
/// for _ in 0..5 {
///     model.observe_fork(one_gb, 5_600_000); // a faster machine
/// }
/// assert_eq!(model.fork_ns(one_gb) / 1_000, 5_599);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    floor_ns: Learned,
    entry_ps: Learned,
    copy_page_ps: Learned,
    refreeze_page_ps: Learned,
    teardown_permille: u64,
    scan_entry_ps: u64,
    scan_page_ps: u64,
    fixed_scan_ns: u64,
    fixed_buy_ns: u64,
    new_mapping_ns: u64,
    dirty_mapping_ns: u64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self::new()
    }
}

impl CostModel {
    /// The model with [`Defaults::MEASURED`]; usable in a `static`.
    pub const fn new() -> Self {
        Self::with_defaults(Defaults::MEASURED)
    }

    /// A model that starts from other figures. A zero where a cost must be positive counts as one
    /// unit.
    pub const fn with_defaults(d: Defaults) -> Self {
        let bytes_per_s = if d.copy_bytes_per_s == 0 { 1 } else { d.copy_bytes_per_s };
        Self {
            floor_ns: Learned::new(d.floor_ns),
            entry_ps: Learned::new(d.entry_ps),
            copy_page_ps: Learned::new(saturate(
                PAGE_BYTES as u128 * PS_PER_S / bytes_per_s as u128,
            )),
            refreeze_page_ps: Learned::new(d.refreeze_page_ps),
            teardown_permille: d.teardown_permille,
            scan_entry_ps: d.scan_entry_ps,
            scan_page_ps: d.scan_page_ps,
            fixed_scan_ns: d.fixed_scan_ns,
            fixed_buy_ns: d.fixed_buy_ns,
            new_mapping_ns: d.new_mapping_ns,
            dirty_mapping_ns: d.dirty_mapping_ns,
        }
    }

    /// Present estimate: fork of a process without memory to copy, nanoseconds.
    pub const fn floor_ns(&self) -> u64 {
        self.floor_ns.get()
    }

    /// Present estimate: one page-table entry in fork, picoseconds.
    pub const fn entry_ps(&self) -> u64 {
        self.entry_ps.get()
    }

    /// Present estimate: bytes frozen per second.
    pub const fn copy_bytes_per_s(&self) -> u64 {
        saturate(PAGE_BYTES as u128 * PS_PER_S / self.copy_page_ps.get() as u128)
    }

    /// Present estimate: folding one dirty page, picoseconds.
    pub const fn refreeze_page_ps(&self) -> u64 {
        self.refreeze_page_ps.get()
    }

    /// What fork() takes in a process with so many anonymous page-table entries, nanoseconds.
    pub const fn fork_ns(&self, entries: u64) -> u64 {
        self.call_terms().time_ns(entries, 0)
    }

    /// Present estimate of the fork() call alone, in the terms `odfork predict` fits: nothing is
    /// copied in it.
    pub const fn call_terms(&self) -> ForkTerms {
        ForkTerms { process_ns: self.floor_ns.get(), entry_ps: self.entry_ps.get(), copy_ps: 0 }
    }

    /// The same for fork, child, exit and wait: what an entry costs includes its teardown. The
    /// child's copies are not known to this model, which never pays them; the caller says what one
    /// costs.
    pub const fn round_terms(&self, copy_ps: u64) -> ForkTerms {
        let torn_down = self.entry_ps.get() as u128 * self.teardown_permille as u128 / 1000;
        let entry_ps = self.entry_ps.get().saturating_add(saturate(torn_down));
        ForkTerms { process_ns: self.floor_ns.get(), entry_ps, copy_ps }
    }

    /// What one plain fork and the exit of its child pay for these entries, and would not pay
    /// without them, nanoseconds.
    pub const fn avoidable_ns(&self, entries: u64) -> u64 {
        self.with_teardown(ps_to_ns(entries, self.entry_ps.get()))
    }

    /// The avoidable part of a fork() that was measured, teardown included, nanoseconds: what to
    /// charge as rent.
    pub const fn rent_ns(&self, fork_ns: u64) -> u64 {
        self.with_teardown(fork_ns.saturating_sub(self.floor_ns.get()))
    }

    /// How many page-table entries a fork that took so long probably copied: an estimate that costs
    /// no look.
    pub const fn entries_for(&self, fork_ns: u64) -> u64 {
        let copied = fork_ns.saturating_sub(self.floor_ns.get()) as u128 * 1000;
        saturate(copied / self.entry_ps.get() as u128)
    }

    /// What it takes to freeze so many bytes, nanoseconds; finding them included.
    pub const fn freeze_ns(&self, bytes: u64) -> u64 {
        self.fixed_buy_ns.saturating_add(self.freeze_part_ns(bytes))
    }

    /// What it takes to fold so many dirty pages of an image mapping of so many bytes, nanoseconds;
    /// finding them included.
    pub const fn refreeze_ns(&self, dirty_pages: u64, mapped_bytes: u64) -> u64 {
        self.fixed_buy_ns.saturating_add(self.refreeze_part_ns(dirty_pages, mapped_bytes))
    }

    /// Freezing `new_bytes` and folding `dirty_pages` in one go: the fixed cost is paid once,
    /// nanoseconds.
    pub const fn clean_ns(&self, new_bytes: u64, dirty_pages: u64, mapped_bytes: u64) -> u64 {
        self.freeze_ns(new_bytes).saturating_add(self.refreeze_part_ns(dirty_pages, mapped_bytes))
    }

    /// What so many mappings to be frozen and dirty mappings to be folded add to the price,
    /// whatever their size, nanoseconds.
    pub const fn mappings_ns(&self, new: u64, dirty: u64) -> u64 {
        let folding = dirty.saturating_mul(self.dirty_mapping_ns);
        new.saturating_mul(self.new_mapping_ns).saturating_add(folding)
    }

    /// What a look at the process costs that does not lead to a purchase, nanoseconds.
    pub const fn scan_ns(&self, entries: u64, mapped_bytes: u64) -> u64 {
        self.fixed_scan_ns
            .saturating_add(ps_to_ns(entries, self.scan_entry_ps))
            .saturating_add(ps_to_ns(mapped_bytes / PAGE_BYTES, self.scan_page_ps))
    }

    /// Rent that must have been paid before a look is worth its cost, nanoseconds, judged by how
    /// long the last fork took and nothing else: twice the look, and half of what cleaning the
    /// entries of that fork would cost (looking earlier cannot find a purchase due; half, because
    /// the guess may be off). Hand it to [`Rental::worth_scanning`](crate::Rental::worth_scanning).
    /// `mapped_bytes` is the image, 0 before the first freeze.
    pub const fn scan_floor_ns(&self, last_fork_ns: u64, mapped_bytes: u64) -> u64 {
        let entries = self.entries_for(last_fork_ns);
        let scan_ns = self.scan_ns(entries, mapped_bytes).saturating_mul(2);
        let price_ns = if mapped_bytes == 0 {
            self.freeze_ns(entries.saturating_mul(PAGE_BYTES))
        } else {
            self.refreeze_ns(entries, mapped_bytes)
        };
        if price_ns / 2 > scan_ns {
            price_ns / 2
        } else {
            scan_ns
        }
    }

    /// Corrects the entry cost (a fork that copied much) or the floor (a fork that copied next to
    /// nothing); a fork in between teaches neither. Outliers are ignored, and no estimate leaves
    /// x1/16..x16 of its default.
    pub fn observe_fork(&mut self, entries: u64, measured_ns: u64) {
        let predicted = ps_to_ns(entries, self.entry_ps.get());
        if predicted >= self.floor_ns.get().saturating_mul(4) {
            let copied = measured_ns.saturating_sub(self.floor_ns.get());
            self.entry_ps.observe(unit_ps(copied, entries));
        } else if predicted <= self.floor_ns.get() / 8 {
            self.floor_ns.observe(measured_ns.saturating_sub(predicted));
        }
    }

    /// Corrects the copy rate by a freeze of so many bytes, when copying was most of it: by the
    /// present belief, or by what was measured (a freeze that was stopped is small and dear).
    pub fn observe_freeze(&mut self, bytes: u64, measured_ns: u64) {
        let looking = ps_to_ns(bytes / PAGE_BYTES, self.scan_entry_ps);
        let rest = self.fixed_buy_ns.saturating_add(looking);
        let longest = if bytes < Trial::STEP_BYTES { 0 } else { measured_ns };
        if self.freeze_ns(bytes).max(longest) >= rest.saturating_mul(2) {
            let copied = measured_ns.saturating_sub(rest);
            self.copy_page_ps.observe(unit_ps(copied, bytes / PAGE_BYTES));
        }
    }

    /// Corrects the cost of folding a page by a fold of so many, when folding was most of it.
    pub fn observe_refreeze(&mut self, dirty_pages: u64, mapped_bytes: u64, measured_ns: u64) {
        let rest = self.refreeze_ns(0, mapped_bytes);
        if self.refreeze_ns(dirty_pages, mapped_bytes) >= rest.saturating_mul(2) {
            let folded = measured_ns.saturating_sub(rest);
            self.refreeze_page_ps.observe(unit_ps(folded, dirty_pages));
        }
    }

    const fn with_teardown(&self, copy_ns: u64) -> u64 {
        let torn_down = copy_ns as u128 * self.teardown_permille as u128 / 1000;
        copy_ns.saturating_add(saturate(torn_down))
    }

    const fn freeze_part_ns(&self, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(PAGE_BYTES);
        ps_to_ns(pages, self.copy_page_ps.get()).saturating_add(ps_to_ns(pages, self.scan_entry_ps))
    }

    const fn refreeze_part_ns(&self, dirty_pages: u64, mapped_bytes: u64) -> u64 {
        let scan = ps_to_ns(mapped_bytes / PAGE_BYTES, self.scan_page_ps);
        ps_to_ns(dirty_pages, self.refreeze_page_ps.get()).saturating_add(scan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_GB: u64 = 1 << 30;
    const ENTRIES: u64 = ONE_GB / PAGE_BYTES;

    /// `found` within one part in a hundred of `expected`.
    fn near(found: u64, expected: u64) -> bool {
        found.abs_diff(expected) <= expected / 100
    }

    #[test]
    fn defaults_reproduce_the_measurements_they_come_from() {
        let model = CostModel::new();
        assert!(near(model.fork_ns(ENTRIES) - model.floor_ns(), 14_000_000));
        assert!(near(model.avoidable_ns(ENTRIES), 28_000_000));
        assert!(near(model.freeze_ns(ONE_GB), 145_000_000 + 7_340_000 + 500_000));
        assert!(near(model.refreeze_ns(16_384, 0), 15_000_000 + 500_000));
        assert!(near(model.refreeze_ns(0, ONE_GB), 2_000_000 + 500_000));
        assert!(near(model.copy_bytes_per_s(), 7_405_000_000));
        assert_eq!(model, CostModel::default());
    }

    #[test]
    fn rent_of_a_predicted_fork_is_what_it_could_avoid() {
        let model = CostModel::new();
        for entries in [0, 1, 1000, ENTRIES] {
            let rent = model.rent_ns(model.fork_ns(entries));
            assert!(rent.abs_diff(model.avoidable_ns(entries)) <= 1);
            assert!(model.entries_for(model.fork_ns(entries)).abs_diff(entries) <= 1);
        }
        assert_eq!(model.rent_ns(10), 0);
        assert_eq!(model.entries_for(10), 0);
    }

    #[test]
    fn cleaning_pays_the_fixed_cost_once() {
        let model = CostModel::new();
        let both = model.clean_ns(ONE_GB, 1000, ONE_GB);
        assert_eq!(both, model.freeze_ns(ONE_GB) + model.refreeze_ns(1000, ONE_GB) - 500_000);
        assert_eq!(model.clean_ns(0, 1000, ONE_GB), model.refreeze_ns(1000, ONE_GB));
    }

    #[test]
    fn a_preempted_fork_is_ignored_and_a_faster_machine_is_learned() {
        let mut model = CostModel::new();
        let before = model.fork_ns(ENTRIES);
        model.observe_fork(ENTRIES, 300_000_000);
        assert_eq!(model.fork_ns(ENTRIES), before);
        (0..5).for_each(|_| model.observe_fork(ENTRIES, 6_000_000));
        assert!(near(model.fork_ns(ENTRIES), 6_000_000));
        model.observe_fork(ENTRIES, 300_000_000);
        model.observe_fork(ENTRIES, 300_000_000);
        assert!(near(model.fork_ns(ENTRIES), 6_000_000));
    }

    #[test]
    fn a_fork_without_memory_teaches_the_floor_only() {
        let mut model = CostModel::new();
        (0..5).for_each(|_| model.observe_fork(10, 90_534));
        assert_eq!((model.floor_ns(), model.entry_ps()), (90_000, 53_400));
        (0..5).for_each(|_| model.observe_fork(2_000, 1_000_000));
        assert_eq!((model.floor_ns(), model.entry_ps()), (90_000, 53_400));
    }

    #[test]
    fn estimates_stay_within_sixteen_times() {
        let mut model = CostModel::new();
        for _ in 0..9 {
            model.observe_fork(ENTRIES, u64::MAX);
            model.observe_fork(0, u64::MAX);
            model.observe_freeze(ONE_GB, u64::MAX);
            model.observe_refreeze(100_000, ONE_GB, u64::MAX);
        }
        assert_eq!(model.entry_ps(), 53_400 * 16);
        assert_eq!(model.floor_ns(), 60_000 * 16);
        assert!(near(model.copy_bytes_per_s(), 7_405_000_000 / 16));
        assert_eq!(model.refreeze_page_ps(), 915_000 * 16);
    }

    #[test]
    fn freeze_and_fold_rates_are_learned_from_large_ones_only() {
        let mut model = CostModel::new();
        (0..5).for_each(|_| model.observe_freeze(PAGE_BYTES, 500_001));
        (0..5).for_each(|_| model.observe_refreeze(1, ONE_GB, 500_001));
        assert_eq!(model, CostModel::new());
        (0..2).for_each(|_| model.observe_freeze(ONE_GB, 80_000_000));
        (0..2).for_each(|_| model.observe_refreeze(16_384, ONE_GB, 9_000_000));
        assert!(near(model.freeze_ns(ONE_GB), 80_000_000));
        assert!(near(model.refreeze_ns(16_384, ONE_GB), 9_000_000));
    }

    #[test]
    fn a_look_waits_for_twice_its_cost_and_half_the_likely_price() {
        let model = CostModel::new();
        assert_eq!(model.scan_floor_ns(0, 0), 250_000); // half of an empty purchase
        assert_eq!(model.scan_floor_ns(0, ONE_GB), 2 * model.scan_ns(0, ONE_GB));
        let dear_fork = model.fork_ns(ENTRIES);
        assert!(near(model.scan_floor_ns(dear_fork, 0), model.freeze_ns(ONE_GB) / 2));
        assert!(near(
            model.scan_floor_ns(dear_fork, ONE_GB),
            model.refreeze_ns(ENTRIES, ONE_GB) / 2
        ));
    }

    #[test]
    fn mappings_have_a_price_of_their_own() {
        let model = CostModel::new();
        assert_eq!(model.mappings_ns(0, 0), 0);
        assert!(near(model.freeze_ns(500 << 20) + model.mappings_ns(500, 0), 325_000_000));
        assert!(near(model.mappings_ns(0, 500), 44_000_000));
        assert_eq!(model.mappings_ns(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn extremes_saturate() {
        let zero = Defaults {
            floor_ns: 0,
            entry_ps: 0,
            teardown_permille: 0,
            copy_bytes_per_s: 0,
            refreeze_page_ps: 0,
            scan_entry_ps: 0,
            scan_page_ps: 0,
            fixed_scan_ns: 0,
            fixed_buy_ns: 0,
            new_mapping_ns: 0,
            dirty_mapping_ns: 0,
        };
        let most =
            Defaults { entry_ps: u64::MAX, teardown_permille: u64::MAX, ..Defaults::MEASURED };
        for mut model in
            [CostModel::new(), CostModel::with_defaults(zero), CostModel::with_defaults(most)]
        {
            for amount in [0, 1, u64::MAX] {
                model.observe_fork(amount, u64::MAX);
                model.observe_freeze(amount, 0);
                model.observe_refreeze(amount, amount, u64::MAX);
                let _ = (model.fork_ns(amount), model.avoidable_ns(amount), model.rent_ns(amount));
                let _ = (
                    model.freeze_ns(amount),
                    model.refreeze_ns(amount, amount),
                    model.entries_for(amount),
                );
                let _ =
                    (model.clean_ns(amount, amount, amount), model.scan_floor_ns(amount, amount));
            }
        }
        assert_eq!(CostModel::new().fork_ns(u64::MAX), u64::MAX);
        assert_eq!(CostModel::with_defaults(most).avoidable_ns(u64::MAX), u64::MAX);
    }
}
