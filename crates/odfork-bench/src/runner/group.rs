//! What a suite gives the runner: groups of targets, blocks of points, budgets; and what an op
//! gives back. Pure data.

use std::time::Duration;

use odfork_samples::samples::Params;
use odfork_samples::stats::SAMPLES_FOR_INTERVAL;

/// A budget this many times over is overdrawn: rounds that must be done are no longer waited for.
pub(super) const OVERDRAWN: f64 = 3.0;
/// One measured number. Round and configuration are those of its point, unless the op measured
/// several itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What was measured.
    pub metric: String,
    /// Its unit, as sample files have it.
    pub unit: &'static str,
    /// The number.
    pub value: f64,
    /// Parameters beside those of the point.
    pub params: Params,
    /// The configuration, when it is not that of the point.
    pub engine: Option<String>,
    /// The round, when it is not that of the point.
    pub round: Option<u32>,
}

impl Number {
    /// A number of its point's configuration and round.
    pub fn new(metric: &str, unit: &'static str, value: f64) -> Number {
        let (params, engine, round) = (Params::new(), None, None);
        Number { metric: metric.into(), unit, value, params, engine, round }
    }

    /// With one more parameter.
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Number {
        self.params.insert(name.into(), value.into());
        self
    }
}

/// What came of an op.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Kept whatever the outcome is.
    pub numbers: Vec<Number>,
    /// What a reader of the numbers must know.
    pub notes: Vec<String>,
    /// Of a verification: the engine the target says it used, and why.
    pub engine: Option<String>,
    /// Whether the point goes on.
    pub outcome: Outcome,
}

/// How an op ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Outcome {
    /// As it should.
    #[default]
    Done,
    /// Cannot be had: the point is skipped from now on, nothing is wrong.
    Unavailable(String),
    /// The same for every point of this configuration.
    Refused(String),
    /// Wrong content, or a process that died or hung: the run fails in the end. Who shares its
    /// targets is skipped; of a point without targets, its configuration.
    Wrong(String),
    /// By Ctrl-C.
    Interrupted,
}

impl Reply {
    /// These numbers, and all is well.
    pub fn numbers(numbers: Vec<Number>) -> Reply {
        Reply { numbers, ..Reply::default() }
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Reply {
        Reply { outcome, ..Reply::default() }
    }
}

/// One place in the space of an experiment.
#[derive(Clone, Debug)]
pub struct Point<O> {
    /// The configuration, as samples call it.
    pub engine: &'static str,
    /// Which targets of the group it needs.
    pub targets: Vec<usize>,
    /// Its parameters, as samples have them.
    pub params: Params,
    /// What is done there.
    pub op: O,
}

/// Points that are interleaved.
#[derive(Clone, Debug)]
pub struct Block<O> {
    /// They are done once in each round.
    pub points: Vec<Point<O>>,
    /// How many rounds.
    pub budget: Budget,
}

/// The order of points in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// New and random in each round, so that whatever the machine does meanwhile hits all alike.
    Shuffled,
    /// As given, and backwards in every second round: for few, long ops that must be first equally
    /// often.
    Alternating,
}

/// How long a block may go on.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Rounds that are not kept.
    pub warmups: u32,
    /// Rounds that are done however long they take, up to three times `time`.
    pub at_least: u32,
    /// Rounds after which the block ends.
    pub at_most: u32,
    /// Time after which it ends, if `at_least` allows.
    pub time: Duration,
    /// How often a cheap point is sampled in one round: its median needs it and its time allows it.
    pub repeats: u32,
    /// The order of points in a round.
    pub order: Order,
}

impl Budget {
    /// Rounds within bounds and a time; points shuffled, each once a round.
    pub fn new(warmups: u32, at_least: u32, at_most: u32, seconds: f64) -> Budget {
        let time = Duration::from_secs_f64(seconds);
        Budget { warmups, at_least, at_most, time, repeats: 1, order: Order::Shuffled }
    }

    /// So many rounds, however long they take.
    pub fn rounds(count: u32) -> Budget {
        Budget { time: Duration::MAX, ..Budget::new(0, count, count, 0.0) }
    }

    /// Whether the time leaves no room for another round. On a machine so slow that the least
    /// rounds take three times the budget, an interval from fewer must do.
    pub(super) fn is_spent(self, done: u32, spent: Duration) -> bool {
        let has_interval = done as usize >= SAMPLES_FOR_INTERVAL;
        // Three rounds make an interval: worth a little more than the time there is.
        let stretch = if has_interval { 1.0 } else { 1.25 };
        let next = spent + spent.checked_div(done).unwrap_or_default();
        let enough = done >= self.at_least.max(1) && next > self.times(stretch);
        enough || (has_interval && spent >= self.times(OVERDRAWN))
    }

    pub(super) fn times(self, factor: f64) -> Duration {
        Duration::try_from_secs_f64(self.time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    pub(super) fn share(self, done: f64, spent: Duration) -> f64 {
        let by_rounds = done / f64::from(self.at_most.max(1));
        let by_time = spent.as_secs_f64() / self.time.as_secs_f64().max(1e-9);
        by_rounds.max(by_time).min(1.0)
    }
}

/// Targets that are alive together, and what is measured on them, block after block.
#[derive(Clone, Debug)]
pub struct Group<T, O> {
    /// For progress and notes: "1.0 GB".
    pub title: String,
    /// What is started.
    pub targets: Vec<T>,
    /// What is measured, one block after the other.
    pub blocks: Vec<Block<O>>,
    /// About how many seconds it takes, for the time left.
    pub expected: f64,
}
