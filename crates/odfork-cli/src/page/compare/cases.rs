//! Every policy on every trace with memories from a tenth of its pages to nearly all.

use std::path::Path;
use std::sync::Arc;

use anyhow::{ensure, Result};
use odfork_policy::cost::Tally;
use odfork_policy::policy::Spec;
use odfork_policy::trace::{Batch, Summary};
use odfork_proc::interrupt;

use super::super::simulation::simulate_kept;
use super::super::source::Source;

/// Memory as a share of a trace's distinct pages.
pub const SHARES: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// Fixed partitions that claims C3 and C4 are about.
pub const FRACTIONS: [&str; 9] = ["0.1", "0.25", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "1"];
const SIZES: [&str; 10] = ["25", "50", "100", "200", "300", "400", "600", "800", "1200", "1600"];

const OTHERS: [&str; 14] = [
    "min",
    "lru",
    "clock",
    "clock:insert=0",
    "fifo",
    "rand:seed=1",
    "rand:seed=2",
    "rand:seed=3",
    "unix",
    "unix:advice=0",
    "unix:inventory=1",
    "sws:window=10000",
    "sws:window=100000",
    "pff:threshold=1000",
];

/// All fixed partitions, as policies.
pub fn partitions() -> impl Iterator<Item = String> {
    let fractions = FRACTIONS.iter().map(|share| format!("vms:fraction={share}"));
    fractions.chain(SIZES.iter().map(|size| format!("vms:size={size}")))
}

/// A trace in memory.
pub struct Trace {
    pub name: String,
    pub pieces: Vec<Arc<Batch>>,
    pub summary: Summary,
}

impl Trace {
    /// `None` after Ctrl-C.
    pub fn load(path: &str) -> Result<Option<Trace>> {
        let mut source = Source::open(path)?;
        let mut pieces = Vec::new();
        while let Some(piece) = source.next()? {
            pieces.push(Arc::new(piece));
        }
        ensure!(
            source.summary.pages() >= 20,
            "{path}: only {} distinct pages; a comparison needs 20",
            source.summary.pages()
        );
        let name = if path == "-" { "stdin".to_owned() } else { short(path) };
        Ok((!source.interrupted).then_some(Trace { name, pieces, summary: source.summary }))
    }

    pub fn has_marks(&self) -> bool {
        self.pieces.iter().any(|piece| !piece.marks.is_empty())
    }
}

/// `sort` of `/tmp/sort.trace.gz`.
fn short(path: &str) -> String {
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    name.split('.').next().unwrap_or(&name).to_owned()
}

/// What is known of a trace without its references.
pub struct About {
    pub name: String,
    pub references: u64,
    pub pages: u64,
    pub marked: bool,
}

/// Counts of all cases.
pub struct Results {
    pub traces: Vec<About>,
    policies: Vec<String>,
    /// By trace, policy and share.
    tallies: Vec<Vec<Vec<Tally>>>,
}

impl Results {
    /// `None` after Ctrl-C.
    pub fn simulate(traces: &[Trace]) -> Result<Option<Results>> {
        let policies: Vec<String> =
            OTHERS.iter().map(|&name| name.to_owned()).chain(partitions()).collect();
        let specs: Vec<Spec> =
            policies.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let mut results = Results { traces: Vec::new(), policies, tallies: Vec::new() };
        for trace in traces {
            eprintln!(
                "odfork page compare: {}: {} references",
                trace.name, trace.summary.references
            );
            let frames = frames(trace.summary.pages());
            let counts = simulate_kept(&trace.pieces, &specs, &frames)?.counts;
            if interrupt::asked() {
                return Ok(None);
            }
            let mut tallies = vec![vec![Tally::default(); frames.len()]; specs.len()];
            for count in counts {
                let at = frames.iter().position(|&frames| frames == count.frames);
                tallies[count.policy][at.unwrap_or(0)] = count.tally;
            }
            results.tallies.push(tallies);
            results.traces.push(About {
                name: trace.name.clone(),
                references: trace.summary.references,
                pages: trace.summary.pages(),
                marked: trace.has_marks(),
            });
        }
        Ok(Some(results))
    }

    /// Counts of a policy by its name here.
    pub fn of(&self, trace: usize, policy: &str, share: usize) -> &Tally {
        let at = self.policies.iter().position(|known| known == policy).unwrap_or(0);
        &self.tallies[trace][at][share]
    }

    /// The mean of three seeds.
    pub fn rand_faults(&self, trace: usize, share: usize) -> f64 {
        let seeds = ["rand:seed=1", "rand:seed=2", "rand:seed=3"];
        seeds.iter().map(|name| self.of(trace, name, share).faults as f64).sum::<f64>() / 3.0
    }

    /// All (trace, share).
    pub fn cases(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.traces.len()).flat_map(|trace| (0..SHARES.len()).map(move |share| (trace, share)))
    }

    /// "sort at 30 %".
    pub fn place(&self, (trace, share): (usize, usize)) -> String {
        format!("{} at {:.0} %", self.traces[trace].name, SHARES[share] * 100.0)
    }
}

pub fn frames(pages: u64) -> Vec<u32> {
    SHARES.iter().map(|share| ((pages as f64 * share) as u32).max(1)).collect()
}
