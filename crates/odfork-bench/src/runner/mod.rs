//! The one loop of all experiments: rounds in which every point is done once, in an order that
//! changes.
//!
//! A suite gives *groups*: targets that are alive together, and *blocks* of points that are
//! interleaved on them. A point names its configuration (`engine` in the samples), its parameters,
//! and an op: what is done once. What an op is, only the suite's [`Executor`] knows: a command to
//! subjects, a whole program, a round of paging, the boot of a guest.
//!
//! Steps of a group: 1. start, 2. prepare, 3. rounds of each block, 4. verify, 5. stop. Whoever
//! cannot take part is skipped with a note; wrong content makes the run fail in the end. Each
//! number goes to the [`Recorder`] as it comes and names its round, so an interruption loses
//! nothing and pairs can be told.

mod group;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use odfork_proc::interrupt;
use odfork_samples::samples::Sample;
use odfork_samples::stats::{Rng, SAMPLES_FOR_INTERVAL};

use crate::progress::Progress;
use crate::recorder::Recorder;
use group::OVERDRAWN;
pub use group::{Block, Budget, Group, Number, Order, Outcome, Point, Reply};

/// A sample below this is cheap.
const CHEAP: Duration = Duration::from_millis(25);

/// Does what points say: real ones talk to processes, the fake one of the tests computes.
pub trait Executor {
    /// What is started for a group and lives until its end; `()` where every op starts its own.
    type Target;
    /// What is done at a point.
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
    /// Asked once of each target after the last round: is its content right, which engine did it
    /// use?
    fn verify(&mut self, _target: usize) -> Reply {
        Reply::default()
    }
    /// Ends all targets.
    fn stop(&mut self) {}
    /// Time since some fixed moment.
    fn now(&self) -> Duration;
    /// Ctrl-C came.
    fn interrupted(&self) -> bool {
        interrupt::asked()
    }
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

/// Runs the groups of one experiment, with its progress on stderr; the recorder is still to be
/// closed.
pub fn conduct<E: Executor>(
    executor: &mut E,
    recorder: &mut Recorder,
    groups: &[GroupOf<E>],
    seed: u64,
) {
    let mut progress = Progress::on_stderr(groups.iter().map(|group| group.expected).sum());
    let (progress, rng) = (&mut progress, Rng::with_seed(seed));
    Runner { executor, recorder, progress, rng }.run(groups);
}

struct Runner<'a, E: Executor> {
    executor: &'a mut E,
    recorder: &'a mut Recorder,
    progress: &'a mut Progress,
    rng: Rng,
}

impl<E: Executor> Runner<'_, E> {
    /// One group after the other, until the end or an interruption, which the recorder then knows.
    fn run(&mut self, groups: &[GroupOf<E>]) {
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
        let Number { metric, unit, value, params, engine, round: own } = number;
        let engine = engine.as_deref().unwrap_or(point.engine);
        let mut sample = Sample::of(engine, (&metric, unit), value);
        sample.params = point.params.clone();
        sample.params.extend(params);
        self.recorder.sample(sample.in_round(own.unwrap_or(round)));
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
