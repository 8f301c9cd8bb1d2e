//! One backend in one round: set up, start the workload, ask for its acts one by one, put everything back.
//!
//! Steps: 1. swap, 2. group, 3. process, 4. acts (with the pager's counters before and after each), 5. the group's peak and
//! kills, 6. back. The order in which things are put back is the reverse: process, group, swap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::acts::Act;
use super::backend::{plain, Backend, Site};
use super::program::Answer;
use super::region::write_file;
use crate::link::{Link, Loss};
use crate::peers::group::{Bound, Group, Place};
use crate::peers::ledger::{Debt, Shared, Undo};
use crate::peers::swap::Swap;
use crate::peers::tasks;

/// One number: metric, unit, value.
pub type Number = (&'static str, &'static str, f64);

/// What a trial gave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By act; what belongs to all of it has none.
    pub numbers: Vec<(Option<Act>, Number)>,
    pub notes: Vec<String>,
    /// Why it is no use to try this backend again.
    pub refused: Option<String>,
    /// Wrong content: the run fails in the end.
    pub wrong: Option<String>,
    pub interrupted: bool,
}

/// Beyond the act's own limit: filling and reading everything once more, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(240);
/// Swap is larger than what lies on it.
const SPARE: u64 = 4;
const NS: f64 = 1e9;

pub struct Trial<'a> {
    pub site: &'a Site,
    pub place: &'a Result<Place, String>,
    pub ledger: &'a Shared,
    pub backend: Backend,
    pub seed: u64,
}

impl Trial<'_> {
    pub fn run(&self) -> Outcome {
        let mut outcome = Outcome::default();
        if let Err(why) = self.attempt(&mut outcome) {
            outcome.refused = Some(why);
        }
        outcome
    }

    fn attempt(&self, outcome: &mut Outcome) -> Result<(), String> {
        let swap_bytes = self.site.region + self.site.region / SPARE;
        let _swap = match self.backend {
            Backend::SwapFile => Some(Swap::on_file(self.ledger, &self.site.store, swap_bytes)?),
            Backend::Zram => Some(Swap::on_zram(self.ledger, swap_bytes)?),
            _ => None,
        };
        let _file = self.mapped_file()?;
        let group = self.group()?;
        let mut command = self.backend.command(self.site, self.seed);
        if let Some(group) = &group {
            group.enter(&mut command)?;
        }
        let begin = Instant::now();
        let mut link = Link::spawn(&mut command).map_err(|error| format!("{error:#}"))?;
        let ended = self.acts(&mut link, group.as_ref(), outcome);
        if let Some(group) = &group {
            outcome
                .numbers
                .extend(group.peak().map(|peak| (None, ("memory", "bytes", peak as f64))));
            let kills = group.kills();
            outcome.numbers.push((None, ("killed", "count", kills as f64)));
            if kills > 0 {
                outcome.notes.push(format!(
                    "{}: killed after {:.0} s: no memory left in its group",
                    self.backend.word(),
                    begin.elapsed().as_secs_f64()
                ));
                return Ok(());
            }
        }
        match ended {
            Ok(()) => Ok(()),
            Err(Loss::Interrupted) => {
                outcome.interrupted = true;
                Ok(())
            }
            Err(loss) => Err(loss.to_string()),
        }
    }

    /// The file it maps; written here, so that nobody's group is charged for it.
    fn mapped_file(&self) -> Result<Option<Debt>, String> {
        if !self.backend.maps_file() {
            return Ok(None);
        }
        let path = self.backend.file(self.site);
        let debt = self.ledger.owe(Undo::Unlink(path.clone()));
        write_file(&path, self.site.region).map_err(|error| format!("{error:#}"))?;
        Ok(Some(debt))
    }

    /// None: nobody needs it, and there is none.
    fn group(&self) -> Result<Option<Group>, String> {
        let limit = self.backend.group_limit(self.site);
        match self.place {
            Ok(place) => {
                let bound = limit.map_or(Bound::None, Bound::Kill);
                place.make(self.ledger, self.backend.word(), bound).map(Some)
            }
            Err(why) if limit.is_some() => Err(why.clone()),
            Err(_) => Ok(None),
        }
    }

    fn acts(
        &self,
        link: &mut Link,
        group: Option<&Group>,
        outcome: &mut Outcome,
    ) -> Result<(), Loss> {
        for act in self.backend.acts() {
            let before = Counters::read(self, link.pid(), group);
            link.send(&act.word())?;
            let line = link.receive(self.site.limit + PATIENCE)?;
            let answer: Answer = serde_json::from_str(&line)
                .map_err(|_| Loss::Ended(format!("it said {line:?} instead of an answer")))?;
            if let Some(page) = answer.wrong {
                outcome.wrong = Some(format!(
                    "{}, {}: wrong content of page {page}",
                    self.backend.word(),
                    act.word()
                ));
                return Ok(());
            }
            if let Some(why) = answer.unavailable {
                outcome.notes.push(format!("{}: {why}", self.backend.word()));
                continue;
            }
            if act == Act::Fill {
                if let Err(why) = self.is_paged() {
                    outcome.wrong = Some(why);
                    return Ok(());
                }
            }
            let after = Counters::read(self, link.pid(), group);
            let numbers = numbers(self.backend, act, &answer, &after.since(&before));
            outcome.numbers.extend(numbers.into_iter().map(|number| (Some(act), number)));
        }
        Ok(())
    }

    /// A pager that lets everything stay in memory would win every race.
    fn is_paged(&self) -> Result<(), String> {
        if !self.backend.is_pager() {
            return Ok(());
        }
        let status = self.status().unwrap_or_default();
        let programs = status["programs"].as_array().cloned().unwrap_or_default();
        let pages =
            |name: &str| programs.iter().filter_map(|program| program[name].as_u64()).sum::<u64>();
        let (mapped, held) = (pages("mapped"), pages("resident") + pages("reclaimable"));
        let (wanted, most) = (self.site.region >> 12, self.site.resident >> 12);
        if mapped >= wanted && held <= most {
            return Ok(());
        }
        Err(format!(
            "{}: not paged: {mapped} pages known of {wanted}, {held} in memory, {most} allowed",
            self.backend.word()
        ))
    }

    fn status(&self) -> Option<Value> {
        let mut command = plain(&self.site.program);
        command
            .args(["page", "status", "--json", "--socket"])
            .arg(self.backend.socket(self.site, self.seed));
        let output = command.output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }
}

/// Counts that grow, of pager and processes.
#[derive(Debug, Default)]
struct Counters {
    at: Option<Instant>,
    values: BTreeMap<&'static str, u64>,
}

/// Of `odfork page status --json`.
const COUNTS: [(&str, &str); 6] = [
    ("page-ins", "/totals/page_ins"),
    ("page-outs", "/totals/page_outs"),
    ("prefetched", "/totals/prefetched"),
    ("scanned", "/clock/scanned"),
    ("reclaims-loop", "/clock/reclaims_loop"),
    ("reclaims-pool", "/clock/reclaims_pool"),
];

impl Counters {
    fn read(trial: &Trial, workload: u32, group: Option<&Group>) -> Counters {
        let mut values = BTreeMap::new();
        if trial.backend.is_pager() {
            let status = trial.status().unwrap_or_default();
            for (name, path) in COUNTS {
                values.extend(
                    status.pointer(path).and_then(Value::as_u64).map(|count| (name, count)),
                );
            }
            // All but the thread that works: daemon, supervisor, agent.
            let processes = group.map(Group::processes).unwrap_or_default();
            let cpu = processes.iter().map(|&pid| tasks::cpu_ns(pid, pid == workload));
            values.insert("pager-cpu", cpu.sum());
        }
        Counters { at: Some(Instant::now()), values }
    }

    /// What happened since; a count that is not in both is left out.
    fn since(&self, before: &Counters) -> BTreeMap<&'static str, u64> {
        let pairs = self.values.iter().filter_map(|(name, after)| {
            Some((*name, after.saturating_sub(*before.values.get(name)?)))
        });
        let time = self.at.zip(before.at).map(|(after, before)| (after - before).as_nanos() as u64);
        pairs.chain(time.map(|ns| ("time", ns))).collect()
    }
}

/// The numbers of one act.
fn numbers(
    backend: Backend,
    act: Act,
    answer: &Answer,
    counts: &BTreeMap<&'static str, u64>,
) -> Vec<Number> {
    let mut numbers: Vec<Number> = Vec::new();
    let accesses = answer.accesses.max(1) as f64;
    let count = |name: &str| counts.get(name).map(|&count| count as f64);
    if act == Act::Settle {
        return numbers;
    }
    if matches!(act, Act::Reclaim | Act::Continue) {
        // Few slow accesses are noise of the machine, not faults.
        if answer.slow > 100 {
            numbers.push((
                "reclaim",
                "ns",
                if act == Act::Continue { answer.p50 } else { answer.slow_p50 },
            ));
            numbers.push((
                "reclaim-p99",
                "ns",
                if act == Act::Continue { answer.p99 } else { answer.slow_p99 },
            ));
        }
        if act == Act::Continue {
            numbers.push(("reclaim-cpu", "ns", answer.cpu_ns as f64 / accesses));
        }
        if let (Some(cpu), Some(time)) = (count("pager-cpu"), count("time")) {
            // The faulting thread's own part of a reclaim is at most the reclaim: so this is at most too much.
            let faulting = answer.slow as f64 * answer.slow_p50;
            numbers.push(("simulation-cpu", "share", (cpu + faulting) / time));
            numbers.push((
                "reclaim-rate",
                "1/s",
                answer.slow as f64 / (answer.ns.max(1) as f64 / NS),
            ));
        }
        return numbers;
    }
    numbers.push(("rate", "1/s", answer.rate()));
    if answer.p50 > 0.0 {
        numbers.push(("p50", "ns", answer.p50));
        numbers.push(("p99", "ns", answer.p99));
    }
    if answer.slow > 0 && answer.p50 > 0.0 {
        numbers.push(("fault-p50", "ns", answer.slow_p50));
        numbers.push(("fault-p99", "ns", answer.slow_p99));
    }
    let major = match backend {
        Backend::SwapFile | Backend::Zram | Backend::Mmap => Some(answer.major as f64),
        // umap tells nobody what it reads.
        Backend::Umap4K | Backend::Umap64K | Backend::Bare => None,
        _ => count("page-ins"),
    };
    numbers.extend(major.map(|major| ("major", "share", major / accesses)));
    let reclaims =
        count("reclaims-loop").zip(count("reclaims-pool")).map(|(loops, pool)| loops + pool);
    numbers.extend(reclaims.map(|reclaims| ("reclaims", "share", reclaims / accesses)));
    numbers.extend(count("prefetched").map(|pages| ("prefetched", "share", pages / accesses)));
    numbers.extend(count("page-outs").map(|pages| ("page-outs", "share", pages / accesses)));
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(numbers: &[Number], name: &str) -> Option<f64> {
        numbers.iter().find(|number| number.0 == name).map(|number| number.2)
    }

    #[test]
    fn page_ins_are_the_kernels_count_or_the_pagers() {
        let answer = Answer {
            accesses: 1000,
            ns: 500_000_000,
            major: 250,
            p50: 400.0,
            p99: 9e4,
            slow: 260,
            slow_p50: 5e4,
            ..Answer::default()
        };
        let counts =
            BTreeMap::from([("page-ins", 270), ("reclaims-loop", 100), ("reclaims-pool", 40)]);
        let kernel = numbers(Backend::SwapFile, Act::Zipf, &answer, &BTreeMap::new());
        assert_eq!((find(&kernel, "rate"), find(&kernel, "major")), (Some(2000.0), Some(0.25)));
        assert_eq!(find(&kernel, "reclaims"), None);
        let ours = numbers(Backend::Pager, Act::Zipf, &answer, &counts);
        assert_eq!((find(&ours, "major"), find(&ours, "reclaims")), (Some(0.27), Some(0.14)));
        assert_eq!(find(&numbers(Backend::Umap4K, Act::Zipf, &answer, &counts), "major"), None);
    }

    #[test]
    fn a_reclaim_is_the_median_of_the_slow_reads_beside_the_bare_fault() {
        let answer = Answer {
            accesses: 10_000,
            ns: 1_000_000_000,
            p50: 40.0,
            slow: 1000,
            slow_p50: 7000.0,
            cpu_ns: 60_000_000,
            ..Answer::default()
        };
        let counts = BTreeMap::from([("pager-cpu", 50_000_000), ("time", 1_000_000_000)]);
        let ours = numbers(Backend::Pager, Act::Reclaim, &answer, &counts);
        assert_eq!(find(&ours, "reclaim"), Some(7000.0));
        assert!((find(&ours, "simulation-cpu").unwrap() - 0.057).abs() < 1e-9);
        let bare = numbers(Backend::Bare, Act::Continue, &answer, &BTreeMap::new());
        assert_eq!(
            (find(&bare, "reclaim"), find(&bare, "reclaim-cpu")),
            (Some(40.0), Some(6000.0))
        );
        let quiet = Answer { slow: 3, ..answer };
        assert_eq!(find(&numbers(Backend::Pager, Act::Reclaim, &quiet, &counts), "reclaim"), None);
    }

    #[test]
    fn counters_that_were_not_there_before_do_not_count() {
        let before = Counters { at: None, values: BTreeMap::from([("page-ins", 5)]) };
        let after =
            Counters { at: None, values: BTreeMap::from([("page-ins", 9), ("scanned", 3)]) };
        assert_eq!(after.since(&before), BTreeMap::from([("page-ins", 4)]));
    }
}
