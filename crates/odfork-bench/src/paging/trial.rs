//! One backend in one round: set up, start the workload, ask its ops one by one, undo everything.
//!
//! Steps: 1. swap, 2. group, 3. process, 4. ops (with the pager's counters before and after each),
//! 5. the group's peak and kills. Undone in reverse order: process, group, swap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::backend::{Backend, Settings};
use super::op::Op;
use super::program::Answer;
use super::region::write_file;
use crate::accounting::cpu_ns;
use crate::baselines::cgroup::{Group, Limit, Parent};
use crate::baselines::journal::{Cleanup, Journal, Undo};
use crate::baselines::swap;
use crate::link::{Link, Loss};
use crate::pager;
use crate::runner;
use crate::runner::{Outcome, Reply};

/// Beyond the op's own limit: filling and reading everything once more, on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(240);
const NS: f64 = 1e9;

/// Metric, unit, value.
type Number = (&'static str, &'static str, f64);

/// Numbers of an op; what belongs to all of a trial has none.
fn put(reply: &mut Reply, op: &str, numbers: Vec<Number>) {
    let made = |(metric, unit, value)| runner::Number::new(metric, unit, value).with("act", op);
    reply.numbers.extend(numbers.into_iter().map(made));
}

pub struct Trial<'a> {
    pub settings: &'a Settings,
    pub parent: &'a Result<Parent, String>,
    pub journal: &'a Journal,
    pub backend: Backend,
    pub seed: u64,
}

impl Trial<'_> {
    pub fn run(&self) -> Reply {
        let mut reply = Reply::default();
        if let Err(outcome) = self.attempt(&mut reply) {
            reply.outcome = outcome;
        }
        reply
    }

    fn attempt(&self, reply: &mut Reply) -> Result<(), Outcome> {
        // Swap is larger than what lies on it.
        let swap_bytes = self.settings.region + self.settings.region / 4;
        let swap = match self.backend {
            Backend::SwapFile => swap::on_file(self.journal, &self.settings.store, swap_bytes),
            Backend::Zram => swap::on_zram(self.journal, swap_bytes),
            _ => Ok(Vec::new()),
        };
        let _swap = swap.map_err(Outcome::Refused)?;
        let _file = self.mapped_file().map_err(Outcome::Refused)?;
        let group = self.group().map_err(Outcome::Refused)?;
        let mut command = self.backend.command(self.settings, self.seed);
        if let Some(group) = &group {
            group.enter(&mut command).map_err(Outcome::Refused)?;
        }
        let begin = Instant::now();
        let link = Link::spawn(&mut command);
        let mut link = link.map_err(|error| Outcome::Refused(format!("{error:#}")))?;
        let ended = self.ops(&mut link, group.as_ref(), reply);
        let kills = group.as_ref().map_or(0, Group::kills);
        if let Some(group) = &group {
            let peak = group.peak().map(|peak| ("memory", "bytes", peak as f64));
            let numbers = peak.into_iter().chain([("killed", "count", kills as f64)]);
            put(reply, "", numbers.collect());
        }
        if kills > 0 {
            let (word, seconds) = (self.backend.word(), begin.elapsed().as_secs_f64());
            let why = "no memory left in its group";
            reply.notes.push(format!("{word}: killed after {seconds:.0} s: {why}"));
            return Ok(());
        }
        ended
    }

    /// The file it maps; written here, so that nobody's group is charged for it.
    fn mapped_file(&self) -> Result<Option<Cleanup>, String> {
        if !self.backend.maps_file() {
            return Ok(None);
        }
        let path = self.backend.file(self.settings);
        let cleanup = self.journal.record(Undo::RemoveFile(path.clone()));
        write_file(&path, self.settings.region).map_err(|error| format!("{error:#}"))?;
        Ok(Some(cleanup))
    }

    /// None: nobody needs it, and there is none.
    fn group(&self) -> Result<Option<Group>, String> {
        let limit = self.backend.group_limit(self.settings);
        match self.parent {
            Ok(parent) => {
                let limit = limit.map_or(Limit::None, Limit::Kill);
                parent.make(self.journal, self.backend.word(), limit).map(Some)
            }
            Err(why) if limit.is_some() => Err(why.clone()),
            Err(_) => Ok(None),
        }
    }

    fn ops(
        &self,
        link: &mut Link,
        group: Option<&Group>,
        reply: &mut Reply,
    ) -> Result<(), Outcome> {
        let name = self.backend.word();
        for op in self.backend.ops() {
            let (before, word) = (Counters::read(self, link.pid(), group), op.word());
            let answer = self.ask(link, &word)?;
            if let Some(why) = answer.unavailable {
                reply.notes.push(format!("{name}: {why}"));
                continue;
            }
            if let Some(page) = answer.wrong {
                return Err(Outcome::Wrong(format!("{word}: wrong content of page {page}")));
            }
            if op == Op::Fill {
                self.is_paged(link.pid()).map_err(Outcome::Wrong)?;
            }
            let after = Counters::read(self, link.pid(), group);
            put(reply, &word, numbers(self.backend, op, &answer, &after.since(&before)));
        }
        Ok(())
    }

    fn ask(&self, link: &mut Link, word: &str) -> Result<Answer, Outcome> {
        let said = link.send(word).and_then(|()| link.receive(self.settings.limit + TIMEOUT));
        let line = said.map_err(|loss| match loss {
            Loss::Interrupted => Outcome::Interrupted,
            loss => Outcome::Refused(loss.to_string()),
        })?;
        serde_json::from_str(&line)
            .map_err(|_| Outcome::Refused(format!("it said {line:?} instead of an answer")))
    }

    /// A pager that lets everything stay in memory would win every race.
    fn is_paged(&self, workload: u32) -> Result<(), String> {
        if self.backend.is_any() {
            return self.is_all_paged(workload);
        }
        if !self.backend.is_pager() {
            return Ok(());
        }
        let status = self.status();
        let programs = status["programs"].as_array().cloned().unwrap_or_default();
        let pages =
            |name: &str| programs.iter().filter_map(|program| program[name].as_u64()).sum::<u64>();
        let (mapped, held) = (pages("mapped"), pages("resident") + pages("reclaimable"));
        let (wanted, most) = (self.settings.region >> 12, self.settings.resident >> 12);
        if mapped >= wanted && held <= most {
            return Ok(());
        }
        Err(format!(
            "not paged: {mapped} pages known of {wanted}, {held} in memory, {most} allowed"
        ))
    }

    /// Its task publishes what it holds once a second.
    fn is_all_paged(&self, workload: u32) -> Result<(), String> {
        let mut seen = None;
        for _ in 0..50 {
            seen = pager::status_of(&self.settings.program, workload);
            let count = |name: &str| seen.as_ref().and_then(|all| all[name].as_u64());
            let (out, held, most) = (count("page_outs"), count("resident"), count("limit"));
            if out > Some(0) && held.zip(most).is_some_and(|(held, most)| held <= most) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("not paged: {seen:?}"))
    }

    fn status(&self) -> Value {
        let socket = self.backend.socket(self.settings, self.seed);
        pager::status(&self.settings.program, &socket).unwrap_or_default()
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
            let status = trial.status();
            let count = |path: &str| status.pointer(path).and_then(Value::as_u64);
            values.extend(COUNTS.iter().filter_map(|(name, path)| Some((*name, count(path)?))));
            // All but the thread that works: daemon, supervisor, agent.
            let processes = group.map(Group::processes).unwrap_or_default();
            values.insert(
                "pager-cpu",
                processes.iter().map(|&pid| cpu_ns(pid, pid == workload)).sum(),
            );
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

type Counts = BTreeMap<&'static str, u64>;

/// The numbers of one op.
fn numbers(backend: Backend, op: Op, answer: &Answer, counts: &Counts) -> Vec<Number> {
    match op {
        Op::Settle => Vec::new(),
        Op::Continue => bare_numbers(answer),
        Op::Reclaim => reclaim_numbers(answer, counts),
        _ => access_numbers(backend, answer, counts),
    }
}

/// Fewer slow accesses are noise of the machine, not faults.
const LEAST_SLOW: u64 = 100;

fn bare_numbers(answer: &Answer) -> Vec<Number> {
    let mut numbers = Vec::new();
    if answer.slow > LEAST_SLOW {
        numbers = vec![("reclaim", "ns", answer.p50), ("reclaim-p99", "ns", answer.p99)];
    }
    numbers.push(("reclaim-cpu", "ns", answer.cpu_ns as f64 / answer.accesses.max(1) as f64));
    numbers
}

fn reclaim_numbers(answer: &Answer, counts: &Counts) -> Vec<Number> {
    let mut numbers = Vec::new();
    if answer.slow > LEAST_SLOW {
        numbers = vec![("reclaim", "ns", answer.slow_p50), ("reclaim-p99", "ns", answer.slow_p99)];
    }
    if let (Some(&cpu), Some(&time)) = (counts.get("pager-cpu"), counts.get("time")) {
        let slow = answer.slow as f64;
        // The faulting thread's own part of a reclaim is at most the reclaim: an upper bound.
        let share = (cpu as f64 + slow * answer.slow_p50) / time as f64;
        let rate = slow / (answer.ns.max(1) as f64 / NS);
        numbers.extend([("simulation-cpu", "share", share), ("reclaim-rate", "1/s", rate)]);
    }
    numbers
}

fn access_numbers(backend: Backend, answer: &Answer, counts: &Counts) -> Vec<Number> {
    let mut numbers = vec![("rate", "1/s", answer.rate())];
    if answer.p50 > 0.0 {
        numbers.extend([("p50", "ns", answer.p50), ("p99", "ns", answer.p99)]);
        if answer.slow > 0 {
            let slow = [("fault-p50", "ns", answer.slow_p50), ("fault-p99", "ns", answer.slow_p99)];
            numbers.extend(slow);
        }
    }
    let count = |name: &str| counts.get(name).copied();
    let major = match backend {
        Backend::SwapFile | Backend::Zram | Backend::Mmap => Some(answer.major),
        // umap tells nobody what it reads.
        Backend::Umap4K | Backend::Umap64K | Backend::Bare => None,
        // It tells once a second: too late for an op.
        Backend::Any | Backend::AnyLz4 => None,
        _ => count("page-ins"),
    };
    let reclaims = count("reclaims-loop").zip(count("reclaims-pool"));
    let shares = [
        ("major", major),
        ("reclaims", reclaims.map(|(active, pool)| active + pool)),
        ("prefetched", count("prefetched")),
        ("page-outs", count("page-outs")),
    ];
    let accesses = answer.accesses.max(1) as f64;
    let per_access =
        |(name, count): (_, Option<u64>)| Some((name, "share", count? as f64 / accesses));
    numbers.extend(shares.into_iter().filter_map(per_access));
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
        let kernel = numbers(Backend::SwapFile, Op::Zipf, &answer, &BTreeMap::new());
        assert_eq!((find(&kernel, "rate"), find(&kernel, "major")), (Some(2000.0), Some(0.25)));
        assert_eq!(find(&kernel, "reclaims"), None);
        let ours = numbers(Backend::Pager, Op::Zipf, &answer, &counts);
        assert_eq!((find(&ours, "major"), find(&ours, "reclaims")), (Some(0.27), Some(0.14)));
        assert_eq!(find(&numbers(Backend::Umap4K, Op::Zipf, &answer, &counts), "major"), None);
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
        let ours = numbers(Backend::Pager, Op::Reclaim, &answer, &counts);
        assert_eq!(find(&ours, "reclaim"), Some(7000.0));
        assert!((find(&ours, "simulation-cpu").unwrap() - 0.057).abs() < 1e-9);
        let bare = numbers(Backend::Bare, Op::Continue, &answer, &BTreeMap::new());
        assert_eq!(
            (find(&bare, "reclaim"), find(&bare, "reclaim-cpu")),
            (Some(40.0), Some(6000.0))
        );
        let quiet = Answer { slow: 3, ..answer };
        assert_eq!(find(&numbers(Backend::Pager, Op::Reclaim, &quiet, &counts), "reclaim"), None);
    }

    #[test]
    fn counters_that_were_not_there_before_do_not_count() {
        let before = Counters { at: None, values: BTreeMap::from([("page-ins", 5)]) };
        let after =
            Counters { at: None, values: BTreeMap::from([("page-ins", 9), ("scanned", 3)]) };
        assert_eq!(after.since(&before), BTreeMap::from([("page-ins", 4)]));
    }
}
