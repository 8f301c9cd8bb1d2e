//! When the hand moves and how fast: the paper's rule, and the pool as an inventory.
//!
//! The paper's: below the low watermark (1/4 of memory) the hand scans at a minimum rate, which
//! rises linearly to a maximum as the pool runs empty. The maximum bounds the CPU time that
//! simulated reference bits can cost, for every reclaim was scanned before. The inventory rule
//! (announced in the paper as future work): when the supply falls below an low watermark, order a
//! quantity, that is scan at the maximum rate until so many frames have come; point and quantity
//! follow the demand.
//!
//! Integer arithmetic throughout, so that simulator and pager agree to the page. Rates are frames
//! per second.

const SECOND: u64 = 1_000_000_000;
/// A caller that slept longer than this is not made to catch up: one sweep over all memory would
/// zap everything.
const LONGEST_GAP_NS: u64 = SECOND;

/// How the hand is driven.
#[derive(Clone, Debug, PartialEq)]
pub enum ScanRule {
    /// Linear between two rates (the default).
    Linear(Linear),
    /// Low watermark and order quantity.
    Inventory(Inventory),
    /// The hand moves only by [`super::Clock::scan`].
    Never,
}

/// The paper's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// The hand moves while fewer frames than this are in the pool.
    pub low_watermark: u32,
    /// Frames per second just below the low watermark.
    pub slowest: u64,
    /// Frames per second with an empty pool.
    pub fastest: u64,
}

impl Linear {
    /// The paper's values, scaled to `frames`: low watermark 1/4 of memory; one revolution in 40 s
    /// at the low watermark and in 4 s with an empty pool, but never faster than 3/4 of what
    /// `cpu_share` of one processor could reclaim at `reclaim_ns` each (1981: 250 us, 10 %, hence
    /// 300 pages/s).
    pub fn paper(frames: u32, reclaim_ns: u64, cpu_share: f64) -> Linear {
        let cap = 0.75 * cpu_share.clamp(0.0, 1.0) * SECOND as f64 / reclaim_ns.max(1) as f64;
        let fastest = u64::from(frames / 4).min(cap as u64).max(1);
        let slowest = u64::from(frames / 40).clamp(1, fastest);
        Linear { low_watermark: (frames / 4).max(1), slowest, fastest }
    }

    /// The rate with this many frames in the pool.
    pub fn rate(&self, pool: u32) -> u64 {
        if pool >= self.low_watermark {
            return 0;
        }
        let missing = u128::from(self.low_watermark - pool);
        let span = u128::from(self.fastest.saturating_sub(self.slowest));
        self.slowest + (span * missing / u128::from(self.low_watermark)) as u64
    }
}

/// The pool as a stock room. Demand is what leaves the pool (frames taken and pages reclaimed).
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// Frames per second while an order is open.
    pub rate: u64,
    /// Smallest and largest low watermark, in frames.
    pub points: (u32, u32),
    /// Smallest and largest order quantity, in frames.
    pub quantities: (u32, u32),
    /// How many standard deviations of the demand during the lead time are kept as safety stock.
    pub safety: f64,
    /// What placing one order costs, in units of holding one frame in the pool for a second.
    pub order_cost: f64,
}

impl Inventory {
    /// Low watermark between 1/64 and 1/2 of memory, quantity between 1/64 and 1/4, two deviations
    /// in stock.
    pub fn for_frames(frames: u32, rate: u64) -> Inventory {
        let part = |share: u32| (frames / share).max(1);
        Inventory {
            rate: rate.max(1),
            points: (part(64), part(2)),
            quantities: (part(64), part(4)),
            safety: 2.0,
            order_cost: 16.0,
        }
    }
}

/// A rule and its state.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    rule: ScanRule,
    last_ns: Option<u64>,
    /// Frames times nanoseconds that the hand may still move.
    credit: u128,
    stock: Stock,
}

/// What the inventory rule has learned. Times in seconds, demand in frames per second.
#[derive(Clone, Debug, Default)]
struct Stock {
    demand: u64,
    period_start_ns: u64,
    mean: f64,
    variance: f64,
    lead: f64,
    /// Supply at which the open order is fulfilled, and when it was placed.
    order: Option<(u32, u64)>,
}

impl Pacer {
    pub fn new(rule: ScanRule) -> Pacer {
        Pacer { rule, last_ns: None, credit: 0, stock: Stock { lead: 0.1, ..Stock::default() } }
    }

    pub fn rule(&self) -> &ScanRule {
        &self.rule
    }

    pub fn set(&mut self, rule: ScanRule) {
        self.rule = rule;
        self.stock.order = None;
    }

    pub fn demand(&mut self, frames: u64) {
        self.stock.demand += frames;
    }

    /// Frames the hand may pass now.
    pub fn due(&mut self, now_ns: u64, supply: u32) -> u64 {
        let last = self.last_ns.unwrap_or(now_ns);
        let gap = now_ns.saturating_sub(last).min(LONGEST_GAP_NS);
        self.last_ns = Some(now_ns.max(last));
        if let ScanRule::Inventory(rule) = &self.rule {
            self.stock.review(rule, now_ns, supply);
        }
        let rate = self.rate(supply);
        if rate == 0 {
            self.credit = 0;
            return 0;
        }
        self.credit += u128::from(rate) * u128::from(gap);
        let due = self.credit / u128::from(SECOND);
        self.credit %= u128::from(SECOND);
        due as u64
    }

    /// Frames per second with this supply.
    pub fn rate(&self, supply: u32) -> u64 {
        match &self.rule {
            ScanRule::Linear(linear) => linear.rate(supply),
            ScanRule::Inventory(rule) if self.stock.order.is_some() => rule.rate,
            ScanRule::Inventory(_) | ScanRule::Never => 0,
        }
    }

    /// Whether the hand goes on with this supply.
    pub fn wants(&self, supply: u32) -> bool {
        match &self.rule {
            ScanRule::Linear(linear) => supply < linear.low_watermark,
            ScanRule::Inventory(_) => self.stock.order.is_some_and(|(until, _)| supply < until),
            ScanRule::Never => false,
        }
    }

    /// Closes an order that is fulfilled.
    pub fn supplied(&mut self, now_ns: u64, supply: u32) {
        let Some((until, since)) = self.stock.order else { return };
        if supply >= until {
            let took = now_ns.saturating_sub(since) as f64 / SECOND as f64;
            self.stock.lead += (took - self.stock.lead) / 4.0;
            self.stock.order = None;
        }
    }

    /// Low watermark and quantity in force.
    pub fn order(&self) -> (u32, u32) {
        match &self.rule {
            ScanRule::Linear(linear) => (linear.low_watermark, 0),
            ScanRule::Inventory(rule) => (self.stock.point(rule), self.stock.quantity(rule)),
            ScanRule::Never => (0, 0),
        }
    }
}

impl Stock {
    /// Once a second the demand is looked at (moving averages over about 8 s); at any time an order
    /// may be placed.
    fn review(&mut self, rule: &Inventory, now_ns: u64, supply: u32) {
        let period = now_ns.saturating_sub(self.period_start_ns);
        if period >= SECOND {
            let rate = self.demand as f64 * SECOND as f64 / period as f64;
            let off = rate - self.mean;
            self.mean += off / 8.0;
            self.variance += (off * off - self.variance) / 8.0;
            (self.demand, self.period_start_ns) = (0, now_ns);
        }
        if self.order.is_none() && supply < self.point(rule) {
            self.order = Some((supply.saturating_add(self.quantity(rule)), now_ns));
        }
    }

    /// Demand during the lead time, and the safety stock.
    fn point(&self, rule: &Inventory) -> u32 {
        let stock = self.mean * self.lead + rule.safety * (self.variance * self.lead).sqrt();
        (stock as u32).clamp(rule.points.0, rule.points.1.max(rule.points.0))
    }

    /// The quantity that costs least: the root of twice demand times the cost of an order.
    fn quantity(&self, rule: &Inventory) -> u32 {
        let best = (2.0 * self.mean * rule.order_cost).sqrt();
        (best as u32).clamp(rule.quantities.0, rule.quantities.1.max(rule.quantities.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_machine_scans_between_100_and_300_pages_a_second() {
        // 4,000 pages of 1 KB; 250 us a reclaim, a tenth of the processor.
        let rule = Linear::paper(4000, 250_000, 0.1);
        assert_eq!(rule, Linear { low_watermark: 1000, slowest: 100, fastest: 300 });
        assert_eq!([1000, 1001, 4000].map(|pool| rule.rate(pool)), [0, 0, 0]);
        assert_eq!([999, 500, 0].map(|pool| rule.rate(pool)), [100, 200, 300]);
    }

    #[test]
    fn tiny_and_huge_memories_have_a_law() {
        for frames in [0, 1, 3, 39, u32::MAX] {
            let rule = Linear::paper(frames, 6_400, 0.1);
            assert!(rule.low_watermark >= 1 && rule.slowest >= 1 && rule.slowest <= rule.fastest);
        }
    }

    #[test]
    fn fractions_of_frames_are_not_lost_between_ticks() {
        let rule = ScanRule::Linear(Linear { low_watermark: 10, slowest: 7, fastest: 7 });
        let mut pacer = Pacer::new(rule);
        assert_eq!(pacer.due(0, 0), 0);
        let passed: u64 = (1..=1000).map(|tick| pacer.due(tick * 10_000_000, 0)).sum();
        assert_eq!(passed, 70);
    }

    #[test]
    fn a_long_sleep_is_not_made_up_for_and_time_never_runs_backwards() {
        let rule = ScanRule::Linear(Linear { low_watermark: 10, slowest: 100, fastest: 100 });
        let mut pacer = Pacer::new(rule);
        pacer.due(0, 0);
        assert_eq!(pacer.due(3600 * SECOND, 0), 100);
        assert_eq!(pacer.due(0, 0), 0);
        assert_eq!(pacer.due(3600 * SECOND, 0), 0);
    }

    #[test]
    fn an_order_stays_open_until_it_is_fulfilled() {
        let rule = Inventory {
            points: (10, 10),
            quantities: (20, 20),
            ..Inventory::for_frames(1000, 100)
        };
        let mut pacer = Pacer::new(ScanRule::Inventory(rule));
        assert_eq!((pacer.due(0, 10), pacer.wants(10)), (0, false));
        pacer.due(1, 9);
        assert!(pacer.wants(9) && pacer.wants(28) && !pacer.wants(29));
        pacer.supplied(SECOND, 28);
        assert!(pacer.wants(28), "above the order point, but the quantity has not come");
        pacer.supplied(SECOND, 29);
        assert!(!pacer.wants(0), "no order is open until the next look");
    }

    #[test]
    fn the_order_point_follows_the_demand() {
        let mut pacer = Pacer::new(ScanRule::Inventory(Inventory::for_frames(100_000, 50_000)));
        pacer.due(0, 100_000);
        let idle = pacer.order();
        for second in 1..60 {
            pacer.demand(20_000);
            pacer.due(second * SECOND, 100_000);
        }
        let busy = pacer.order();
        assert!(busy.0 > idle.0 && busy.0 <= 50_000, "{idle:?} {busy:?}");
        assert_eq!(idle.1, 1562);
    }
}
