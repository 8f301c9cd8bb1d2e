//! `profile`: where the time of a fork goes, by perf or by counters.

use serde_json::json;

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{self, Image, Kernel, Plain, Thp};
use crate::plan::{params, Config, Effort, Op, Plan, GIB, MIB};
use crate::runner::{Budget, Point};
use crate::tables;

pub static SUITE: Suite = Suite {
    name: "profile",
    row: "M08",
    question: "Where does the time of fork go?",
    published: "63 % compound_head, 29 % reference counts, of copy_one_pte",
    metrics: &["share", "count"],
    params: &["bytes", "source", "name"],
    configurations: &[Plain, Thp, Image, Kernel],
    how: How::Subjects(Subjects {
        plans,
        seconds: Some([4.0, 30.0, 120.0]),
        tables: tables::medians,
    }),
};

fn plans(config: &Config) -> Vec<Plan> {
    let size = if config.effort == Effort::Quick { 64 * MIB } else { GIB };
    let plan = |configuration: &Configuration| {
        let mut plan = Plan::new(configuration.word().into(), 1.0);
        *plan.budget() = Budget::new(0, 1, 1, 1.0);
        // The subject is the op's own.
        plan.children = size;
        plan.points().push(Point {
            engine: configuration.word(),
            targets: Vec::new(),
            params: params(&[("bytes", json!(size))]),
            op: Op::Profile { subject: configuration.subject(size), seconds: 1.0 },
        });
        plan
    };
    config.configurations.iter().map(plan).collect()
}
