//! The list of experiments: name, row of the mission, question, and which plan makes its groups. Data.

use serde_json::{json, Value};

use crate::bench::engine::Engine::{self, Hugetlb, Image, Kernel, Null, Plain, Thp};
use crate::bench::trial::{Brief, Effort, Group};
use crate::bench::{exec, plans};

/// One experiment of `odfork bench`.
pub struct Entry {
    pub name: &'static str,
    pub row: &'static str,
    pub question: &'static str,
    pub published: &'static str,
    pub metrics: &'static [&'static str],
    pub params: &'static [&'static str],
    /// Engines it can compare, in the order they are shown.
    pub engines: &'static [Engine],
    pub groups: fn(&Brief) -> Vec<Group>,
    /// Seconds of measuring: quick, default, full (loading memory comes on top).
    pub seconds: [f64; 3],
}

const FORKERS: &[Engine] = &[Plain, Thp, Image, Kernel, Null];

pub const EXPERIMENTS: [Entry; 8] = [
    Entry {
        name: "grid",
        row: "M01",
        question: "How does the time of many forks depend on heap size and on the share the child writes?",
        published: "392 points; 505.82 s for 1000 forks of 316,228 bytes all written (3B2); lines in six regressions",
        metrics: &["real", "user", "sys"],
        params: &["scale", "forks", "bytes", "frac"],
        engines: FORKERS,
        groups: plans::grid,
        seconds: [24.0, 105.0, 900.0],
    },
    Entry {
        name: "latency",
        row: "M08",
        question: "How long does the call of fork take as memory grows, alone and three at once?",
        published: "1 GB: 6.54 ms against 0.10 ms; 50 GB: 253.9 against 0.94 ms; three at once 22.4 ms at 1 GB; huge pages 0.17 ms",
        metrics: &["fork", "fork-cpu", "total"],
        params: &["bytes", "processes"],
        engines: &[Plain, Thp, Hugetlb, Image, Kernel, Null],
        groups: plans::latency,
        seconds: [6.0, 32.0, 600.0],
    },
    Entry {
        name: "fault",
        row: "M08",
        question: "What does the worst first write of a child cost?",
        published: "0.0023 ms (4 KB pages), 0.1984 ms (huge pages), 0.0122 ms (on-demand-fork)",
        metrics: &["fault"],
        params: &["bytes"],
        engines: &[Plain, Thp, Hugetlb, Image, Kernel, Null],
        groups: plans::fault,
        seconds: [4.0, 40.0, 120.0],
    },
    Entry {
        name: "access",
        row: "M08",
        question: "What is left of the gain when the parent then reads and writes its memory?",
        published: "99 % less with no access, 8 % (all reads) to 4 % (all writes) less when all of it is accessed",
        metrics: &["total", "fork", "fold"],
        params: &["bytes", "read", "share"],
        engines: FORKERS,
        groups: plans::access,
        seconds: [8.0, 85.0, 900.0],
    },
    Entry {
        name: "profile",
        row: "M08",
        question: "Where does the time of fork go?",
        published: "63 % compound_head, 29 % reference counts, of copy_one_pte",
        metrics: &["share", "count"],
        params: &["bytes", "source", "name"],
        engines: &[Plain, Thp, Image, Kernel],
        groups: plans::nothing,
        seconds: [4.0, 30.0, 120.0],
    },
    Entry {
        name: "parent-writes",
        row: "M06",
        question: "How much slower does the parent write after a fork whose child is gone?",
        published: "400 MB: 0.0066 s a round, 0.065 s the first after fork; no change with vfork or huge pages",
        metrics: &["round"],
        params: &["bytes", "via", "phase", "turn"],
        engines: FORKERS,
        groups: plans::parent_writes,
        seconds: [5.0, 60.0, 240.0],
    },
    Entry {
        name: "exec",
        row: "M15",
        question: "What does starting another program cost, by every way there is?",
        published: "20 MB used: 21.60 s with fork, 1.53 s with vfork, for a few thousand programs",
        metrics: &["each", "user", "sys"],
        params: &["allocated", "used", "method", "actions"],
        engines: &[Plain, Image, Kernel, Null],
        groups: exec::groups,
        seconds: [12.0, 100.0, 600.0],
    },
    Entry {
        name: "copy-rate",
        row: "M02",
        question: "How fast is memory copied, and how near do page faults come to it?",
        published: "copy 810,841 and 5,270,467 bytes/s; service 667,161 and 4,237,288 bytes/s; ratios 0.823 and 0.804",
        metrics: &["copy", "service"],
        params: &["bytes"],
        engines: &[Plain, Thp, Image, Kernel],
        groups: plans::copy_rate,
        seconds: [4.0, 40.0, 120.0],
    },
];

impl Entry {
    pub fn find(name: &str) -> Option<&'static Entry> {
        EXPERIMENTS.iter().find(|entry| entry.name == name)
    }

    pub fn seconds(&self, effort: Effort) -> f64 {
        self.seconds[effort as usize]
    }

    pub fn json(&self) -> Value {
        let engines: Vec<&str> = self.engines.iter().map(|engine| engine.word()).collect();
        json!({
            "name": self.name, "row": self.row, "question": self.question,
            "published": self.published, "metrics": self.metrics, "params": self.params,
            "engines": engines,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::engine::ALL;

    fn brief(effort: Effort) -> Brief {
        Brief { engines: ALL.to_vec(), effort, available: 22 << 30 }
    }

    #[test]
    fn every_plan_names_the_metrics_and_params_of_its_entry() {
        for entry in &EXPERIMENTS {
            for group in (entry.groups)(&brief(Effort::Default)) {
                for cell in &group.cells {
                    let extra = cell.metrics.iter().flat_map(|metric| &metric.extra);
                    let mut names: Vec<&str> = cell
                        .params
                        .keys()
                        .map(String::as_str)
                        .chain(extra.map(|(name, _)| *name))
                        .collect();
                    names.sort_unstable();
                    names.dedup();
                    let mut expected = entry.params.to_vec();
                    expected.sort_unstable();
                    assert_eq!(names, expected, "{}", entry.name);
                    for metric in &cell.metrics {
                        assert!(entry.metrics.contains(&metric.name), "{}", entry.name);
                        let known = cell.command.labels().contains(&metric.label.as_str());
                        assert!(known || !metric.extra.is_empty(), "{metric:?}");
                    }
                    assert!(cell.subjects.iter().all(|&i| i < group.subjects.len()));
                }
            }
        }
    }

    #[test]
    fn the_grid_has_the_published_392_points_for_each_engine() {
        let groups = plans::grid(&brief(Effort::Full));
        let count = |engine: Engine| {
            let cells = groups.iter().flat_map(|group| &group.cells);
            cells.filter(|cell| cell.engine == engine && cell.params["scale"] == "1988").count()
        };
        assert_eq!((count(Plain), count(Image)), (392, 392));
    }

    #[test]
    fn quick_is_small() {
        for entry in &EXPERIMENTS {
            for group in (entry.groups)(&brief(Effort::Quick)) {
                assert!(group.needs() < 3 << 30, "{}: {}", entry.name, group.title);
            }
            assert!(entry.seconds(Effort::Quick) < entry.seconds(Effort::Default));
            assert!(entry.seconds(Effort::Default) < 120.0);
        }
    }
}
