//! The groups of parents behind the promised figures: what each asks, at any size.
//!
//! A builder gives the whole group for a scale; sizes of references do not scale.

use serde_json::json;

use odfork_samples::promises::{BYTES, GROUP, NOMINAL, SERIES};

use super::{size_of, Case};
use crate::configuration::Configuration::{self, Image, Plain, Thp};
use crate::configuration::Freeze::{self, Auto, Eager, Never};
use crate::configuration::{Preparation, Subject};
use crate::plan::{ns, params, Ask, Effort, Metric, Op, Plan, Program, Reading, GIB, MIB};
use crate::runner::{Block, Budget, Point};
use crate::workload::memory::Layout;
use crate::workload::protocol::Command as Asked;

/// A group at the size it is measured at.
pub(super) struct Scale<'a> {
    pub case: &'a Case,
    pub size: u64,
    pub effort: Effort,
}

impl Scale<'_> {
    /// The group, and what its children or copies need beyond the subjects, in times of its size.
    fn plan(&self, subjects: Vec<Subject>, copies: u64) -> Plan {
        let mut plan = Plan::new(self.case.name.into(), 0.0);
        plan.group.blocks.clear();
        plan.group.targets = subjects;
        plan.children = copies * self.size;
        plan
    }

    /// Warm-up rounds, rounds at least and at most, seconds.
    fn budget(&self, (warmups, least, most): (u32, u32, u32), seconds: f64) -> Budget {
        match self.effort {
            Effort::Quick => Budget::new(1, 3, most.min(5), seconds.min(0.3)),
            _ => Budget::new(warmups, least, most, seconds),
        }
    }

    /// How many times a command repeats inside one sample.
    fn calls(&self, calls: u32) -> u32 {
        if self.effort == Effort::Quick {
            calls.min(2)
        } else {
            calls
        }
    }

    fn point(&self, series: &str, one: Configuration, targets: &[usize], op: Op) -> Point<Op> {
        let params = params(&[
            (GROUP, json!(self.case.name)),
            (SERIES, json!(series)),
            (BYTES, json!(self.size)),
            (NOMINAL, json!(self.case.nominal)),
        ]);
        Point { engine: one.word(), targets: targets.to_vec(), params, op }
    }

    /// Subjects asked at once.
    fn ask(&self, plan: &Plan, series: &str, targets: &[usize], command: Asked) -> Point<Op> {
        let configuration = plan.group.targets[targets[0]].configuration;
        self.point(series, configuration, targets, Op::ask(command, ns(command.labels())))
    }

    /// Subjects 0, 1, ... asked the same.
    fn ask_each(&self, plan: &mut Plan, series: &[&str], command: Asked, budget: Budget) {
        let all = series.iter().enumerate();
        let points = all.map(|(target, name)| self.ask(plan, name, &[target], command)).collect();
        plan.group.blocks.push(Block { points, budget });
    }

    fn run(
        &self,
        series: &str,
        (configuration, freeze): (Configuration, Freeze),
        forks: u32,
    ) -> Point<Op> {
        let op = Op::Run(Program { configuration, freeze, size: self.size, forks });
        self.point(series, configuration, &[], op)
    }
}

const STOCK_AND_ODFORK: [&str; 2] = ["stock", "odfork"];

fn stock(size: u64) -> Subject {
    Subject::new(Plain, size)
}

fn odfork(freeze: Freeze, size: u64) -> Subject {
    Subject { freeze, ..Subject::new(Image, size) }
}

/// A static parent and everything its children can do.
pub(super) fn still(scale: &Scale) -> Plan {
    let size = scale.size;
    let series = ["stock", "odfork", "thp"];
    let calls = scale.calls(3);
    let mut plan = scale.plan(vec![stock(size), odfork(Eager, size), Subject::new(Thp, size)], 1);
    for (command, rounds, seconds) in [
        (Asked::Fork { calls }, (2, 8, 40), 9.0),
        (Asked::Read, (1, 6, 30), 7.0),
        (Asked::Sparse, (1, 6, 30), 8.0),
        (Asked::Full, (1, 6, 20), 16.0),
        (Asked::Fault, (1, 8, 40), 5.0),
        (Asked::Crowd { children: 32 }, (1, 3, 10), 10.0),
    ] {
        scale.ask_each(&mut plan, &series, command, scale.budget(rounds, seconds));
    }
    plan
}

/// One point of the curve, with the references of "flat" and "empty" in the same rounds.
pub(super) fn curve(scale: &Scale) -> Plan {
    let size = scale.size;
    let reference = size_of(scale.effort, 64 * MIB).min(size);
    // Stock needs 0.4 s for each fork and exit at 8 GB: one call a sample is enough there.
    let nominal = scale.case.nominal;
    let stock_calls = if nominal >= 2 * GIB { 1 } else { 5 };
    let subjects = vec![stock(size), odfork(Eager, size), odfork(Eager, reference), stock(0)];
    let mut plan = scale.plan(subjects, 0);
    let series = [("stock", stock_calls), ("odfork", 5), ("odfork-64m", 5), ("empty", 5)]
        .into_iter()
        .enumerate();
    let points = series.map(|(target, (name, calls))| {
        scale.ask(&plan, name, &[target], Asked::Fork { calls: scale.calls(calls) })
    });
    let points = points.collect();
    let budget = scale.budget((3, 10, 40), if nominal >= 4 * GIB { 9.0 } else { 4.0 });
    plan.group.blocks.push(Block { points, budget });
    plan
}

/// The parent dirties one page in 64 KB, forks, refreezes, forks. Nothing is frozen by itself here.
pub(super) fn dirty(scale: &Scale) -> Plan {
    let prepare = vec![Preparation::Must(Asked::Freeze)];
    let frozen = Subject { prepare, ..odfork(Never, scale.size) };
    let mut plan = scale.plan(vec![stock(scale.size), frozen], 0);
    let command = Asked::Cycle { calls: scale.calls(3) };
    scale.ask_each(&mut plan, &STOCK_AND_ODFORK, command, scale.budget((1, 6, 30), 12.0));
    plan
}

/// Freezing against memcpy of the same bytes in the same process; thawed between, so each round
/// begins alike.
pub(super) fn freeze(scale: &Scale) -> Plan {
    let mut plan = scale.plan(vec![odfork(Never, scale.size)], 1);
    let points = [
        ("odfork", Asked::FreezeThaw),
        ("memcpy-touched", Asked::CopyTouched),
        ("memcpy-fresh", Asked::CopyFresh),
    ]
    .map(|(series, command)| scale.ask(&plan, series, &[0], command));
    let budget = scale.budget((1, 6, 20), 20.0);
    plan.group.blocks.push(Block { points: points.to_vec(), budget });
    plan
}

/// Memory taken while freezing. Apart from `freeze`, because the watching takes time from the other
/// core.
pub(super) fn peak(scale: &Scale) -> Plan {
    let mut plan = scale.plan(vec![odfork(Never, scale.size)], 1);
    let bytes = ["extra", "extra-system"].map(|name| Metric::new(name, Reading::Bytes));
    let metrics = [ns(&["freeze"]), bytes.to_vec()].concat();
    let op = Op::Ask(Ask { command: Asked::Freeze, metrics, fold: false, watch: true });
    let points = vec![scale.point("odfork", Image, &[0], op)];
    plan.group.blocks.push(Block { points, budget: scale.budget((1, 5, 10), 5.0) });
    plan
}

/// A parent with four more threads that sleep.
pub(super) fn threads(scale: &Scale) -> Plan {
    forks(scale, |subject| Subject { threads: 4, ..subject })
}

/// The memory comes from malloc in 64 KB blocks: the brk heap.
pub(super) fn heap(scale: &Scale) -> Plan {
    forks(scale, |subject| Subject { layout: Layout::Malloced, ..subject })
}

fn forks(scale: &Scale, shape: fn(Subject) -> Subject) -> Plan {
    let subjects = [stock(scale.size), odfork(Eager, scale.size)].map(shape);
    let mut plan = scale.plan(subjects.to_vec(), 0);
    let command = Asked::Fork { calls: scale.calls(3) };
    scale.ask_each(&mut plan, &STOCK_AND_ODFORK, command, scale.budget((2, 8, 30), 4.0));
    plan
}

/// The parent rewrites everything between forks: the worst case for frozen memory.
pub(super) fn rewriting(scale: &Scale) -> Plan {
    let size = scale.size;
    let mut plan = scale.plan(vec![stock(size), odfork(Auto, size), odfork(Eager, size)], 2);
    let series = ["stock", "odfork", "eager"];
    scale.ask_each(&mut plan, &series, Asked::Rewrite, scale.budget((3, 8, 30), 10.0));
    plan
}

/// A block that was there at a fork grows to four times its size by realloc.
pub(super) fn growth(scale: &Scale) -> Plan {
    let mut plan = scale.plan(vec![stock(0), odfork(Eager, 0)], 10);
    let command = Asked::Realloc { bytes: scale.size };
    scale.ask_each(&mut plan, &STOCK_AND_ODFORK, command, scale.budget((1, 6, 20), 6.0));
    plan
}

/// Three parents that fork at the same time.
pub(super) fn three(scale: &Scale) -> Plan {
    let together = |subject: Subject| vec![Subject { pinned: false, ..subject }; 3];
    let subjects = [stock(scale.size), odfork(Eager, scale.size)].map(together).concat();
    let mut plan = scale.plan(subjects, 0);
    let command = Asked::Fork { calls: scale.calls(2) };
    let points = vec![
        scale.ask(&plan, "stock", &[0, 1, 2], command),
        scale.ask(&plan, "odfork", &[3, 4, 5], command),
    ];
    plan.group.blocks.push(Block { points, budget: scale.budget((2, 6, 20), 7.0) });
    plan
}

/// A small program that forks 200 times, start to end.
pub(super) fn small(scale: &Scale) -> Plan {
    let mut plan = scale.plan(vec![], 0);
    let points =
        vec![scale.run("stock", (Plain, Auto), 200), scale.run("odfork", (Image, Auto), 200)];
    plan.group.blocks.push(Block { points, budget: scale.budget((2, 10, 120), 20.0) });
    plan
}

/// A program that forks once, start to end: by default, and when told to be eager.
pub(super) fn once(scale: &Scale, rounds: u32, seconds: f64) -> Plan {
    let mut plan = scale.plan(vec![], 2);
    let points = vec![
        scale.run("stock", (Plain, Auto), 1),
        scale.run("odfork", (Image, Auto), 1),
        scale.run("eager", (Image, Eager), 1),
    ];
    plan.group.blocks.push(Block { points, budget: scale.budget((1, 6, rounds), seconds) });
    plan
}
