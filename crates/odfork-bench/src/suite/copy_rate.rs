//! `copy-rate`: copying memory, and copying it by page faults of a child.

use serde_json::json;

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{Image, Kernel, Plain, Thp};
use crate::plan::{params, size_words, Config, Effort, Metric, Op, Plan, Reading, GIB, MIB};
use crate::tables;
use crate::workload::protocol::Command;
use crate::workload::PAGE;

pub static SUITE: Suite = Suite {
    name: "copy-rate",
    row: "M02",
    question: "How fast is memory copied, and how near do page faults come to it?",
    published: "copy 810,841 and 5,270,467 bytes/s; service 667,161 and 4,237,288 bytes/s; ratios \
                0.823 and 0.804",
    metrics: &["copy", "service"],
    params: &["bytes"],
    configurations: &[Plain, Thp, Image, Kernel],
    how: How::Subjects(Subjects {
        plans,
        seconds: Some([4.0, 40.0, 120.0]),
        // Only here a second metric is half of the answer.
        tables: tables::medians_of_all_metrics,
    }),
};

fn plans(config: &Config) -> Vec<Plan> {
    let sizes: &[u64] = match config.effort {
        Effort::Quick => &[316_228, 64 * MIB],
        Effort::Default => &[316_228, 64 * MIB, 512 * MIB],
        Effort::Full => &[316_228, 64 * MIB, 512 * MIB, 2 * GIB],
    };
    sizes.iter().map(|&size| plan(config, size)).collect()
}

fn plan(config: &Config, size: u64) -> Plan {
    let mut plan = Plan::new(size_words(size), 1.0);
    plan.children = 2 * size;
    for &configuration in &config.configurations {
        let subject = configuration.subject(size.next_multiple_of(PAGE as u64));
        // What is copied is whole pages; the harness holds less than the others.
        let bytes = subject.size;
        let subject = plan.subject(subject);
        for (command, name) in [(Command::CopyTouched, "copy"), (Command::Service, "service")] {
            let op = Op::ask(command, vec![Metric::new(name, Reading::Rate(bytes))]);
            plan.point(configuration, subject, params(&[("bytes", json!(size))]), op);
        }
    }
    plan
}
