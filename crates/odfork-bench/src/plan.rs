//! What a suite of subjects asks: plans of groups, the ops of their points, and which numbers
//! become which metrics.
//!
//! Owns the shapes that files of `suite` fill, and what fits into memory. Pure data; `executor`
//! does it.

use serde_json::Value;

use odfork_samples::samples::Params;

use crate::configuration::{Configuration, Freeze, Subject};
use crate::room;
use crate::runner::{Block, Budget, Group, Number, Point};
use crate::words::words;
use crate::workload::protocol::Command;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Left to everything else on the machine.
const HEADROOM: u64 = 768 << 20;
/// For the time left: what one processor fills in a second.
const LOAD_BYTES_PER_S: f64 = 7e8;

words! {
    /// How much to measure.
    Effort: 3 { Quick = "quick", Default = "default", Full = "full", }
}

/// What a suite plans with.
#[derive(Clone, Debug)]
pub struct Config {
    pub configurations: Vec<Configuration>,
    pub effort: Effort,
    /// Bytes that can be had now.
    pub available: u64,
    /// Only figures whose name begins with one of these; empty: all.
    pub only: Vec<String>,
}

/// How a number of an answer becomes a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// Nanoseconds as they are.
    Ns,
    /// Seconds.
    Seconds,
    /// So many bytes in the nanoseconds given: bytes a second.
    Rate(u64),
    /// Bytes as they are.
    Bytes,
}

impl Reading {
    fn unit(self) -> &'static str {
        match self {
            Reading::Ns => "ns",
            Reading::Seconds => "s",
            Reading::Rate(_) => "bytes/s",
            Reading::Bytes => "bytes",
        }
    }

    fn read(self, number: f64) -> f64 {
        match self {
            Reading::Ns | Reading::Bytes => number,
            Reading::Seconds => number / 1e9,
            Reading::Rate(bytes) => bytes as f64 * 1e9 / number.max(1.0),
        }
    }
}

/// One number of an answer, and what it is called in the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub label: String,
    pub name: &'static str,
    pub reading: Reading,
    /// Parameters of this number alone: the turn of a round.
    pub extra: Vec<(&'static str, Value)>,
}

impl Metric {
    pub fn new(name: &'static str, reading: Reading) -> Metric {
        Metric { label: name.into(), name, reading, extra: Vec::new() }
    }

    /// Of the numbers of an answer, the one with the label.
    pub fn of(&self, values: &[(String, f64)]) -> Option<Number> {
        let (_, number) = values.iter().find(|(label, _)| *label == self.label)?;
        let number = Number::new(self.name, self.reading.unit(), self.reading.read(*number));
        let extra = self.extra.iter().cloned();
        Some(extra.fold(number, |number, (name, value)| number.with(name, value)))
    }
}

/// Times in nanoseconds, called as the subject calls them.
pub fn ns(names: &[&'static str]) -> Vec<Metric> {
    names.iter().map(|name| Metric::new(name, Reading::Ns)).collect()
}

/// A whole program: started, runs to its end, timed from outside.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub configuration: Configuration,
    pub freeze: Freeze,
    pub size: u64,
    pub forks: u32,
}

/// What is done once.
#[derive(Clone, Debug)]
pub enum Op {
    /// Ask the subjects of the point, all at once; a number is the median of their answers.
    Ask(Ask),
    Run(Program),
    /// Let a subject fork for some seconds, and see where the time goes.
    Profile {
        subject: Subject,
        seconds: f64,
    },
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub command: Command,
    pub metrics: Vec<Metric>,
    /// Untimed, before each sample: refreezes what the last sample dirtied. Its time becomes the
    /// metric `fold`.
    pub fold: bool,
    /// The memory taken meanwhile by the first is sampled (`extra`, and `extra-system` as
    /// MemAvailable saw it); then it thaws, unwatched.
    pub watch: bool,
}

impl Op {
    pub fn ask(command: Command, metrics: Vec<Metric>) -> Op {
        Op::Ask(Ask { command, metrics, fold: false, watch: false })
    }

    /// What its numbers are called.
    pub fn metrics(&self) -> Vec<&'static str> {
        match self {
            Op::Ask(ask) => ask.metrics.iter().map(|metric| metric.name).collect(),
            Op::Run(_) => vec!["program"],
            Op::Profile { .. } => vec!["share", "count"],
        }
    }
}

pub fn params(pairs: &[(&str, Value)]) -> Params {
    pairs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// "512 MB", "1.5 GB".
pub fn size_words(bytes: u64) -> String {
    match bytes {
        0..MIB => format!("{bytes} bytes"),
        MIB..GIB => format!("{} MB", bytes / MIB),
        _ => format!("{:.1} GB", bytes as f64 / GIB as f64),
    }
}

/// A group of subjects, and what it needs of the machine.
#[derive(Clone, Debug)]
pub struct Plan {
    pub group: Group<Subject, Op>,
    /// What the children of one sample may take beyond the subjects, bytes.
    pub children: u64,
    /// What was left out of it, and why.
    pub notes: Vec<String>,
}

impl Plan {
    /// With one block, of which every point is measured at least once. `weight` is its share of the
    /// suite's time, relative to the other groups (`share`).
    pub fn new(title: String, weight: f64) -> Plan {
        let block = Block { points: Vec::new(), budget: Budget::new(1, 1, 200, weight) };
        let group = Group { title, targets: Vec::new(), blocks: vec![block], expected: 0.0 };
        Plan { group, children: 0, notes: Vec::new() }
    }

    /// Adds a subject and gives its index.
    pub fn subject(&mut self, subject: Subject) -> usize {
        self.group.targets.push(subject);
        self.group.targets.len() - 1
    }

    /// Adds a point to the first block.
    pub fn point(&mut self, configuration: Configuration, subject: usize, params: Params, op: Op) {
        self.points().push(Point {
            engine: configuration.word(),
            targets: vec![subject],
            params,
            op,
        });
    }

    /// Of the first block.
    pub fn points(&mut self) -> &mut Vec<Point<Op>> {
        &mut self.group.blocks[0].points
    }

    pub fn budget(&mut self) -> &mut Budget {
        &mut self.group.blocks[0].budget
    }

    fn held(&self) -> u64 {
        self.group.targets.iter().map(|subject| subject.size).sum()
    }

    /// What must be free beside the subjects for the largest to be frozen: a second copy of it.
    fn reserve(&self) -> u64 {
        let frozen = |subject: &&Subject| subject.configuration == Configuration::Image;
        let sizes = self.group.targets.iter().filter(frozen).map(|subject| subject.size);
        sizes.max().unwrap_or(0)
    }

    /// Bytes that must be available before it starts.
    pub fn needs(&self) -> u64 {
        self.held() + self.held() / 16 + self.children.max(self.reserve()) + HEADROOM
    }

    fn seconds(&self) -> f64 {
        self.group.blocks.iter().map(|block| block.budget.time.as_secs_f64()).sum()
    }

    /// Loading, the budgets, checking at the end.
    fn expected(&self) -> f64 {
        0.3 + self.held() as f64 / LOAD_BYTES_PER_S + self.seconds() * 1.1
    }
}

/// Gives each group its share of `seconds`; without, the time it has.
pub fn share(plans: &mut [Plan], seconds: Option<f64>) {
    let weights: f64 = plans.iter().map(Plan::seconds).sum();
    let factor = seconds.map_or(1.0, |seconds| seconds / weights.max(1e-9));
    for plan in plans {
        for block in &mut plan.group.blocks {
            block.budget.time = block.budget.time.mul_f64(factor);
            for point in &mut block.points {
                if let Op::Profile { seconds, .. } = &mut point.op {
                    *seconds = block.budget.time.as_secs_f64();
                }
            }
        }
        plan.group.expected = plan.expected();
    }
}

/// Leaves out, with a note, the groups that do not fit into memory.
pub fn fitting(plans: Vec<Plan>, available: u64, notes: &mut Vec<String>) -> Vec<Plan> {
    let (fitting, cut): (Vec<Plan>, Vec<Plan>) =
        plans.into_iter().partition(|plan| plan.needs() <= available);
    if let Some(least) = cut.iter().map(Plan::needs).min() {
        let titles: Vec<&str> = cut.iter().map(|plan| plan.group.title.as_str()).collect();
        let words = room::words(least, available);
        notes.push(format!("cut: {} left out; at least {words}", titles.join(", ")));
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_samples_in_their_unit() {
        assert_eq!(Reading::Ns.read(1500.0), 1500.0);
        assert_eq!(Reading::Seconds.read(2e9), 2.0);
        assert_eq!(Reading::Rate(4096).read(4096.0), 1e9);
        assert_eq!(Reading::Rate(1).unit(), "bytes/s");
        let turn = Metric {
            label: "before-2".into(),
            extra: vec![("turn", 2.into())],
            ..Metric::new("round", Reading::Ns)
        };
        let values = [("before-1".to_string(), 7.0), ("before-2".to_string(), 9.0)];
        let number = turn.of(&values).unwrap();
        assert_eq!((number.metric.as_str(), number.value), ("round", 9.0));
        assert_eq!(number.params, params(&[("turn", 2.into())]));
        assert_eq!(turn.of(&values[..1]), None);
    }

    fn plan(size: u64, weight: f64) -> Plan {
        let mut plan = Plan::new(format!("{size} GB"), weight);
        plan.subject(Configuration::Plain.subject(size << 30));
        plan
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let mut notes = Vec::new();
        let left = fitting(vec![plan(1, 1.0), plan(8, 1.0)], 3 << 30, &mut notes);
        assert_eq!(left.len(), 1);
        assert!(notes[0].contains("8 GB left out"), "{notes:?}");
    }

    #[test]
    fn time_is_shared_by_weight_or_as_planned() {
        let mut plans = [plan(1, 1.0), plan(1, 3.0)];
        share(&mut plans, Some(20.0));
        let seconds = |plans: &[Plan]| plans.iter().map(Plan::seconds).collect::<Vec<f64>>();
        assert_eq!(seconds(&plans), [5.0, 15.0]);
        share(&mut plans, None);
        assert_eq!(seconds(&plans), [5.0, 15.0]);
        assert!(plans[1].group.expected > 15.0);
    }
}
