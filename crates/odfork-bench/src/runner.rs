//! The one loop of all experiments: rounds in which every point is done once, in an order that changes.
//!
//! A suite gives *groups*: targets that are alive together, and *blocks* of points that are interleaved on them. A point
//! names its configuration (`engine` in the samples), its parameters, and an op: what is done once. What an op is, only
//! the suite's [`Executor`] knows: a command to subjects, a whole program, a round of paging, the boot of a guest.
//!
//! Steps of a group: 1. start, 2. prepare, 3. rounds of each block, 4. verify, 5. stop. Whoever cannot take part is skipped
//! with a note; wrong content makes the run fail in the end. Each number goes to the [`Recorder`] as it comes and names
//! its round, so an interruption loses nothing and pairs can be told.

use std::time::Duration;

use odfork_proc::interrupt;
use odfork_samples::samples::{Params, Sample};
use odfork_samples::stats::{Rng, SAMPLES_FOR_INTERVAL};

use crate::progress::Progress;
use crate::recorder::Recorder;

/// Does what points say: real ones talk to processes, the fake one of the tests computes.
pub trait Executor {
    /// What is started for a group and lives until its end; `()` where every op starts its own.
    type Target;
    type Op;

    /// Starts the targets and waits until each is ready. One reason for each that cannot take part.
    fn start(&mut self, targets: &[Self::Target]) -> Vec<Option<String>> {
        targets.iter().map(|_| None).collect()
    }
    /// Asked once of each target before the first round.
    fn prepare(&mut self, _target: usize) -> Reply {
        Reply::default()
    }
    /// One sample. Round 0 is a warm-up: its numbers are not kept.
    fn perform(&mut self, point: &Point<Self::Op>, round: u32) -> Reply;
    /// Asked once of each target after the last round: is its content right, which engine did it use?
    fn verify(&mut self, _target: usize) -> Reply {
        Reply::default()
    }
    /// Ends all targets.
    fn stop(&mut self) {}
    /// Time since some fixed moment.
    fn now(&self) -> Duration;
    fn interrupted(&self) -> bool {
        interrupt::asked()
    }
}

/// One measured number. Round and configuration are those of its point, unless the op measured several itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    pub metric: String,
    pub unit: &'static str,
    pub value: f64,
    /// Parameters beside those of the point.
    pub params: Params,
    pub engine: Option<String>,
    pub round: Option<u32>,
}

impl Number {
    pub fn new(metric: &str, unit: &'static str, value: f64) -> Number {
        let (params, engine, round) = (Params::new(), None, None);
        Number { metric: metric.into(), unit, value, params, engine, round }
    }

    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Number {
        self.params.insert(name.into(), value.into());
        self
    }
}

/// What came of an op.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Kept whatever the outcome is.
    pub numbers: Vec<Number>,
    /// What a reader of the numbers must know.
    pub notes: Vec<String>,
    /// Of a verification: the engine the target says it used, and why.
    pub engine: Option<String>,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Outcome {
    #[default]
    Done,
    /// Cannot be had: the point is skipped from now on, nothing is wrong.
    Unavailable(String),
    /// The same for every point of this configuration.
    Refused(String),
    /// Wrong content, or a process that died or hung: the run fails in the end. Who shares its targets is skipped; of a
    /// point without targets, its configuration.
    Wrong(String),
    Interrupted,
}

impl Reply {
    pub fn numbers(numbers: Vec<Number>) -> Reply {
        Reply { numbers, ..Reply::default() }
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Reply {
        Reply { outcome, ..Reply::default() }
    }
}

/// One place in the space of an experiment.
#[derive(Clone, Debug)]
pub struct Point<O> {
    /// The configuration, as samples call it.
    pub engine: &'static str,
    /// Which targets of the group it needs.
    pub targets: Vec<usize>,
    pub params: Params,
    pub op: O,
}

/// Points that are interleaved.
#[derive(Clone, Debug)]
pub struct Block<O> {
    pub points: Vec<Point<O>>,
    pub budget: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// New and random in each round, so that whatever the machine does meanwhile hits all alike.
    Shuffled,
    /// As given, and backwards in every second round: for few, long ops that must be first equally often.
    Alternating,
}

/// How long a block may go on.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Rounds that are not kept.
    pub warmups: u32,
    pub at_least: u32,
    pub at_most: u32,
    pub time: Duration,
    /// How often a cheap point is sampled in one round: its median needs it and its time allows it.
    pub repeats: u32,
    pub order: Order,
}

impl Budget {
    pub fn new(warmups: u32, at_least: u32, at_most: u32, seconds: f64) -> Budget {
        let time = Duration::from_secs_f64(seconds);
        Budget { warmups, at_least, at_most, time, repeats: 1, order: Order::Shuffled }
    }

    /// So many rounds, however long they take.
    pub fn rounds(count: u32) -> Budget {
        Budget { time: Duration::MAX, ..Budget::new(0, count, count, 0.0) }
    }

    /// Whether the time leaves no room for another round. On a machine so slow that the least rounds take three times the
    /// budget, an interval from fewer must do.
    fn is_spent(self, done: u32, spent: Duration) -> bool {
        let has_interval = done as usize >= SAMPLES_FOR_INTERVAL;
        // Three rounds make an interval: worth a little more than the time there is.
        let stretch = if has_interval { 1.0 } else { 1.25 };
        let next = spent + spent.checked_div(done).unwrap_or_default();
        let enough = done >= self.at_least.max(1) && next > self.times(stretch);
        enough || (has_interval && spent >= self.times(OVERDRAWN))
    }

    fn times(self, factor: f64) -> Duration {
        Duration::try_from_secs_f64(self.time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    fn share(self, done: f64, spent: Duration) -> f64 {
        let by_rounds = done / f64::from(self.at_most.max(1));
        let by_time = spent.as_secs_f64() / self.time.as_secs_f64().max(1e-9);
        by_rounds.max(by_time).min(1.0)
    }
}

/// A budget this many times over is overdrawn: rounds that must be done are no longer waited for.
const OVERDRAWN: f64 = 3.0;
/// A sample below this is cheap.
const CHEAP: Duration = Duration::from_millis(25);

/// Targets that are alive together, and what is measured on them, block after block.
#[derive(Clone, Debug)]
pub struct Group<T, O> {
    /// For progress and notes: "1.0 GB".
    pub title: String,
    pub targets: Vec<T>,
    pub blocks: Vec<Block<O>>,
    /// About how many seconds it takes, for the time left.
    pub expected: f64,
}

/// The group an executor understands.
pub type GroupOf<E> = Group<<E as Executor>::Target, <E as Executor>::Op>;

/// How the points of a group stand: (block, point).
struct RunState<'g, T, O> {
    group: &'g Group<T, O>,
    skipped: Vec<Vec<bool>>,
    measured: Vec<Vec<u32>>,
}

impl<'g, T, O> RunState<'g, T, O> {
    fn new(group: &'g Group<T, O>) -> Self {
        let lengths = || group.blocks.iter().map(|block| block.points.len());
        let skipped = lengths().map(|length| vec![false; length]).collect();
        let measured = lengths().map(|length| vec![0; length]).collect();
        RunState { group, skipped, measured }
    }

    /// The points that are still measured.
    fn live(&self) -> impl Iterator<Item = &'g Point<O>> + '_ {
        let places = self.group.blocks.iter().zip(&self.skipped);
        let points = places.flat_map(|(block, skipped)| block.points.iter().zip(skipped));
        points.filter(|(_, &skipped)| !skipped).map(|(point, _)| point)
    }

    /// Somebody who still asks this target; it may not even be there when nobody does.
    fn user_of(&self, target: usize) -> Option<&'g Point<O>> {
        self.live().find(|point| point.targets.contains(&target))
    }

    /// Skips what `which` says; the points that were measured until now.
    fn skip(&mut self, which: impl Fn(&Point<O>) -> bool) -> Vec<&'g Point<O>> {
        let mut newly = Vec::new();
        for (block, skipped) in self.group.blocks.iter().zip(&mut self.skipped) {
            for (point, skipped) in block.points.iter().zip(skipped) {
                if !*skipped && which(point) {
                    *skipped = true;
                    newly.push(point);
                }
            }
        }
        newly
    }

    /// How many points have no sample though nobody skipped them, and how many there are.
    fn unmeasured(&self) -> (usize, usize) {
        let all = self.skipped.iter().flatten().zip(self.measured.iter().flatten());
        (all.clone().filter(|(&skipped, &count)| !skipped && count == 0).count(), all.count())
    }
}

type StateOf<'g, E> = RunState<'g, <E as Executor>::Target, <E as Executor>::Op>;

/// Where a round stands.
#[derive(Clone, Copy)]
struct Turn {
    block: usize,
    /// 0: a warm-up.
    round: u32,
    done: u32,
    begin: Duration,
    /// No op is begun after it.
    until: Duration,
}

/// Runs the groups of one experiment.
pub struct Runner<'a, E: Executor> {
    pub executor: &'a mut E,
    pub recorder: &'a mut Recorder,
    pub progress: &'a mut Progress,
    pub rng: Rng,
}

impl<E: Executor> Runner<'_, E> {
    /// One group after the other, until the end or an interruption, which the recorder then knows.
    pub fn run(&mut self, groups: &[GroupOf<E>]) {
        for group in groups {
            if self.stopped() {
                break;
            }
            self.progress.begin(&group.title, group.expected);
            self.group(group);
            self.progress.end();
        }
        self.progress.clear();
    }

    fn group(&mut self, group: &GroupOf<E>) {
        let mut state = RunState::new(group);
        let failures = self.executor.start(&group.targets);
        for (target, reason) in failures.into_iter().enumerate() {
            if let Some(reason) = reason.filter(|_| !self.stopped()) {
                let skipped = state.skip(|point| point.targets.contains(&target));
                self.note_skipped(&skipped, &reason);
            }
        }
        for target in 0..group.targets.len() {
            self.ask_target(&mut state, target, |executor| executor.prepare(target));
        }
        for block in 0..group.blocks.len() {
            self.block(&mut state, block);
        }
        for target in 0..group.targets.len() {
            self.ask_target(&mut state, target, |executor| executor.verify(target));
        }
        self.executor.stop();
        if let (missing @ 1.., all) = state.unmeasured() {
            let why = if self.recorder.interrupted { "interrupted" } else { "out of time" };
            let title = &group.title;
            self.recorder.note(format!("{title}: {missing} of {all} points not measured ({why})"));
        }
    }

    /// Steps 2 and 4, of a target that somebody still asks.
    fn ask_target(
        &mut self,
        state: &mut StateOf<E>,
        target: usize,
        ask: impl FnOnce(&mut E) -> Reply,
    ) {
        let Some(user) = state.user_of(target).filter(|_| !self.stopped()) else { return };
        let reply = ask(self.executor);
        reply.notes.into_iter().for_each(|note| self.recorder.note(note));
        if let Some(engine) = &reply.engine {
            self.recorder.engine(user.engine, engine, &user.params);
        }
        match reply.outcome {
            Outcome::Done => {}
            Outcome::Interrupted => self.recorder.interrupted = true,
            Outcome::Unavailable(reason) | Outcome::Refused(reason) => {
                let skipped = state.skip(|point| point.targets.contains(&target));
                self.note_skipped(&skipped, &reason);
            }
            Outcome::Wrong(what) => self.wrong(state, user, &[target], &what),
        }
    }

    /// Rounds until the budget is used up.
    fn block(&mut self, state: &mut StateOf<E>, block: usize) {
        let budget = state.group.blocks[block].budget;
        let begin = self.executor.now();
        let mut turn = Turn { block, round: 0, done: 0, begin, until: Duration::MAX };
        for _ in 0..budget.warmups {
            if budget.at_least <= 1 {
                turn.until = begin.saturating_add(budget.time);
            }
            self.pass(state, turn);
        }
        turn.begin = self.executor.now();
        for done in 0..budget.at_most {
            let spent = self.executor.now().saturating_sub(turn.begin);
            let is_idle = state.skipped[block].iter().all(|&skipped| skipped);
            if self.stopped() || is_idle || budget.is_spent(done, spent) {
                return;
            }
            // The first rounds may take their time, so that no point is missing, but not for ever.
            if budget.at_least <= 1 || done as usize >= SAMPLES_FOR_INTERVAL {
                turn.until = turn.begin.saturating_add(budget.times(OVERDRAWN));
            }
            self.recorder.round += 1;
            turn.round = self.recorder.round;
            turn.done = done;
            self.pass(state, turn);
        }
    }

    /// Every point of the block once.
    fn pass(&mut self, state: &mut StateOf<E>, turn: Turn) {
        let group = state.group;
        let Block { points, budget } = &group.blocks[turn.block];
        for (at, index) in self.order(points.len(), *budget, turn).into_iter().enumerate() {
            if self.stopped() || self.executor.now() > turn.until {
                return;
            }
            let done = f64::from(turn.done) + at as f64 / points.len() as f64;
            let spent = self.executor.now().saturating_sub(turn.begin);
            let what =
                || format!("{}, round {}: {}", group.title, turn.round, points[index].engine);
            self.progress
                .advance(what, if turn.round > 0 { budget.share(done, spent) } else { 0.0 });
            for _ in 0..budget.repeats {
                let begin = self.executor.now();
                if state.skipped[turn.block][index] || self.stopped() {
                    break;
                }
                self.sample(state, turn, index);
                if self.executor.now().saturating_sub(begin) > CHEAP {
                    break;
                }
            }
        }
    }

    fn order(&mut self, count: usize, budget: Budget, turn: Turn) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        match budget.order {
            Order::Shuffled => self.rng.shuffle(&mut order),
            Order::Alternating if turn.round % 2 == 0 => order.reverse(),
            Order::Alternating => {}
        }
        order
    }

    fn sample(&mut self, state: &mut StateOf<E>, turn: Turn, index: usize) {
        let point = &state.group.blocks[turn.block].points[index];
        let reply = self.executor.perform(point, turn.round);
        reply.notes.into_iter().for_each(|note| self.recorder.note(note));
        if turn.round > 0 {
            for number in reply.numbers {
                self.record(point, number, turn.round);
            }
        }
        match reply.outcome {
            Outcome::Done => state.measured[turn.block][index] += u32::from(turn.round > 0),
            Outcome::Interrupted => self.recorder.interrupted = true,
            Outcome::Unavailable(reason) => {
                let skipped = state.skip(|other| std::ptr::eq(other, point));
                self.note_skipped(&skipped, &reason);
            }
            Outcome::Refused(reason) => {
                let skipped = state.skip(|other| other.engine == point.engine);
                let reason = format!("left out from round {}: {reason}", turn.round);
                self.note_skipped(&skipped, &reason);
            }
            Outcome::Wrong(what) => self.wrong(state, point, &point.targets, &what),
        }
    }

    fn record(&mut self, point: &Point<E::Op>, number: Number, round: u32) {
        let mut params = point.params.clone();
        params.extend(number.params);
        self.recorder.sample(Sample {
            experiment: String::new(),
            engine: number.engine.unwrap_or_else(|| point.engine.into()),
            metric: number.metric,
            unit: number.unit.into(),
            value: number.value,
            params,
            round: number.round.unwrap_or(round),
            at_s: 0.0,
        });
    }

    fn wrong(
        &mut self,
        state: &mut StateOf<E>,
        point: &Point<E::Op>,
        targets: &[usize],
        what: &str,
    ) {
        let skipped = state.skip(|other| match targets {
            [] => other.engine == point.engine,
            _ => targets.iter().any(|target| other.targets.contains(target)),
        });
        self.recorder.wrong(format!("{}, {}: {what}", state.group.title, point.engine));
        self.note_skipped(&skipped, what);
    }

    /// Notes why points are skipped: the text once, for whoever judges each with its parameters.
    fn note_skipped(&mut self, points: &[&Point<E::Op>], reason: &str) {
        for point in points {
            self.recorder.skip(point.engine, &point.params, reason);
        }
    }

    fn stopped(&mut self) -> bool {
        self.recorder.interrupted |= self.executor.interrupted();
        self.recorder.interrupted
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::{BTreeMap, VecDeque};

    /// An executor without processes: "plain" costs 1000, everybody else 5, each op advances the clock by 10 ms. A target
    /// is its configuration; an op does nothing. `script` replaces the next replies of who is not plain.
    #[derive(Default)]
    pub struct Fake {
        pub clock: Duration,
        /// Whether it was plain's turn.
        pub order: Vec<bool>,
        pub script: VecDeque<Outcome>,
        /// What the first target that is not plain says when it is prepared.
        pub prepared: Option<Outcome>,
        pub stops: usize,
        pub interrupt_after: Option<usize>,
        /// A target that does not start; whoever asks it hears that it is gone.
        pub absent: Option<usize>,
    }

    impl Executor for Fake {
        type Target = &'static str;
        type Op = ();

        fn start(&mut self, targets: &[&'static str]) -> Vec<Option<String>> {
            let why = |index| (self.absent == Some(index)).then(|| "not installed".into());
            (0..targets.len()).map(why).collect()
        }

        fn prepare(&mut self, target: usize) -> Reply {
            let scripted = self.prepared.take_if(|_| target == 1);
            scripted.unwrap_or_default().into()
        }

        fn perform(&mut self, point: &Point<()>, _: u32) -> Reply {
            self.clock += Duration::from_millis(10);
            if point.targets.iter().any(|&target| self.absent == Some(target)) {
                return Outcome::Wrong("it is gone".into()).into();
            }
            let is_plain = point.engine == "plain";
            self.order.push(is_plain);
            if let Some(outcome) = self.script.pop_front().filter(|_| !is_plain) {
                return outcome.into();
            }
            Reply::numbers(vec![Number::new("read", "ns", if is_plain { 1000.0 } else { 5.0 })])
        }

        fn verify(&mut self, target: usize) -> Reply {
            Reply { engine: (target == 1).then(|| "huge".into()), ..Reply::default() }
        }

        fn stop(&mut self) {
            self.stops += 1;
        }

        fn now(&self) -> Duration {
            self.clock
        }

        fn interrupted(&self) -> bool {
            self.interrupt_after.is_some_and(|count| self.order.len() >= count)
        }
    }

    /// Three points each of plain and image.
    fn group(budget: Budget) -> Group<&'static str, ()> {
        let point = |(target, engine, size): (usize, &'static str, u32)| Point {
            engine,
            targets: vec![target],
            params: Params::from([("bytes".to_string(), size.into())]),
            op: (),
        };
        let all = [(0, "plain"), (1, "image")].into_iter();
        let all = all.flat_map(|(target, engine)| [1, 2, 3].map(|size| (target, engine, size)));
        let blocks = vec![Block { points: all.map(point).collect(), budget }];
        Group { title: "1 GB".into(), targets: vec!["plain", "image"], blocks, expected: 1.0 }
    }

    fn pair(budget: Budget) -> Group<&'static str, ()> {
        let mut pair = group(budget);
        pair.blocks[0].points.retain(|point| point.params["bytes"] == 1);
        pair
    }

    fn run(fake: &mut Fake, group: Group<&'static str, ()>) -> Recorder {
        let mut recorder = Recorder::nowhere("latency");
        let mut runner = Runner {
            executor: fake,
            recorder: &mut recorder,
            progress: &mut Progress::silent(1.0),
            rng: Rng::with_seed(1),
        };
        runner.run(&[group]);
        recorder
    }

    fn values(recorder: &Recorder, engine: &str) -> Vec<f64> {
        recorder.recording.values(engine, "read", |_| true)
    }

    #[test]
    fn each_round_asks_both_once_and_the_order_changes() {
        let mut fake = Fake::default();
        let recorder = run(&mut fake, pair(Budget::new(2, 5, 40, 100.0)));
        assert_eq!(values(&recorder, "plain").len(), 40);
        assert_eq!(values(&recorder, "image"), [5.0; 40]);
        assert_eq!(fake.order.len(), 2 * 42);
        assert!(fake.order.chunks(2).all(|round| round[0] != round[1]));
        let image_first = fake.order.chunks(2).filter(|round| round[1]).count();
        assert!((8..=34).contains(&image_first), "{image_first} of 42");
        assert_eq!((fake.stops, recorder.recording.engines.len()), (1, 1));
    }

    #[test]
    fn few_long_ops_are_first_equally_often() {
        let mut fake = Fake::default();
        let budget = Budget { order: Order::Alternating, ..Budget::rounds(6) };
        run(&mut fake, pair(budget));
        assert_eq!(fake.order, [true, false, false, true].repeat(3));
    }

    #[test]
    fn every_round_has_every_point_once() {
        let recorder = run(&mut Fake::default(), group(Budget::new(1, 1, 200, 1.0)));
        let mut seen: BTreeMap<(u32, String, String), u32> = BTreeMap::new();
        for sample in &recorder.recording.samples {
            let point = format!("{:?}", sample.params);
            *seen.entry((sample.round, sample.engine.clone(), point)).or_default() += 1;
        }
        assert!(recorder.round >= 5, "{}", recorder.round);
        assert_eq!(seen.len() as u32, recorder.round * 6);
        assert!(seen.values().all(|&count| count == 1));
        assert!(recorder.wrongs.is_empty() && !recorder.interrupted);
        assert!(recorder.recording.notes.is_empty());
    }

    #[test]
    fn time_ends_a_block_but_not_before_the_least_rounds() {
        let count = |budget| values(&run(&mut Fake::default(), pair(budget)), "plain").len();
        assert_eq!(count(Budget::new(0, 3, 1000, 0.2)), 10);
        assert_eq!(count(Budget::new(0, 15, 1000, 0.2)), 15);
        // Three times overdrawn: the last round is cut short.
        assert_eq!(count(Budget::new(0, 500, 1000, 0.2)), 30);
        // One round of two points takes 20 ms of the fake's clock.
        assert_eq!(count(Budget::new(0, 1, 200, 0.035)), 2);
    }

    #[test]
    fn a_point_that_cannot_is_skipped_with_a_note_and_the_others_go_on() {
        let refusal = Outcome::Unavailable("no memory".into());
        let mut fake = Fake { script: vec![refusal; 12].into(), ..Fake::default() };
        let recorder = run(&mut fake, group(Budget::new(0, 1, 6, 9.0)));
        assert_eq!(values(&recorder, "plain").len(), 18);
        assert_eq!(recorder.recording.notes, ["image: no memory"]);
        assert_eq!(recorder.recording.skips.len(), 3);
        assert!(recorder.wrongs.is_empty());
    }

    #[test]
    fn a_configuration_that_is_refused_is_not_tried_again() {
        let refusal = Outcome::Refused("needs root".into());
        let mut fake = Fake { script: vec![refusal; 6].into(), ..Fake::default() };
        let recorder = run(&mut fake, group(Budget::rounds(4)));
        assert_eq!(values(&recorder, "plain").len(), 12);
        assert_eq!(values(&recorder, "image").len(), 0);
        assert_eq!(recorder.recording.notes, ["image: left out from round 1: needs root"]);
    }

    #[test]
    fn wrong_content_is_remembered_and_its_target_is_left_alone() {
        let wrong = Outcome::Wrong("page 7".into());
        let mut fake = Fake { prepared: Some(wrong), ..Fake::default() };
        let recorder = run(&mut fake, group(Budget::new(0, 1, 3, 9.0)));
        assert_eq!(recorder.wrongs, ["1 GB, image: page 7"]);
        assert_eq!((values(&recorder, "image").len(), values(&recorder, "plain").len()), (0, 9));
    }

    #[test]
    fn a_target_that_cannot_be_prepared_is_skipped_and_is_not_wrong() {
        let refusal = Outcome::Unavailable("no engine is loaded".into());
        let mut fake = Fake { prepared: Some(refusal), ..Fake::default() };
        let recorder = run(&mut fake, pair(Budget::new(0, 1, 6, 9.0)));
        assert_eq!(recorder.recording.skips[0].reason, "no engine is loaded");
        assert_eq!((values(&recorder, "image").len(), values(&recorder, "plain").len()), (0, 6));
        assert!(recorder.wrongs.is_empty());
    }

    #[test]
    fn a_target_that_did_not_start_is_asked_nothing_and_is_not_wrong() {
        let mut fake = Fake { absent: Some(1), ..Fake::default() };
        let recorder = run(&mut fake, group(Budget::new(1, 1, 200, 0.5)));
        assert_eq!(recorder.recording.notes, ["image: not installed"]);
        assert!(recorder.wrongs.is_empty(), "{:?}", recorder.wrongs);
        assert!(recorder.recording.samples.iter().all(|sample| sample.engine == "plain"));
    }

    #[test]
    fn an_interruption_keeps_the_samples_and_says_what_is_missing() {
        let mut fake = Fake { interrupt_after: Some(4), ..Fake::default() };
        let recorder = run(&mut fake, group(Budget::new(0, 1, 50, 9.0)));
        assert!(recorder.interrupted);
        assert_eq!((recorder.recording.samples.len(), fake.stops), (4, 1));
        assert_eq!(recorder.recording.notes, ["1 GB: 2 of 6 points not measured (interrupted)"]);
    }

    #[test]
    fn cheap_points_are_sampled_several_times_a_round() {
        let budget = Budget { repeats: 3, ..Budget::new(0, 1, 1, 9.0) };
        let recorder = run(&mut Fake::default(), group(budget));
        assert_eq!((values(&recorder, "plain").len(), values(&recorder, "image").len()), (9, 9));
        assert!(recorder.recording.samples.iter().all(|sample| sample.round == 1));
    }

    #[test]
    fn the_share_done_grows_and_ends_at_one() {
        let budget = Budget::new(0, 1, 10, 2.0);
        assert_eq!(budget.share(0.0, Duration::ZERO), 0.0);
        assert_eq!(budget.share(5.0, Duration::from_millis(200)), 0.5);
        assert_eq!(budget.share(1.0, Duration::from_secs(1)), 0.5);
        assert_eq!(budget.share(3.0, Duration::from_secs(60)), 1.0);
    }
}
