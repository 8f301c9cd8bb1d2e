//! The runner with an executor that computes: order, budgets, skipping, wrong content,
//! interruption.

use super::*;
use odfork_samples::samples::Params;
use std::collections::{BTreeMap, VecDeque};

/// An executor without processes: "plain" costs 1000, everybody else 5, each op advances the clock
/// by 10 ms. A target is its configuration; an op does nothing. `script` replaces the next replies
/// of who is not plain.
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
