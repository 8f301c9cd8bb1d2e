//! `access`: fork, then the parent reads and writes a share of its memory.

use serde_json::json;

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{Image, Kernel, Null, Plain, Thp};
use crate::plan::{ns, params, size_words, Ask, Config, Effort, Op, Plan, GIB, MIB};
use crate::tables;
use crate::workload::protocol::Command;

pub static SUITE: Suite = Suite {
    name: "access",
    row: "M08",
    question: "What is left of the gain when the parent then reads and writes its memory?",
    published: "99 % less with no access, 8 % (all reads) to 4 % (all writes) less when all of it \
                is accessed",
    metrics: &["total", "fork", "fold"],
    params: &["bytes", "read", "share"],
    configurations: &[Plain, Thp, Image, Kernel, Null],
    how: How::Subjects(Subjects {
        plans,
        seconds: Some([8.0, 85.0, 900.0]),
        tables: tables::medians,
    }),
};

fn plans(config: &Config) -> Vec<Plan> {
    let size = match config.effort {
        Effort::Quick => 64 * MIB,
        Effort::Default => 512 * MIB,
        Effort::Full => 4 * GIB,
    };
    let shares: &[u32] = match config.effort {
        Effort::Full => &[0, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000],
        _ => &[0, 100, 250, 500, 1000],
    };
    let mut plan = Plan::new(size_words(size), 1.0);
    plan.budget().warmups = 0;
    plan.children = size;
    for &configuration in &config.configurations {
        let subject = plan.subject(configuration.subject(size));
        for read in [1000, 750, 500, 250, 0] {
            for &share in shares {
                let params = params(&[
                    ("bytes", json!(size)),
                    ("read", json!(f64::from(read) / 1000.0)),
                    ("share", json!(f64::from(share) / 1000.0)),
                ]);
                let op = Op::Ask(Ask {
                    command: Command::Touch { read_permille: read, share_permille: share },
                    metrics: ns(&["total", "fork"]),
                    fold: configuration == Image,
                    watch: false,
                });
                plan.point(configuration, subject, params, op);
            }
        }
    }
    vec![plan]
}
