//! Without an argument: what fork costs on this machine by size, and which processes pay most.
//!
//! Reads only what anybody may read of all processes, and the page-table sums of the largest few.
//! Nothing is observed.

use serde::{Deserialize, Serialize};

use super::price::{Prediction, Prices};
use super::smaps::Entries;
use super::subject::Memory;
use odfork_proc::process::{self, Pid};
use odfork_proc::status::{Rollup, Status};
use odfork_samples::environment::Environment;

/// Processes listed.
const LISTED: usize = 10;
/// Below this a process is not worth a line.
const WORTH: u64 = 10 << 20;
const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    pub schema: u32,
    pub version: &'static str,
    pub kind: &'static str,
    pub summary: String,
    pub environment: Environment,
    pub prices: Prices,
    pub sizes: Vec<Size>,
    pub processes: Vec<Process>,
    pub remarks: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Size {
    pub bytes: u64,
    pub predictions: [Prediction; 4],
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Process {
    pub pid: Pid,
    pub name: String,
    pub memory: Memory,
    pub fork_ns: f64,
}

pub fn inspect((prices, remark): (Prices, Option<String>)) -> Machine {
    let environment = Environment::observe();
    let sizes = steps(environment.memory_bytes)
        .into_iter()
        .map(|bytes| {
            let entries = Entries::of(bytes, 0, 0);
            Size { bytes, predictions: prices.predict(entries, Entries::default()) }
        })
        .collect();
    Machine {
        schema: super::inspection::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        kind: "machine",
        summary: environment.summary(),
        environment,
        sizes,
        processes: largest(&prices),
        prices,
        remarks: remark.into_iter().collect(),
    }
}

/// 100 MB, then doublings of 1 GB, up to the memory of the machine.
fn steps(memory: u64) -> Vec<u64> {
    let doublings = (0..20).map(|power| GB << power).take_while(|size| *size < memory);
    let mut sizes: Vec<u64> = [100 * MB, 500 * MB].into_iter().chain(doublings).collect();
    sizes.retain(|size| *size < memory);
    sizes.push(memory / MB * MB);
    sizes
}

fn largest(prices: &Prices) -> Vec<Process> {
    let own = std::process::id() as Pid;
    let mut found: Vec<_> = process::all()
        .into_iter()
        .filter(|pid| *pid != own)
        .filter_map(|pid| Some((pid, Status::of_process(pid)?)))
        .filter(|(_, status)| status.anonymous + status.swapped >= WORTH)
        .collect();
    found.sort_by_key(|(_, status)| std::cmp::Reverse(status.anonymous + status.swapped));
    found
        .into_iter()
        .take(LISTED)
        .map(|(pid, status)| {
            let memory = Memory::sum(&status, Rollup::of_process(pid), None);
            let fork_ns = prices.now_ns(memory.entries);
            Process { pid, name: status.name, memory, fork_ns }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_with_the_memory_of_the_machine() {
        assert_eq!(steps(5 * GB), [100 * MB, 500 * MB, GB, 2 * GB, 4 * GB, 5 * GB]);
        assert_eq!(steps(GB), [100 * MB, 500 * MB, GB]);
        assert_eq!(steps(64 * MB), [64 * MB]);
    }

    #[test]
    fn a_process_with_memory_is_listed_by_its_anonymous_part() {
        let ballast = vec![1u8; 40 << 20];
        let found = largest(&Prices::built_in());
        assert!(found.len() <= LISTED);
        let sizes: Vec<u64> = found.iter().map(|p| p.memory.anonymous + p.memory.swapped).collect();
        assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
        drop(ballast);
    }
}
