//! `grid`: many forks, by heap size and by the share of it that the child writes.

use std::collections::BTreeMap;

use serde_json::json;

use odfork_samples::published::GRID_BYTES;
use odfork_samples::samples::{Recording, Sample};

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{self, Image, Kernel, Null, Plain, Thp};
use crate::plan::{params, Config, Effort, Metric, Op, Plan, Reading};
use crate::tables;
use crate::workload::protocol::Command;
use crate::workload::PAGE;

pub static SUITE: Suite = Suite {
    name: "grid",
    row: "M01",
    question: "How does the time of many forks depend on heap size and on the share the child \
               writes?",
    published: "392 points; 505.82 s for 1000 forks of 316,228 bytes all written (3B2); lines in \
                six regressions",
    metrics: &["real", "user", "sys"],
    params: &["scale", "forks", "bytes", "frac"],
    configurations: &[Plain, Thp, Image, Kernel, Null],
    how: How::Subjects(Subjects { plans, seconds: Some([24.0, 105.0, 900.0]), tables }),
};

/// Shares written and numbers of forks of the published grid.
const FRACS: [u32; 7] = [0, 100, 300, 500, 700, 900, 1000];
const FRACS_LARGE: [u32; 3] = [0, 100, 500];
const FORKS_1988: [u32; 8] = [0, 1, 3, 10, 32, 100, 316, 1000];
/// The same steps, a thousand times and more.
const HEAPS_MODERN: [u64; 8] =
    [0, 1_000_000, 3_162_278, 10_000_000, 31_622_777, 100_000_000, 316_227_766, 1_000_000_000];
const HEAP_FULL: u64 = 3_162_277_660;

fn plans(config: &Config) -> Vec<Plan> {
    let forks: &[u32] = if config.effort == Effort::Quick { &FORKS_1988[..6] } else { &FORKS_1988 };
    let mut classic = Plan::new("1988 scale".into(), 1.0);
    for heap in GRID_BYTES.map(u64::from) {
        for &configuration in &classic_configurations(config) {
            add_points(&mut classic, configuration, ("1988", heap), (forks, &FRACS));
        }
    }
    // All heaps in one group: were they measured one after the other, the machine's drift would
    // look like size.
    let mut modern = Plan::new("modern scale".into(), 1.3);
    let heaps = match config.effort {
        Effort::Quick => &HEAPS_MODERN[..5],
        _ => &HEAPS_MODERN[..],
    };
    for &heap in heaps.iter().chain([HEAP_FULL].iter().filter(|_| config.effort == Effort::Full)) {
        modern.children = heap;
        // Writing a gigabyte takes seconds: a few shares of it have to do unless there is time.
        let fracs = if heap > 500_000_000 && config.effort != Effort::Full {
            &FRACS_LARGE[..]
        } else {
            &FRACS
        };
        for &configuration in &config.configurations {
            add_points(&mut modern, configuration, ("modern", heap), (modern_forks(heap), fracs));
        }
    }
    modern.budget().repeats = 5;
    for plan in [&mut classic, &mut modern] {
        plan.budget().warmups = 0;
    }
    vec![classic, modern]
}

/// No heap of 1988 has room for a huge page, and none is worth freezing: without time for all,
/// plain stands for them.
fn classic_configurations(config: &Config) -> Vec<Configuration> {
    let mut all = config.configurations.clone();
    all.retain(|&one| one != Thp);
    if config.effort == Effort::Default && all.contains(&Plain) {
        all.retain(|&one| one != Image);
    }
    all
}

/// One fork, and for small heaps as many as make a sample long enough to be told from noise.
fn modern_forks(heap: u64) -> &'static [u32] {
    match heap {
        0..=20_000_000 => &[1, 10],
        20_000_001..=50_000_000 => &[1, 3],
        _ => &[1],
    }
}

fn add_points(
    plan: &mut Plan,
    configuration: Configuration,
    (scale, heap): (&str, u64),
    (forks, fracs): (&[u32], &[u32]),
) {
    let subject = plan.subject(configuration.subject(heap.next_multiple_of(PAGE as u64)));
    for &forks in forks {
        for &permille in fracs {
            let params = params(&[
                ("scale", json!(scale)),
                ("forks", json!(forks)),
                ("bytes", json!(heap)),
                ("frac", json!(f64::from(permille) / 1000.0)),
            ]);
            let metrics = ["real", "user", "sys"].map(|name| Metric::new(name, Reading::Seconds));
            let op = Op::ask(Command::Grid { forks, permille }, metrics.to_vec());
            plan.point(configuration, subject, params, op);
        }
    }
}

/// Of hundreds of points: the largest number of forks of each heap, for a few shares.
fn tables(suite: &Suite, recording: &Recording) -> String {
    let heap =
        |sample: &Sample| (sample.word("scale").to_owned(), sample.number("bytes").to_bits());
    let mut most = BTreeMap::new();
    for sample in recording.samples.iter().filter(|sample| sample.engine != Null.word()) {
        let forks = most.entry(heap(sample)).or_insert(0.0_f64);
        *forks = forks.max(sample.number("forks"));
    }
    let is_shown = |sample: &&Sample| {
        most.get(&heap(sample)) == Some(&sample.number("forks"))
            && [0.1, 0.5, 0.9].contains(&sample.number("frac"))
    };
    tables::table(suite, recording.samples.iter().filter(is_shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_the_published_392_points_for_each_configuration() {
        let configurations = Configuration::ALL.to_vec();
        let effort = Effort::Full;
        let only = Vec::new();
        let plans = plans(&Config { configurations, effort, available: 22 << 30, only });
        let points = || plans.iter().flat_map(|plan| &plan.group.blocks[0].points);
        let count = |configuration: Configuration| {
            let of = points().filter(|point| point.engine == configuration.word());
            of.filter(|point| point.params["scale"] == "1988").count()
        };
        assert_eq!((count(Plain), count(Image)), (392, 392));
    }
}
