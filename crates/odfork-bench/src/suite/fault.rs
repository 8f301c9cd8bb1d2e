//! `fault`: the worst first write of a child.

use serde_json::json;

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{Hugetlb, Image, Kernel, Null, Plain, Thp};
use crate::plan::{ns, params, size_words, Config, Effort, Op, Plan, GIB, MIB};
use crate::tables;
use crate::workload::protocol::Command;

pub static SUITE: Suite = Suite {
    name: "fault",
    row: "M08",
    question: "What does the worst first write of a child cost?",
    published: "0.0023 ms (4 KB pages), 0.1984 ms (huge pages), 0.0122 ms (on-demand-fork)",
    metrics: &["fault"],
    params: &["bytes"],
    configurations: &[Plain, Thp, Hugetlb, Image, Kernel, Null],
    how: How::Subjects(Subjects {
        plans,
        seconds: Some([4.0, 40.0, 120.0]),
        tables: tables::medians,
    }),
};

fn plans(config: &Config) -> Vec<Plan> {
    let size = if config.effort == Effort::Quick { 64 * MIB } else { GIB };
    let mut plan = Plan::new(size_words(size), 1.0);
    for &configuration in &config.configurations {
        let subject = plan.subject(configuration.subject(size));
        let op = Op::ask(Command::Fault, ns(&["fault"]));
        plan.point(configuration, subject, params(&[("bytes", json!(size))]), op);
    }
    vec![plan]
}
