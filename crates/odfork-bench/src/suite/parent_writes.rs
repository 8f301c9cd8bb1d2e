//! `parent-writes`: a parent writes its memory again and again, before and after it created a
//! process.

use serde_json::json;

use odfork_samples::samples::{Recording, Sample};

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{Image, Kernel, Null, Plain, Thp};
use crate::plan::{params, size_words, Ask, Config, Effort, Metric, Op, Plan, Reading, MIB};
use crate::tables;
use crate::workload::protocol::{Command, Via};
use crate::workload::PAGE;

pub static SUITE: Suite = Suite {
    name: "parent-writes",
    row: "M06",
    question: "How much slower does the parent write after a fork whose child is gone?",
    published: "400 MB: 0.0066 s a round, 0.065 s the first after fork; no change with vfork or \
                huge pages",
    metrics: &["round"],
    params: &["bytes", "via", "phase", "turn"],
    configurations: &[Plain, Thp, Image, Kernel, Null],
    how: How::Subjects(Subjects { plans, seconds: Some([5.0, 60.0, 240.0]), tables }),
};

/// Turns before and after, as published.
const TURNS: u32 = 10;

fn plans(config: &Config) -> Vec<Plan> {
    // The published buffer: 100,000 pages.
    let size = if config.effort == Effort::Quick { 64 * MIB } else { 100_000 * PAGE as u64 };
    let mut plan = Plan::new(size_words(size), 1.0);
    for &configuration in &config.configurations {
        let subject = plan.subject(configuration.subject(size));
        for via in Via::ALL {
            let params = params(&[("bytes", json!(size)), ("via", json!(via.word()))]);
            let op = Op::Ask(Ask {
                command: Command::Rounds { via, rounds: TURNS },
                metrics: turns(),
                fold: configuration == Image,
                watch: false,
            });
            plan.point(configuration, subject, params, op);
        }
    }
    vec![plan]
}

fn turns() -> Vec<Metric> {
    let turn = |phase: &'static str, turn: u32| Metric {
        label: format!("{phase}-{turn}"),
        extra: vec![("phase", json!(phase)), ("turn", json!(turn))],
        ..Metric::new("round", Reading::Ns)
    };
    let before = (1..=TURNS).map(|n| turn("before", n));
    before.chain((1..=TURNS).map(|n| turn("after", n))).collect()
}

/// A series of turns repeats itself: the last before, the first two and the last after.
fn tables(suite: &Suite, recording: &Recording) -> String {
    let is_shown = |sample: &&Sample| match sample.word("phase") {
        "before" => sample.number("turn") == 10.0,
        _ => [1.0, 2.0, 10.0].contains(&sample.number("turn")),
    };
    tables::table(suite, recording.samples.iter().filter(is_shown))
}
