//! The executor of all suites of subjects: talks to them, several at once, and times whole
//! programs.
//!
//! How they are started is in `stage`, what they do in `workload`.

use std::time::{Duration, Instant};

use serde_json::Value;

use odfork_samples::stats::median;

use crate::configuration::{Configuration, Preparation, Subject};
use crate::link::{Link, Loss};
use crate::plan::{Ask, Op, Program};
use crate::pool::Pool;
use crate::profile::profile;
use crate::runner::{Executor, Number, Outcome, Point, Reply};
use crate::stage::{why_not_started, Stage};
use crate::watch::watched;
use crate::workload::memory::{warm_free_memory, Layout};
use crate::workload::protocol::{Answer, Command};

/// No op takes longer than this, not even loading 8 GB next to another subject; repetitions add to
/// it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long a command may take: bytes copied at 100 MB/s, page tables at 2 GB/s, programs in 10 ms.
fn timeout(command: Command, size: u64) -> Duration {
    let size = size as f64;
    let seconds = match command {
        Command::Grid { forks, permille } => {
            f64::from(forks) * (size / 2e9 + size * f64::from(permille) / 1e11 + 0.01)
        }
        Command::Fork { calls } => f64::from(calls) * (size / 2e9 + 0.01),
        Command::Touch { .. } | Command::Service => size / 1e8,
        Command::Rounds { rounds, .. } => f64::from(rounds) * size / 1e8,
        Command::Exec { count, .. } => f64::from(count) * (size / 2e9 + 0.01),
        _ => 0.0,
    };
    TIMEOUT + Duration::from_secs_f64(seconds)
}

/// Talks to processes.
pub struct Processes {
    stage: Stage,
    subjects: Vec<Subject>,
    links: Vec<Option<Link>>,
    pool: Option<Pool>,
    start: Instant,
}

impl Processes {
    pub fn new(stage: Stage) -> Self {
        let (subjects, links, pool) = (Vec::new(), Vec::new(), None);
        Processes { stage, subjects, links, pool, start: Instant::now() }
    }

    /// Memory that should be ready before the op is timed.
    fn demand(&self, point: &Point<Op>) -> u64 {
        match &point.op {
            // The program's own memory, and its backing file if it freezes: the same for every
            // configuration.
            Op::Run(program) => 2 * program.size,
            Op::Ask(ask) => {
                let size = |&target: &usize| ask.command.demand(self.subjects[target].size);
                point.targets.iter().map(size).sum()
            }
            Op::Profile { .. } => 0,
        }
    }

    /// All are asked before the first answers; the reply has the median of each label.
    fn ask(&mut self, targets: &[usize], command: Command) -> Result<Vec<(String, f64)>, Outcome> {
        for &target in targets {
            let sent = self.link(target).and_then(|link| link.send(&command.to_string()));
            sent.map_err(|loss| self.lose(target, loss))?;
        }
        let mut answers = Vec::new();
        for &target in targets {
            let timeout = timeout(command, self.subjects[target].size);
            answers.push(self.receive(target, timeout).map_err(|loss| self.lose(target, loss))?);
        }
        combine(answers)
    }

    fn answer(&mut self, targets: &[usize], ask: &Ask) -> Result<Vec<Number>, Outcome> {
        let mut numbers = Vec::new();
        if ask.fold {
            // A refusal is told by what is asked next.
            let folded = self.ask(targets, Command::Fold).unwrap_or_default();
            numbers.extend(folded.iter().map(|(_, ns)| Number::new("fold", "ns", *ns)));
        }
        let values = match ask.watch {
            true => self.ask_watched(targets, ask.command)?,
            false => self.ask(targets, ask.command)?,
        };
        numbers.extend(ask.metrics.iter().filter_map(|metric| metric.of(&values)));
        Ok(numbers)
    }

    /// Asks while the memory of the first subject is watched, then lets it thaw, unwatched.
    fn ask_watched(
        &mut self,
        targets: &[usize],
        command: Command,
    ) -> Result<Vec<(String, f64)>, Outcome> {
        let link = self.link(targets[0]).map(|link| link.pid());
        let pid = link.map_err(|loss| self.lose(targets[0], loss))?;
        let (values, peak) = watched(pid, || self.ask(targets, command));
        let mut values = values?;
        values.push(("extra".into(), peak.held as f64));
        values.push(("extra-system".into(), peak.system as f64));
        self.ask(targets, Command::Thaw)?;
        Ok(values)
    }

    fn link(&mut self, target: usize) -> Result<&mut Link, Loss> {
        let link = self.links.get_mut(target).and_then(Option::as_mut);
        link.ok_or_else(|| Loss::Ended("it is gone".into()))
    }

    fn receive(&mut self, target: usize, timeout: Duration) -> Result<Answer, Loss> {
        let line = self.link(target)?.receive(timeout)?;
        line.parse().map_err(|error| Loss::Ended(format!("it said {error}")))
    }

    fn lose(&mut self, target: usize, loss: Loss) -> Outcome {
        if loss == Loss::Interrupted {
            return Outcome::Interrupted;
        }
        self.links[target] = None;
        Outcome::Wrong(loss.to_string())
    }

    fn run(&self, program: &Program) -> Result<Vec<Number>, Outcome> {
        let mut process = self.stage.whole_program(program);
        let start = Instant::now();
        let link = Link::spawn(&mut process);
        let mut link = link.map_err(|error| Outcome::Wrong(format!("{error:#}")))?;
        let finished = link.finish(TIMEOUT);
        let time = start.elapsed().as_nanos() as f64;
        match finished {
            Ok(status) if status.success() => Ok(vec![Number::new("program", "ns", time)]),
            Ok(status) => Err(Outcome::Wrong(format!("the program ended with {status}"))),
            Err(Loss::Interrupted) => Err(Outcome::Interrupted),
            Err(loss) => Err(Outcome::Wrong(loss.to_string())),
        }
    }

    fn profile(&self, subject: &Subject, seconds: f64) -> Reply {
        match profile(&self.stage, subject, seconds) {
            Ok(found) => Reply {
                notes: found.why_not_perf(subject.configuration.word()),
                ..Reply::numbers(found.numbers())
            },
            Err(error) => Outcome::Unavailable(format!("{error:#}")).into(),
        }
    }

    /// Starts a process for each subject; the error says why one could not.
    fn spawn(&mut self, lack_of_pool: Option<&String>) -> Vec<Option<String>> {
        let mut failures = Vec::new();
        for subject in &self.subjects {
            let is_pooled = subject.layout == Layout::Hugetlb;
            let started = match lack_of_pool.filter(|_| is_pooled) {
                Some(lack) => Err(lack.clone()),
                None => Link::spawn(&mut self.stage.subject(subject))
                    .map_err(|error| why_not_started(subject.is_python, &error)),
            };
            failures.push(started.as_ref().err().cloned());
            self.links.push(started.ok());
        }
        failures
    }

    fn ready(&mut self, target: usize) -> Option<String> {
        match self.receive(target, TIMEOUT) {
            Ok(Answer::Text(_)) => None,
            Ok(Answer::Unavailable(reason)) => Some(reason),
            Ok(other) => Some(format!("it began with: {other}")),
            Err(loss) => Some(loss.to_string()),
        }
    }

    /// What the engine of a preloaded subject says of itself.
    fn engine(&mut self, target: usize) -> Option<String> {
        let link = self.link(target).ok()?;
        link.send(&Command::Stats.to_string()).ok()?;
        match self.receive(target, TIMEOUT).ok()? {
            Answer::Text(stats) => Some(engine_of(&stats)),
            _ => None,
        }
    }
}

impl Executor for Processes {
    type Target = Subject;
    type Op = Op;

    fn start(&mut self, subjects: &[Subject]) -> Vec<Option<String>> {
        self.subjects = subjects.to_vec();
        let reserved = Pool::for_subjects(subjects);
        let mut failures = self.spawn(reserved.as_ref().err());
        self.pool = reserved.unwrap_or_default();
        for (target, failure) in failures.iter_mut().enumerate() {
            if failure.is_none() {
                *failure = self.ready(target);
            }
        }
        failures
    }

    fn prepare(&mut self, target: usize) -> Reply {
        for preparation in self.subjects[target].prepare.clone() {
            let (Preparation::Try(command) | Preparation::Must(command)) = preparation;
            match (self.ask(&[target], command), preparation) {
                (Ok(_), _) | (Err(Outcome::Unavailable(_)), Preparation::Try(_)) => {}
                (Err(outcome), _) => return outcome.into(),
            }
        }
        Reply::default()
    }

    fn perform(&mut self, point: &Point<Op>, _: u32) -> Reply {
        warm_free_memory(self.demand(point));
        let numbers = match &point.op {
            Op::Ask(ask) => self.answer(&point.targets, ask),
            Op::Run(program) => self.run(program),
            Op::Profile { subject, seconds } => return self.profile(subject, *seconds),
        };
        numbers.map_or_else(Reply::from, Reply::numbers)
    }

    /// Every subject checks every word, and tells how it forked when something was preloaded.
    fn verify(&mut self, target: usize) -> Reply {
        let Subject { layout, configuration, .. } = self.subjects[target];
        // Checking every word writes in parent and child: the pool of huge pages has no room for
        // that.
        let check = if layout == Layout::Hugetlb { Command::Read } else { Command::Verify };
        let outcome = match self.ask(&[target], check) {
            Err(outcome @ (Outcome::Wrong(_) | Outcome::Interrupted)) => outcome,
            _ => Outcome::Done,
        };
        let is_preloaded = configuration == Configuration::Image && outcome == Outcome::Done;
        let engine = if is_preloaded { self.engine(target) } else { None };
        Reply { engine, outcome, ..Reply::default() }
    }

    fn stop(&mut self) {
        self.links.clear();
        self.subjects.clear();
        self.pool = None;
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// "huge: why", from a subject's statistics.
fn engine_of(stats: &str) -> String {
    let stats: Value = serde_json::from_str(stats).unwrap_or_default();
    let word = |name: &str| stats[name].as_str().unwrap_or("unknown").to_owned();
    format!("{}: {}", word("engine"), word("reason"))
}

/// One answer for several subjects: the median of each label; anything but values wins over values.
fn combine(answers: Vec<Answer>) -> Result<Vec<(String, f64)>, Outcome> {
    let mut labels: Vec<(String, Vec<f64>)> = Vec::new();
    for answer in answers {
        let values = match answer {
            Answer::Values(values) => values,
            Answer::Text(text) => return Err(Outcome::Wrong(format!("it said {text:?}"))),
            Answer::Unavailable(reason) => return Err(Outcome::Unavailable(reason)),
            Answer::Wrong(what) => return Err(Outcome::Wrong(what)),
        };
        for (label, number) in values {
            match labels.iter_mut().find(|(known, _)| *known == label) {
                Some((_, numbers)) => numbers.push(number),
                None => labels.push((label, vec![number])),
            }
        }
    }
    let middle = |(label, numbers): (String, Vec<f64>)| Some((label, median(&numbers)?));
    Ok(labels.into_iter().filter_map(middle).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_large_subjects_are_waited_for() {
        assert_eq!(timeout(Command::Read, 8 << 30), TIMEOUT);
        let grid = Command::Grid { forks: 100, permille: 1000 };
        assert!(timeout(grid, 4 << 30) > Duration::from_secs(4000));
    }

    #[test]
    fn several_answers_become_their_median() {
        let answers = [3.0, 1.0, 2.0].map(|number| Answer::value("fork", number));
        assert_eq!(combine(answers.to_vec()), Ok(vec![("fork".into(), 2.0)]));
        let mixed = vec![Answer::value("fork", 1.0), Answer::Wrong("page 1".into())];
        assert_eq!(combine(mixed), Err(Outcome::Wrong("page 1".into())));
    }

    #[test]
    fn the_engine_is_read_from_the_statistics() {
        assert_eq!(engine_of(r#"{"engine":"huge","reason":"tmpfs"}"#), "huge: tmpfs");
        assert_eq!(engine_of("not JSON"), "unknown: unknown");
    }
}
