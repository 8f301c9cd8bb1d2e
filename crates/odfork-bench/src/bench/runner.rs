//! Running an experiment: group after group, every round all cells in a new random order, samples to the file at once.
//!
//! Steps of a group: 1. start, 2. prepare (freeze images, a few forks), 3. warm up, 4. rounds, 5. verify every word, 6. stop. An
//! engine that cannot take part falls silent with a note; wrong content makes the run fail in the end. A round that
//! is interrupted keeps what it has: samples name their round, so pairs can be told.

use std::time::Duration;

use serde_json::Value;

use crate::bench::engine::Engine;
use crate::bench::trial::{Cell, Group};
use crate::experiments::Act;
use crate::pairing::{Executor, Reply};
use crate::progress::Progress;
use crate::workload::protocol::Command;
use odfork_samples::samples::{Line, Sample};
use odfork_samples::stats::{Rng, SAMPLES_FOR_INTERVAL};

/// Asked of every subject before anything is measured: the first forks of a process are not like the rest.
const WARM: Command = Command::Fork { calls: 3 };

/// Where lines go: a file, and what the table at the end is made from.
pub trait Sink {
    fn put(&mut self, line: Line);
}

/// Runs the groups of one experiment.
pub struct Runner<'a> {
    pub experiment: &'static str,
    pub executor: &'a mut dyn Executor,
    pub rng: &'a mut Rng,
    pub progress: &'a mut Progress,
    pub sink: &'a mut dyn Sink,
    pub begun: Duration,
    pub round: u32,
    pub wrongs: Vec<String>,
    pub interrupted: bool,
}

/// A sample below this is cheap.
const CHEAP: Duration = Duration::from_millis(25);

/// How the cells of a group stand during the rounds.
struct Floor {
    cells: Vec<Cell>,
    repeats: u32,
    measured: Vec<u32>,
    silent: Vec<bool>,
}

impl Floor {
    /// Whether nothing is asked of a subject any more: it may not even be there.
    fn is_silent(&self, subject: usize) -> bool {
        let mut cells = self.cells.iter().zip(&self.silent);
        cells.all(|(cell, &silent)| silent || !cell.subjects.contains(&subject))
    }
}

impl Runner<'_> {
    /// Measures a group for about `seconds`, but every cell at least once (unless the time is far overdrawn).
    pub fn run(&mut self, group: Group, seconds: f64) {
        let mut floor = Floor {
            measured: vec![0; group.cells.len()],
            silent: vec![false; group.cells.len()],
            cells: group.cells,
            repeats: group.repeats,
        };
        let failures = self.executor.start(&group.subjects);
        for (subject, failure) in failures.into_iter().enumerate() {
            if let Some(reason) = failure {
                self.silence_subject(&mut floor, subject, &reason);
            }
        }
        self.prepare(&group.subjects, &mut floor);
        let begin = self.executor.now();
        for _ in 0..group.warmups {
            self.pass(&mut floor, None, begin + Duration::from_secs_f64(seconds));
        }
        self.rounds(&group.title, &mut floor, seconds, group.rounds_at_most);
        if !self.interrupted {
            self.verify(group.subjects.len(), &mut floor);
        }
        self.executor.stop();
        self.report_unmeasured(&group.title, &floor);
    }

    fn prepare(&mut self, subjects: &[crate::experiments::SubjectSpec], floor: &mut Floor) {
        for (index, subject) in subjects.iter().enumerate() {
            if floor.is_silent(index) {
                continue;
            }
            // A refused freeze leaves the memory as it was; the statistics at the end tell how it forked.
            for command in subject.prepare.into_iter().chain([WARM]) {
                if self.stopped() {
                    return;
                }
                if let Reply::Wrong(what) = self.executor.perform(&ask(&[index], command)) {
                    self.wrong(floor, &[index], what);
                }
            }
        }
    }

    /// Rounds until the time is used up. The pace of the first decides whether another one fits.
    fn rounds(&mut self, title: &str, floor: &mut Floor, seconds: f64, most: u32) {
        let begin = self.executor.now();
        let limit = Duration::from_secs_f64(seconds);
        // The first round may take its time, so that no cell is missing, but not for ever.
        let patience = begin + limit.mul_f64(3.0);
        for done in 0..most {
            let spent = self.executor.now().saturating_sub(begin);
            let pace = spent.checked_div(done).unwrap_or_default();
            // Three rounds make an interval: worth a little more than the time there is.
            let stretch = if (done as usize) < SAMPLES_FOR_INTERVAL { 1.25 } else { 1.0 };
            if self.stopped() || (done > 0 && spent + pace > limit.mul_f64(stretch)) {
                return;
            }
            self.progress
                .advance(|| title.to_owned(), (spent.as_secs_f64() / seconds.max(1e-9)).min(1.0));
            self.round += 1;
            self.pass(floor, Some(self.round), patience);
            if floor.silent.iter().all(|&silent| silent) {
                return;
            }
        }
    }

    /// Every cell once, in random order; without a round, nothing is recorded.
    fn pass(&mut self, floor: &mut Floor, round: Option<u32>, until: Duration) {
        let mut order: Vec<usize> = (0..floor.cells.len()).collect();
        self.rng.shuffle(&mut order);
        for index in order {
            if self.stopped() || self.executor.now() > until {
                return;
            }
            for _ in 0..floor.repeats {
                let begin = self.executor.now();
                if floor.silent[index] || self.stopped() {
                    break;
                }
                self.sample(floor, index, round);
                if self.executor.now().saturating_sub(begin) > CHEAP {
                    break;
                }
            }
        }
    }

    fn sample(&mut self, floor: &mut Floor, index: usize, round: Option<u32>) {
        let cell = floor.cells[index].clone();
        if cell.fold {
            let reply = self.executor.perform(&ask(&cell.subjects, Command::Fold));
            if let (Reply::Values(values), Some(round)) = (&reply, round) {
                for (_, ns) in values {
                    self.put(&cell, round, "fold", ("ns", *ns), &[]);
                }
            }
        }
        match self.executor.perform(&ask(&cell.subjects, cell.command)) {
            Reply::Values(values) => {
                let Some(round) = round else { return };
                floor.measured[index] += 1;
                for metric in &cell.metrics {
                    let number = values.iter().find(|(label, _)| *label == metric.label);
                    if let Some((_, ns)) = number {
                        let reading = (metric.reading.unit(), metric.reading.read(*ns));
                        self.put(&cell, round, metric.name, reading, &metric.extra);
                    }
                }
            }
            Reply::Text(_) => {}
            Reply::Interrupted => self.interrupted = true,
            Reply::Unavailable(reason) => {
                floor.silent[index] = true;
                self.note(format!("{}: {reason}", cell.engine.word()));
            }
            Reply::Wrong(what) => self.wrong(floor, &cell.subjects, what),
        }
    }

    fn put(
        &mut self,
        cell: &Cell,
        round: u32,
        metric: &str,
        (unit, value): (&str, f64),
        extra: &[(&'static str, Value)],
    ) {
        let mut params = cell.params.clone();
        params.extend(extra.iter().map(|(name, value)| (name.to_string(), value.clone())));
        let at_s = self.executor.now().saturating_sub(self.begun).as_secs_f64();
        self.sink.put(Line::Sample(Sample {
            experiment: self.experiment.into(),
            engine: cell.engine.word().into(),
            metric: metric.into(),
            unit: unit.into(),
            value,
            params,
            round,
            at_s: (at_s * 1e3).round() / 1e3,
        }));
    }

    /// Step 5: every subject checks every word; image subjects tell how they forked.
    fn verify(&mut self, subjects: usize, floor: &mut Floor) {
        for subject in 0..subjects {
            let Some(cell) = (0..floor.cells.len())
                .find(|&i| floor.cells[i].subjects.contains(&subject) && !floor.silent[i])
            else {
                continue;
            };
            if self.stopped() {
                return;
            }
            let engine = floor.cells[cell].engine;
            // Checking every word writes in parent and child: the pool of huge pages has no room for that.
            let check = if engine == Engine::Hugetlb { Command::Read } else { Command::Verify };
            match self.executor.perform(&ask(&[subject], check)) {
                Reply::Wrong(what) => self.wrong(floor, &[subject], what),
                Reply::Interrupted => self.interrupted = true,
                _ => {}
            }
            if engine == Engine::Image {
                if let Reply::Text(stats) = self.executor.perform(&ask(&[subject], Command::Stats))
                {
                    self.tell_engine(&stats, &floor.cells[cell]);
                }
            }
        }
    }

    fn tell_engine(&mut self, stats: &str, cell: &Cell) {
        let stats: Value = serde_json::from_str(stats).unwrap_or_default();
        let word = |name: &str| stats[name].as_str().unwrap_or("unknown").to_string();
        let params = Value::from_iter(cell.params.clone()).to_string();
        let detail = format!("{}: {} {params}", word("engine"), word("reason"));
        self.sink.put(Line::Engine { engine: cell.engine.word().into(), detail });
    }

    fn silence_subject(&mut self, floor: &mut Floor, subject: usize, reason: &str) {
        let mut engine = None;
        for (index, cell) in floor.cells.iter().enumerate() {
            if cell.subjects.contains(&subject) {
                floor.silent[index] = true;
                engine = Some(cell.engine);
            }
        }
        if let Some(engine) = engine.filter(|_| !self.stopped()) {
            self.note(format!("{}: {reason}", engine.word()));
        }
    }

    fn wrong(&mut self, floor: &mut Floor, subjects: &[usize], what: String) {
        for &subject in subjects {
            self.silence_subject(floor, subject, &what);
        }
        self.wrongs.push(format!("{}: {what}", self.experiment));
    }

    fn report_unmeasured(&mut self, title: &str, floor: &Floor) {
        let live = (0..floor.cells.len()).filter(|&i| !floor.silent[i]);
        let missing = live.filter(|&i| floor.measured[i] == 0).count();
        if missing > 0 {
            let (all, why) =
                (floor.cells.len(), if self.interrupted { "interrupted" } else { "out of time" });
            self.note(format!("{title}: {missing} of {all} points not measured ({why})"));
        }
    }

    fn note(&mut self, text: String) {
        self.sink.put(Line::Note { text });
    }

    fn stopped(&mut self) -> bool {
        self.interrupted |= self.executor.interrupted();
        self.interrupted
    }
}

fn ask(subjects: &[usize], command: Command) -> Act {
    Act::Ask { subjects: subjects.to_vec(), command, watch: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::trial::{Metric, Reading};
    use crate::pairing::tests::Fake;
    use odfork_samples::samples::Params;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Heard(Vec<Line>);

    impl Sink for Heard {
        fn put(&mut self, line: Line) {
            self.0.push(line);
        }
    }

    impl Heard {
        fn samples(&self) -> Vec<&Sample> {
            let mut found = Vec::new();
            for line in &self.0 {
                if let Line::Sample(sample) = line {
                    found.push(sample);
                }
            }
            found
        }

        fn notes(&self) -> Vec<&str> {
            let mut found = Vec::new();
            for line in &self.0 {
                if let Line::Note { text } = line {
                    found.push(text.as_str());
                }
            }
            found
        }
    }

    fn group() -> Group {
        let mut group = Group::new("1 GB".into(), 1.0);
        for engine in [Engine::Plain, Engine::Image] {
            let subject = group.seat(engine.subject(1 << 30));
            for bytes in [1, 2, 3] {
                group.cells.push(Cell {
                    engine,
                    subjects: vec![subject],
                    fold: engine == Engine::Image,
                    command: Command::Read,
                    params: Params::from([("bytes".to_string(), bytes.into())]),
                    metrics: vec![Metric::new("read", Reading::Ns)],
                });
            }
        }
        group
    }

    fn run(fake: &mut Fake, seconds: f64) -> (Heard, Vec<String>, bool) {
        run_group(fake, group(), seconds)
    }

    fn run_group(fake: &mut Fake, group: Group, seconds: f64) -> (Heard, Vec<String>, bool) {
        let mut heard = Heard::default();
        let mut runner = Runner {
            experiment: "latency",
            executor: fake,
            rng: &mut Rng::with_seed(1),
            progress: &mut Progress::silent(1.0),
            sink: &mut heard,
            begun: Duration::ZERO,
            round: 0,
            wrongs: Vec::new(),
            interrupted: false,
        };
        runner.run(group, seconds);
        let (wrongs, interrupted) = (runner.wrongs, runner.interrupted);
        (heard, wrongs, interrupted)
    }

    #[test]
    fn every_round_has_every_cell_once_and_folding_is_a_metric_of_its_own() {
        let (heard, wrongs, interrupted) = run(&mut Fake::default(), 1.0);
        let mut seen: BTreeMap<(u32, String, String), u32> = BTreeMap::new();
        for sample in heard.samples().iter().filter(|sample| sample.metric == "read") {
            let point = format!("{:?}", sample.params);
            *seen.entry((sample.round, sample.engine.clone(), point)).or_default() += 1;
        }
        let rounds = heard.samples().iter().map(|sample| sample.round).max().unwrap();
        assert!(rounds >= 5, "{rounds}");
        assert_eq!(seen.len() as u32, rounds * 6);
        assert!(seen.values().all(|&count| count == 1));
        let folds = heard.samples().iter().filter(|s| s.metric == "fold").count() as u32;
        assert_eq!(folds, rounds * 3);
        assert!(wrongs.is_empty() && !interrupted && heard.notes().is_empty());
    }

    #[test]
    fn an_engine_that_cannot_falls_silent_with_a_note_and_wrong_content_is_remembered() {
        // Replies of the engine in order: freeze, the warm forks, then cells.
        let refuse = Reply::Unavailable("no memory".into());
        let mut fake = Fake {
            script: [refuse.clone(), refuse.clone(), refuse.clone(), refuse].into(),
            ..Fake::default()
        };
        let (heard, wrongs, _) = run(&mut fake, 0.5);
        assert!(
            heard.notes().iter().any(|note| note.contains("image: no memory")),
            "{:?}",
            heard.notes()
        );
        assert!(heard.samples().iter().any(|sample| sample.engine == "plain"));
        assert!(wrongs.is_empty());

        let mut fake = Fake { script: [Reply::Wrong("page 7".into())].into(), ..Fake::default() };
        let (heard, wrongs, _) = run(&mut fake, 0.5);
        assert_eq!(wrongs, ["latency: page 7"]);
        assert!(heard.samples().iter().all(|sample| sample.engine == "plain"));
    }

    #[test]
    fn a_subject_that_did_not_start_is_asked_nothing_and_is_not_wrong() {
        let mut fake = Fake { absent: Some(1), ..Fake::default() };
        let (heard, wrongs, _) = run(&mut fake, 0.5);
        assert_eq!(heard.notes(), ["image: not installed"]);
        assert!(wrongs.is_empty(), "{wrongs:?}");
        assert!(heard.samples().iter().all(|sample| sample.engine == "plain"));
    }

    #[test]
    fn an_interruption_keeps_the_samples_and_says_what_is_missing() {
        let mut fake = Fake { interrupt_after: Some(16), ..Fake::default() };
        let (heard, _, interrupted) = run(&mut fake, 9.0);
        assert!(interrupted);
        let count = heard.samples().len();
        assert!((1..6).contains(&count), "{count}");
        assert!(
            heard.notes().iter().any(|note| note.contains("interrupted")),
            "{:?}",
            heard.notes()
        );
    }

    #[test]
    fn cheap_cells_are_sampled_several_times_a_round() {
        // The fake's clock moves 10 ms a command, twice that with a fold: cheap.
        let repeated = Group { repeats: 3, ..group() };
        let (heard, _, _) = run_group(&mut Fake::default(), repeated, 0.5);
        let samples = heard.samples();
        let first = |engine: &str| {
            let of_round = samples.iter().filter(|s| s.round == 1 && s.metric == "read");
            of_round.filter(|s| s.engine == engine).count()
        };
        assert_eq!((first("plain"), first("image")), (9, 9));
    }

    #[test]
    fn time_ends_the_rounds_before_one_that_would_not_fit() {
        let mut fake = Fake::default();
        // One round of six cells and three folds takes 90 ms of the fake's clock.
        let (heard, _, _) = run(&mut fake, 0.2);
        let rounds = heard.samples().iter().map(|sample| sample.round).max();
        assert_eq!(rounds, Some(2));
    }
}
