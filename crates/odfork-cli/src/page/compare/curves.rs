//! Plots and tables of the chapter, and its first sentences.

use odfork_policy::cost::RATIOS;
use odfork_report::study::{Curves, Grid};

use super::cases::{self, frames, Results, SHARES};
use super::claims::over_best;
use super::mix::{Together, POLICIES};

/// In the order of legends.
const SHOWN: [(&str, &str); 8] = [
    ("min", "MIN"),
    ("lru", "LRU"),
    ("clock", "CLOCK"),
    ("fifo", "FIFO"),
    ("vms:fraction=0.8", "VMS 0.8"),
    ("unix", "the paper's"),
    ("rand:seed=1", "RAND"),
    ("pff:threshold=1000", "PFF"),
];

/// A reclaim, measured on a machine of today (docs/paging-simulator.md).
const RECLAIM_US: f64 = 6.4;
const REFERENCE_US: f64 = 0.1;

pub fn intro(results: &Results) -> Vec<String> {
    vec![
        format!(
            "{} traces, memories of {:.0} to {:.0} % of their distinct pages, {} cases. Demand \
             paging from an empty memory; the first touch of every page is a fault. Cost = faults \
             × ratio + reclaims. The ratios: 2 (a page-in from compressed memory), 8.6 (from a \
             disk of today), 120 (the VAX).",
            results.traces.len(),
            SHARES[0] * 100.0,
            SHARES[SHARES.len() - 1] * 100.0,
            results.cases().count()
        ),
        "LRU and MIN cost no reclaims here because no machine without reference bits could run \
         them: they are yardsticks for faults. CLOCK is the plain one, whose hand moves at faults; \
         \"the paper's\" is the triggered clock with its free pool, in virtual time, the same code \
         the pager runs."
            .to_owned(),
    ]
}

pub fn plots(results: &Results) -> Vec<Curves> {
    let mut all = Vec::new();
    for (at, trace) in results.traces.iter().enumerate() {
        let name = &trace.name;
        let curve =
            |title: String, file: String, y: &str, value: &dyn Fn(&str, usize) -> f64| Curves {
                name: format!("paging-{}", file.replace(|c: char| !c.is_ascii_alphanumeric(), "-")),
                title,
                caption: format!(
                    "{name}: {} references to {} pages.",
                    trace.references, trace.pages
                ),
                x: "memory / distinct pages".into(),
                y: y.into(),
                series: SHOWN
                    .iter()
                    .map(|(policy, label)| {
                        let points = SHARES.iter().enumerate().map(|(s, &x)| (x, value(policy, s)));
                        ((*label).to_owned(), points.collect())
                    })
                    .collect(),
            };
        let faults = |policy: &str, s: usize| results.of(at, policy, s).faults as f64;
        all.push(curve(
            format!("{name}: page faults"),
            format!("{name}-faults"),
            "faults",
            &faults,
        ));
        for ratio in RATIOS {
            let cost = |policy: &str, s: usize| results.of(at, policy, s).cost(ratio, 0.0);
            all.push(curve(
                format!("{name}: cost, a fault as {ratio} reclaims"),
                format!("{name}-cost-{ratio}"),
                "cost in reclaims",
                &cost,
            ));
        }
    }
    all
}

fn grid(caption: &str, head: &[&str], words: usize, rows: Vec<Vec<String>>) -> Grid {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    Grid { caption: caption.into(), head, rows, words }
}

pub fn traces(results: &Results) -> Grid {
    let row = |trace: &cases::About| {
        let marked = if trace.marked { "yes" } else { "no" };
        vec![
            trace.name.clone(),
            trace.references.to_string(),
            trace.pages.to_string(),
            marked.into(),
        ]
    };
    let head = ["trace", "references", "distinct pages", "marked phases"];
    grid("Traces.", &head, 1, results.traces.iter().map(row).collect())
}

/// What sampling costs (the paper: 400 pages in a window of 100 ms at 250 us each are all of the
/// processor).
pub fn sampling(results: &Results) -> Grid {
    let middle = SHARES.len() / 2;
    let mut rows = Vec::new();
    for (at, trace) in results.traces.iter().enumerate() {
        for policy in ["sws:window=10000", "sws:window=100000", "pff:threshold=1000", "clock"] {
            let tally = results.of(at, policy, middle);
            let pages = tally.sampled as f64 / tally.samples.max(1) as f64;
            let busy =
                tally.reclaims as f64 * RECLAIM_US / (trace.references as f64 * REFERENCE_US);
            // At worst all pages of a sample are reclaimed once a window, in a tenth of a
            // processor.
            let window = pages * RECLAIM_US / 0.1 / 1000.0;
            rows.push(vec![
                trace.name.clone(),
                policy.to_owned(),
                tally.faults.to_string(),
                tally.reclaims.to_string(),
                format!("{pages:.0}"),
                format!("{:.2} %", busy * 100.0),
                if tally.samples > 0 { format!("{window:.0} ms") } else { "–".into() },
            ]);
        }
    }
    let caption = format!(
        "What local policies pay for reference bits, memory {:.0} % of the pages. Overhead: \
         reclaims of {RECLAIM_US} us each, against {REFERENCE_US} us a reference (too short for \
         traces recorded with a window, so too high for these). Last column: the window in which a \
         set of that size can be sampled within a tenth of a processor.",
        SHARES[middle] * 100.0
    );
    let head = [
        "trace",
        "policy",
        "faults",
        "reclaims",
        "pages per sample",
        "overhead",
        "shortest window",
    ];
    grid(&caption, &head, 2, rows)
}

pub fn together(all: &[Together]) -> Grid {
    let mut rows = Vec::new();
    for mixed in all {
        for (policy, tally) in POLICIES.iter().zip(&mixed.tallies) {
            rows.push(vec![
                mixed.name.to_owned(),
                (*policy).to_owned(),
                mixed.frames.to_string(),
                tally.faults.to_string(),
                tally.reclaims.to_string(),
                format!("{:.0}", tally.cost(RATIOS[1], 0.0)),
            ]);
        }
    }
    let head = ["activity", "policy", "frames", "faults", "reclaims", "cost 8.6:1"];
    grid("All traces together in a quarter of their pages.", &head, 2, rows)
}

/// Cost of every fixed partition and of the clock over the best partition of each case.
fn partition_rows(results: &Results) -> Vec<Vec<String>> {
    let clocks = ["clock", "clock:insert=0", "unix", "fifo"].iter().map(|&policy| policy.into());
    let row = |policy: String| {
        let cells = RATIOS.map(|ratio| {
            let over = over_best(results, &policy, ratio);
            format!("{:.3} / {:.2}", over.mean, over.worst)
        });
        std::iter::once(policy).chain(cells).collect()
    };
    clocks.chain(cases::partitions()).map(row).collect()
}

pub fn partitions(results: &Results) -> Grid {
    let smallest = results.traces.iter().map(|trace| frames(trace.pages)[0]).min().unwrap_or(0);
    let largest = results.traces.iter().map(|trace| trace.pages).max().unwrap_or(0);
    let caption = format!(
        "Cost over the best fixed partition of the same case, mean / worst. A size larger than the \
         memory is all of it (memories here have {smallest} to {largest} frames)."
    );
    grid(&caption, &["policy", "2:1", "8.6:1", "120:1"], 1, partition_rows(results))
}
