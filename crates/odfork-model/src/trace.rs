//! Replays recorded forks: what the rule would have cost, and what the best choice in hindsight
//! costs.
//!
//! Owns the account of one replay. It drives `Rental` and `CostModel` in the order in which the
//! runtime does, so the bound tested here is the bound of the runtime. No heap: traces are slices,
//! the caller lends the scratch space. Costs leave out the floor of fork, which nobody can avoid.

use crate::cost::{CostModel, PAGE_BYTES};
use crate::rental::Rental;
use crate::trial::Trial;

/// One fork of a recorded process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkRecord {
    /// What a plain fork() took, or would take, nanoseconds.
    pub plain_ns: u64,
    /// Resident anonymous memory: what a freeze would copy, bytes.
    pub anon_bytes: u64,
    /// Pages that existed at the previous fork and were written since, 4 KB pages.
    pub dirty_pages: u64,
}

/// Which pages a record's `dirty_pages` are. A record only counts them; the truth lies between the
/// two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrites {
    /// Every fork finds other pages dirty: they add up until folded.
    Fresh,
    /// Every fork finds the same pages dirty again: the largest count stands.
    Same,
}

/// When to buy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The rental rule.
    Auto,
    /// The rental rule without a look at the price while it is paid.
    Blind,
    /// Before any fork that finds something to freeze or fold.
    Eager,
    /// Not at all: the cost of stock fork.
    Never,
}

/// How to replay a trace.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    /// What things really cost.
    pub truth: &'a CostModel,
    /// What the rule believes at first; it learns from the forks of the trace, and from purchases
    /// that were stopped.
    pub belief: CostModel,
    /// How dirty pages add up.
    pub rewrites: Rewrites,
    /// When to buy.
    pub policy: Policy,
}

/// What a replay cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Avoidable cost of the forks, nanoseconds.
    pub rent_ns: u64,
    /// Cost of all purchases, nanoseconds.
    pub bought_ns: u64,
    /// Cost of all looks that did not lead to a purchase, nanoseconds.
    pub scans_ns: u64,
    /// Number of purchases made to the end.
    pub purchases: u64,
    /// Number of purchases stopped half-way because of their price.
    pub stops: u64,
    /// The longest step that was under way when a purchase reached its limit, nanoseconds. It is
    /// made to its end, and where it was the last one, so is the purchase.
    pub step_ns: u64,
    /// The fixed parts of the purchases that go on where one was stopped, made or still to be
    /// made, nanoseconds.
    pub again_ns: u64,
    /// Number of looks that did not lead to a purchase.
    pub looks: u64,
    /// For each purchase, and for the account open at the end: the last step of rent, and what
    /// looking late can add (`r + late` in the bounds of [`Rental`]), nanoseconds.
    pub slack_ns: u64,
}

impl Outcome {
    /// Rent, purchases and looks together, nanoseconds.
    pub const fn cost_ns(&self) -> u64 {
        self.rent_ns.saturating_add(self.bought_ns).saturating_add(self.scans_ns)
    }
}

/// What is still outstanding at a fork: everything before the first purchase, then growth and dirty
/// pages.
#[derive(Clone, Copy, Default)]
struct Memory {
    frozen: bool,
    frozen_bytes: u64,
    anon_bytes: u64,
    dirty_pages: u64,
}

impl Memory {
    fn arrive(&mut self, record: &ForkRecord, rewrites: Rewrites) {
        self.anon_bytes = record.anon_bytes;
        self.frozen_bytes = self.frozen_bytes.min(record.anon_bytes);
        let dirty = match rewrites {
            Rewrites::Fresh => self.dirty_pages.saturating_add(record.dirty_pages),
            Rewrites::Same => self.dirty_pages.max(record.dirty_pages),
        };
        self.dirty_pages = dirty.min(self.frozen_bytes / PAGE_BYTES);
    }

    fn new_bytes(&self) -> u64 {
        self.anon_bytes.saturating_sub(self.frozen_bytes)
    }

    fn entries(&self) -> u64 {
        self.new_bytes().div_ceil(PAGE_BYTES).saturating_add(self.dirty_pages)
    }

    fn fork_ns(&self, model: &CostModel, record: &ForkRecord) -> u64 {
        if self.frozen {
            model.fork_ns(self.entries())
        } else {
            record.plain_ns
        }
    }

    fn price_ns(&self, model: &CostModel) -> u64 {
        model.clean_ns(self.new_bytes(), self.dirty_pages, self.frozen_bytes)
    }

    /// Freezes one step more, of memory that was new when the purchase began.
    fn freeze_step(&mut self, new_bytes: u64) -> u64 {
        // Above 8 GB in larger steps than the runtime's, so that any record can be replayed.
        let step = Trial::STEP_BYTES.max(new_bytes / 4096);
        let bytes = self.new_bytes().min(step);
        self.frozen = true;
        self.frozen_bytes = self.frozen_bytes.saturating_add(bytes);
        bytes
    }

    fn clean(&mut self) {
        *self = Self {
            frozen: true,
            frozen_bytes: self.anon_bytes,
            anon_bytes: self.anon_bytes,
            dirty_pages: 0,
        };
    }
}

/// One replay under way.
struct Player<'a> {
    replay: Replay<'a>,
    memory: Memory,
    rental: Rental,
    last_fork_ns: u64,
    last_rent_ns: u64,
    outcome: Outcome,
}

impl Player<'_> {
    fn before_fork(&mut self) {
        match self.replay.policy {
            Policy::Never => {}
            Policy::Eager if self.memory.entries() > 0 => self.buy(),
            Policy::Eager => {}
            Policy::Auto | Policy::Blind => self.scan_when_worth_it(),
        }
    }

    fn scan_floor_ns(&self) -> u64 {
        self.replay.belief.scan_floor_ns(self.last_fork_ns, self.memory.frozen_bytes)
    }

    fn scan_when_worth_it(&mut self) {
        let floor_ns = self.scan_floor_ns();
        if !self.rental.worth_scanning(floor_ns) {
            return;
        }
        let belief = &self.replay.belief;
        let buy_ns = self.memory.price_ns(belief);
        self.rental.limit(belief.avoidable_ns(self.memory.entries()));
        if self.memory.entries() > 0 && self.rental.due(buy_ns) {
            return self.buy();
        }
        let scan_ns = self.replay.truth.scan_ns(self.memory.entries(), self.memory.frozen_bytes);
        self.outcome.scans_ns = self.outcome.scans_ns.saturating_add(scan_ns);
        self.outcome.looks = self.outcome.looks.saturating_add(1);
        self.rental
            .scanned(buy_ns, belief.scan_ns(self.memory.entries(), self.memory.frozen_bytes));
    }

    fn buy(&mut self) {
        let trial = match self.replay.policy {
            Policy::Auto => self.rental.purchase(0),
            _ => Trial::UNLIMITED,
        };
        let slack_ns = self.slack_ns();
        let (truth, new_bytes) = (self.replay.truth, self.memory.new_bytes());
        // Folding and the fixed part come first, and are not divided.
        let begun_ns = truth.clean_ns(0, self.memory.dirty_pages, self.memory.frozen_bytes);
        self.memory.dirty_pages = 0;
        let (mut bytes, mut freezing_ns, mut step_ns) = (0_u64, 0, begun_ns);
        while self.memory.new_bytes() > 0 && trial.affords(begun_ns.saturating_add(freezing_ns)) {
            bytes = bytes.saturating_add(self.memory.freeze_step(new_bytes));
            let before_ns = freezing_ns;
            freezing_ns = truth.freeze_ns(bytes).saturating_sub(truth.freeze_ns(0));
            step_ns = freezing_ns.saturating_sub(before_ns);
        }
        let spent_ns = begun_ns.saturating_add(freezing_ns);
        self.outcome.bought_ns = self.outcome.bought_ns.saturating_add(spent_ns);
        if !trial.affords(spent_ns) {
            self.outcome.step_ns = self.outcome.step_ns.max(step_ns);
        }
        if self.memory.new_bytes() == 0 {
            return self.bought(slack_ns);
        }
        self.replay.belief.observe_freeze(bytes, freezing_ns);
        let again_ns = truth.refreeze_ns(0, self.memory.frozen_bytes);
        self.outcome.stops = self.outcome.stops.saturating_add(1);
        self.outcome.again_ns = self.outcome.again_ns.saturating_add(again_ns);
        self.rental.stopped(spent_ns);
    }

    fn bought(&mut self, slack_ns: u64) {
        self.outcome.slack_ns = self.outcome.slack_ns.saturating_add(slack_ns);
        self.outcome.purchases = self.outcome.purchases.saturating_add(1);
        self.memory.clean();
        self.rental.bought();
        self.last_rent_ns = 0;
    }

    fn fork(&mut self, record: &ForkRecord) {
        let fork_ns = self.memory.fork_ns(self.replay.truth, record);
        self.last_rent_ns = self.replay.truth.rent_ns(fork_ns);
        self.outcome.rent_ns = self.outcome.rent_ns.saturating_add(self.last_rent_ns);
        self.rental.charge(self.replay.belief.rent_ns(fork_ns));
        self.replay.belief.observe_fork(self.memory.entries(), fork_ns);
        self.last_fork_ns = fork_ns;
    }

    fn slack_ns(&self) -> u64 {
        let (memory, belief) = (&self.memory, &self.replay.belief);
        let scans_ns = belief.scan_ns(memory.entries(), memory.frozen_bytes).saturating_mul(2);
        let beyond_price_ns = self.scan_floor_ns().saturating_sub(memory.price_ns(belief));
        self.last_rent_ns.saturating_add(scans_ns.max(beyond_price_ns))
    }
}

/// Replays a trace as the runtime would have acted.
pub fn replay(trace: &[ForkRecord], replay: Replay<'_>) -> Outcome {
    let mut player = Player {
        replay,
        memory: Memory::default(),
        rental: Rental::new(),
        last_fork_ns: 0,
        last_rent_ns: 0,
        outcome: Outcome::default(),
    };
    for record in trace {
        player.memory.arrive(record, replay.rewrites);
        player.before_fork();
        player.fork(record);
    }
    player.outcome.slack_ns = player.outcome.slack_ns.saturating_add(player.slack_ns());
    player.outcome
}

/// Cost of the rental rule on this trace when `model` is both the truth and the belief,
/// nanoseconds.
///
/// ```
/// use odfork_model::{trace, CostModel};
/// let model = CostModel::new();
/// let fork = trace::ForkRecord { plain_ns: 14_060_000, anon_bytes: 1 << 30, dirty_pages: 0 };
/// let mut scratch = [0; 50];
/// let online = trace::online_cost(&[fork; 50], &model);
/// let fresh = trace::Rewrites::Fresh;
/// let hindsight = trace::hindsight_cost(&[fork; 50], &model, fresh, &mut scratch);
/// let one_scan = model.scan_ns(262_144, 0);
/// assert!(online <= 2 * hindsight.unwrap() + one_scan);
/// ```
pub fn online_cost(trace: &[ForkRecord], model: &CostModel) -> u64 {
    let how =
        Replay { truth: model, belief: *model, rewrites: Rewrites::Fresh, policy: Policy::Auto };
    replay(trace, how).cost_ns()
}

/// Cost of the best choice of purchases in hindsight, nanoseconds: when to freeze, if at all, and
/// when to clean again.
///
/// Dynamic programming over the fork before which the last purchase was made: time grows with the
/// square of the trace. `scratch` holds one number per fork; `None` when it is shorter than the
/// trace.
pub fn hindsight_cost(
    trace: &[ForkRecord],
    model: &CostModel,
    rewrites: Rewrites,
    scratch: &mut [u64],
) -> Option<u64> {
    let best_after = scratch.get_mut(..trace.len())?;
    for (first, record) in trace.iter().enumerate().rev() {
        let mut bought = Memory { anon_bytes: record.anon_bytes, ..Memory::default() };
        bought.clean();
        let rest = trace.get(first.saturating_add(1)..)?;
        let known = best_after.get(first.saturating_add(1)..)?;
        let best = best_continuation(bought, rest, known, (model, rewrites));
        *best_after.get_mut(first)? = best;
    }
    Some(best_continuation(Memory::default(), trace, best_after, (model, rewrites)))
}

/// Cheapest way through `rest` from `memory`: pay rent up to some fork, buy before it (`known`
/// tells the cost from there on), or never buy.
fn best_continuation(
    mut memory: Memory,
    rest: &[ForkRecord],
    known: &[u64],
    (model, rewrites): (&CostModel, Rewrites),
) -> u64 {
    let mut rent_ns: u64 = 0;
    let mut best = u64::MAX;
    for (record, after_ns) in rest.iter().zip(known) {
        memory.arrive(record, rewrites);
        let bought_here = rent_ns.saturating_add(memory.price_ns(model)).saturating_add(*after_ns);
        best = best.min(bought_here);
        rent_ns = rent_ns.saturating_add(model.rent_ns(memory.fork_ns(model, record)));
    }
    best.min(rent_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIC: ForkRecord =
        ForkRecord { plain_ns: 14_057_000, anon_bytes: 1 << 30, dirty_pages: 0 };

    fn outcome(trace: &[ForkRecord], policy: Policy, rewrites: Rewrites) -> Outcome {
        let truth = CostModel::new();
        replay(trace, Replay { truth: &truth, belief: truth, rewrites, policy })
    }

    fn hindsight<const N: usize>(trace: &[ForkRecord; N], rewrites: Rewrites) -> u64 {
        hindsight_cost(trace, &CostModel::new(), rewrites, &mut [0; N]).expect("scratch fits")
    }

    #[test]
    fn a_program_that_forks_once_pays_that_fork_only() {
        let once = outcome(&[STATIC], Policy::Auto, Rewrites::Fresh);
        assert_eq!((once.purchases, once.looks), (0, 0));
        assert_eq!(once.cost_ns(), outcome(&[STATIC], Policy::Never, Rewrites::Fresh).cost_ns());
        assert_eq!(once.cost_ns(), hindsight(&[STATIC], Rewrites::Fresh));
    }

    #[test]
    fn hindsight_of_a_static_parent_is_rent_or_one_freeze_before_the_first_fork() {
        let model = CostModel::new();
        let rent = model.rent_ns(STATIC.plain_ns);
        assert_eq!(hindsight(&[STATIC; 5], Rewrites::Fresh), 5 * rent);
        assert_eq!(hindsight(&[STATIC; 6], Rewrites::Fresh), model.freeze_ns(1 << 30));
        assert_eq!(hindsight(&[STATIC; 99], Rewrites::Same), model.freeze_ns(1 << 30));
    }

    #[test]
    fn a_static_parent_freezes_once_and_pays_nothing_after() {
        let model = CostModel::new();
        let found = outcome(&[STATIC; 200], Policy::Auto, Rewrites::Fresh);
        assert_eq!(found.purchases, 1);
        assert_eq!(found.rent_ns, 5 * model.rent_ns(STATIC.plain_ns));
        assert_eq!(found.bought_ns, model.freeze_ns(1 << 30));
        assert!(found.looks <= 1, "{found:?}");
    }

    #[test]
    fn hindsight_agrees_with_trying_every_schedule() {
        let grow = |i: u64| ForkRecord {
            plain_ns: 60_000 + i * 9_000_000,
            anon_bytes: (8 + 40 * i) << 20,
            dirty_pages: 900 * ((i * 7) % 5),
        };
        let trace = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(grow);
        for rewrites in [Rewrites::Fresh, Rewrites::Same] {
            let cheapest =
                (0..1_u32 << trace.len()).map(|s| cost_of_schedule(&trace, s, rewrites)).min();
            assert_eq!(Some(hindsight(&trace, rewrites)), cheapest);
        }
    }

    /// Bit `i` of `schedule`: buy before fork `i`.
    fn cost_of_schedule(trace: &[ForkRecord], schedule: u32, rewrites: Rewrites) -> u64 {
        let model = CostModel::new();
        let mut memory = Memory::default();
        let mut cost = 0;
        for (i, record) in trace.iter().enumerate() {
            memory.arrive(record, rewrites);
            if schedule >> i & 1 == 1 {
                cost += memory.price_ns(&model);
                memory.clean();
            }
            cost += model.rent_ns(memory.fork_ns(&model, record));
        }
        cost
    }

    #[test]
    fn the_same_pages_written_again_do_not_add_up() {
        let writer = ForkRecord { dirty_pages: 1000, ..STATIC };
        let same = outcome(&[writer; 50], Policy::Never, Rewrites::Same);
        let eager_same = outcome(&[writer; 50], Policy::Eager, Rewrites::Same);
        assert_eq!(same.purchases, 0);
        assert_eq!(eager_same.purchases, 50);
        let fresh = outcome(&[writer; 50], Policy::Auto, Rewrites::Fresh);
        let same = outcome(&[writer; 50], Policy::Auto, Rewrites::Same);
        assert!(fresh.purchases > same.purchases && same.purchases > 1, "{fresh:?} {same:?}");
    }

    #[test]
    fn short_scratch_and_empty_traces() {
        let model = CostModel::new();
        assert_eq!(hindsight_cost(&[STATIC; 3], &model, Rewrites::Fresh, &mut [0; 2]), None);
        assert_eq!(hindsight_cost(&[], &model, Rewrites::Fresh, &mut []), Some(0));
        assert_eq!(online_cost(&[], &model), 0);
    }
}
