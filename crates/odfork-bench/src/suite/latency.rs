//! `latency`: the call of fork as memory grows, alone and three parents at once.

use serde_json::json;

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{Hugetlb, Image, Kernel, Null, Plain, Thp};
use crate::configuration::Subject;
use crate::plan::{ns, params, size_words, Config, Effort, Op, Plan, GIB, MIB};
use crate::runner::Point;
use crate::tables;
use crate::workload::protocol::Command;

pub static SUITE: Suite = Suite {
    name: "latency",
    row: "M08",
    question: "How long does the call of fork take as memory grows, alone and three at once?",
    published:
        "1 GB: 6.54 ms against 0.10 ms; 50 GB: 253.9 against 0.94 ms; three at once 22.4 ms \
                at 1 GB; huge pages 0.17 ms",
    metrics: &["fork", "fork-cpu", "total"],
    params: &["bytes", "processes"],
    configurations: &[Plain, Thp, Hugetlb, Image, Kernel, Null],
    how: How::Subjects(Subjects {
        plans,
        seconds: Some([6.0, 32.0, 600.0]),
        tables: tables::medians,
    }),
};

fn plans(config: &Config) -> Vec<Plan> {
    let step = GIB / 2;
    // As far as memory goes when every configuration holds the size at once.
    let holders = config.configurations.iter().filter(|&&one| one != Null).count().max(1) as u64;
    let most = config.available.saturating_sub(GIB) * 16 / 17 / holders;
    let (alone, together): (Vec<u64>, Vec<u64>) = match config.effort {
        Effort::Quick => (vec![64 * MIB, 256 * MIB], vec![64 * MIB]),
        Effort::Default => (vec![step, GIB, 2 * GIB, 4 * GIB], vec![GIB]),
        Effort::Full => {
            let steps = |most: u64| (1..=most / step).map(|n| n * step).collect();
            (steps(most), steps(most / 3))
        }
    };
    let one = alone.into_iter().map(|size| plan(config, size, 1));
    one.chain(together.into_iter().map(|size| plan(config, size, 3))).collect()
}

fn plan(config: &Config, size: u64, processes: u64) -> Plan {
    let title = match processes {
        1 => size_words(size),
        _ => format!("{processes} x {}", size_words(size)),
    };
    let mut plan = Plan::new(title, 1.0 + size as f64 / GIB as f64);
    // Filling memory takes most of the time: the pool of huge pages only where it was published.
    let is_left_out =
        |one| config.effort != Effort::Full && one == Hugetlb && (processes > 1 || size > GIB);
    for &configuration in config.configurations.iter().filter(|&&one| !is_left_out(one)) {
        let subject = configuration.subject(size);
        // Three on one processor would only wait for one another.
        let subject = Subject { pinned: processes == 1, ..subject };
        let targets = (0..processes).map(|_| plan.subject(subject.clone())).collect();
        let calls = if size > GIB { 1 } else { 3 };
        plan.points().push(Point {
            engine: configuration.word(),
            targets,
            params: params(&[("bytes", json!(size)), ("processes", json!(processes))]),
            op: Op::ask(Command::Fork { calls }, ns(&["fork", "fork-cpu", "total"])),
        });
    }
    plan
}
