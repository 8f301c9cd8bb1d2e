//! Interleaving: every round asks each arm once, in a new random order, so that whatever the machine does
//! meanwhile hits all arms alike. Pure but for the executor it is given; tests give it a fake one.
//!
//! A round counts only when every live arm has answered: partial rounds are thrown away, so the i-th samples of
//! all arms belong together. An arm that cannot answer falls silent and the others go on.

use std::time::Duration;

use crate::experiments::{Act, Arm, Budget, Experiment, Measure, SubjectSpec};
use crate::record::{Record, SeriesName};
use odfork_samples::stats::{Rng, SAMPLES_FOR_INTERVAL};

/// What an arm gave back for one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Values(Vec<(String, f64)>),
    Text(String),
    /// Cannot be had here: the arm falls silent, nothing is wrong.
    Unavailable(String),
    /// Wrong content, or a subject that died or hung: the run fails in the end.
    Wrong(String),
    Interrupted,
}

/// Does what arms say: the real one talks to processes, the fake one of the tests computes.
pub trait Executor {
    /// Starts the subjects and waits until each holds its memory. One reason per subject that could not.
    fn start(&mut self, specs: &[SubjectSpec]) -> Vec<Option<String>>;
    fn perform(&mut self, act: &Act) -> Reply;
    /// Ends all subjects.
    fn stop(&mut self);
    /// Time since some fixed moment.
    fn now(&self) -> Duration;
    /// Memory that can be had without swapping, in bytes.
    fn available(&self) -> u64;
    fn interrupted(&self) -> bool;
}

/// Runs one measure within its budget and adds whole rounds to the record. `tick` hears the share done.
pub fn measure(
    executor: &mut dyn Executor,
    experiment: &Experiment,
    measure: &Measure,
    record: &mut Record,
    rng: &mut Rng,
    tick: &mut dyn FnMut(f64),
) {
    for _ in 0..measure.budget.warmup {
        if round(executor, experiment, measure, record, rng).is_none() {
            return;
        }
    }
    let start = executor.now();
    for done in 0..measure.budget.rounds_at_most {
        let spent = executor.now().saturating_sub(start);
        if is_spent(measure.budget, done, spent) {
            break;
        }
        tick(share(measure.budget, done, spent));
        let Some(samples) = round(executor, experiment, measure, record, rng) else {
            return;
        };
        for (name, sample) in samples {
            record.add(name, sample);
        }
    }
}

/// On a machine so slow that the least rounds take three times the budget, an interval from fewer must do.
fn is_spent(budget: Budget, rounds: u32, spent: Duration) -> bool {
    let enough = rounds >= budget.rounds_at_least && spent >= budget.time;
    let overdrawn = rounds as usize >= SAMPLES_FOR_INTERVAL && spent >= 3 * budget.time;
    enough || overdrawn
}

fn share(budget: Budget, rounds: u32, spent: Duration) -> f64 {
    let by_rounds = f64::from(rounds) / f64::from(budget.rounds_at_most.max(1));
    let by_time = spent.as_secs_f64() / budget.time.as_secs_f64().max(1e-9);
    by_rounds.max(by_time).min(1.0)
}

/// One sample of every arm that still speaks, in random order. None: interrupted, or nobody speaks.
fn round(
    executor: &mut dyn Executor,
    experiment: &Experiment,
    measure: &Measure,
    record: &mut Record,
    rng: &mut Rng,
) -> Option<Vec<(SeriesName, f64)>> {
    let mut arms: Vec<&Arm> = measure
        .arms
        .iter()
        .filter(|arm| record.silence_of(experiment.name, arm.name).is_none())
        .collect();
    if arms.is_empty() {
        return None;
    }
    rng.shuffle(&mut arms);
    let mut samples = Vec::new();
    for arm in arms {
        if executor.interrupted() {
            record.interrupted = true;
            return None;
        }
        match executor.perform(&arm.act) {
            Reply::Values(values) => {
                samples.extend(values.into_iter().map(|(label, number)| {
                    (SeriesName::new(experiment.name, arm.name, &label), number)
                }));
            }
            Reply::Text(_) => {}
            Reply::Interrupted => {
                record.interrupted = true;
                return None;
            }
            Reply::Unavailable(reason) => record.silence(experiment.name, arm.name, &reason),
            Reply::Wrong(what) => {
                record.silence(experiment.name, arm.name, &what);
                record.wrongs.push(format!("{}, {}: {what}", experiment.name, arm.name));
            }
        }
    }
    Some(samples)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::experiments::{Engine, Freeze};
    use crate::workload::protocol::Command;
    use std::collections::VecDeque;

    /// An executor without processes: stock costs 1000, the engine 5, each call advances the clock by 10 ms.
    /// `script` can replace the next replies of the engine.
    #[derive(Default)]
    pub struct Fake {
        pub clock: Duration,
        pub order: Vec<bool>,
        pub script: VecDeque<Reply>,
        pub specs: Vec<SubjectSpec>,
        pub stops: usize,
        pub interrupt_after: Option<usize>,
        pub memory: u64,
        /// A subject that does not start; whoever asks it hears that it is gone.
        pub absent: Option<usize>,
    }

    impl Fake {
        fn is_engine(&self, act: &Act) -> bool {
            let engine = match act {
                Act::Ask { subjects, .. } => self.specs[subjects[0]].engine,
                Act::Run(program) => program.engine,
            };
            matches!(engine, Engine::Odfork(_))
        }
    }

    impl Executor for Fake {
        fn start(&mut self, specs: &[SubjectSpec]) -> Vec<Option<String>> {
            self.specs = specs.to_vec();
            let why = |index| (self.absent == Some(index)).then(|| "not installed".into());
            (0..specs.len()).map(why).collect()
        }

        fn perform(&mut self, act: &Act) -> Reply {
            self.clock += Duration::from_millis(10);
            if let Act::Ask { subjects, .. } = act {
                if subjects.iter().any(|&subject| self.absent == Some(subject)) {
                    return Reply::Wrong("it is gone".into());
                }
            }
            let engine = self.is_engine(act);
            self.order.push(engine);
            if engine {
                if let Some(reply) = self.script.pop_front() {
                    return reply;
                }
            }
            let cost = if engine { 5.0 } else { 1000.0 };
            Reply::Values(match act {
                Act::Ask { command, .. } => {
                    command.labels().iter().map(|label| (label.to_string(), cost)).collect()
                }
                Act::Run(_) => vec![("program".to_string(), cost)],
            })
        }

        fn stop(&mut self) {
            self.stops += 1;
        }

        fn now(&self) -> Duration {
            self.clock
        }

        fn available(&self) -> u64 {
            self.memory
        }

        fn interrupted(&self) -> bool {
            self.interrupt_after.is_some_and(|count| self.order.len() >= count)
        }
    }

    fn pair(budget: Budget) -> Experiment {
        let ask = |name, subject| Arm {
            name,
            act: Act::Ask { subjects: vec![subject], command: Command::Read, watch: false },
        };
        Experiment {
            name: "pair",
            size: 1 << 30,
            nominal: 1 << 30,
            copies: 0,
            subjects: vec![
                SubjectSpec::new(Engine::Stock, 1 << 30),
                SubjectSpec::new(Engine::Odfork(Freeze::Eager), 1 << 30),
            ],
            measures: vec![Measure { arms: vec![ask("stock", 0), ask("odfork", 1)], budget }],
        }
    }

    fn run(budget: Budget, fake: &mut Fake) -> Record {
        let experiment = pair(budget);
        let mut record = Record::default();
        fake.start(&experiment.subjects);
        measure(
            fake,
            &experiment,
            &experiment.measures[0],
            &mut record,
            &mut Rng::with_seed(1),
            &mut |_| {},
        );
        record
    }

    #[test]
    fn each_round_asks_both_once_and_the_order_changes() {
        let mut fake = Fake::default();
        let record = run(Budget::new(2, 5, 40, 100.0), &mut fake);
        assert_eq!(record.samples("pair", "stock", "read").len(), 40);
        assert_eq!(record.samples("pair", "odfork", "read"), [5.0; 40]);
        assert_eq!(fake.order.len(), 2 * 42);
        assert!(fake.order.chunks(2).all(|round| round[0] != round[1]));
        let engine_first = fake.order.chunks(2).filter(|round| round[0]).count();
        assert!((8..=34).contains(&engine_first), "{engine_first} of 42");
    }

    #[test]
    fn time_ends_a_measure_but_not_before_the_least_rounds() {
        let enough = run(Budget::new(0, 3, 1000, 0.2), &mut Fake::default());
        assert_eq!(enough.samples("pair", "stock", "read").len(), 10);
        let least = run(Budget::new(0, 15, 1000, 0.2), &mut Fake::default());
        assert_eq!(least.samples("pair", "stock", "read").len(), 15);
        let slow = run(Budget::new(0, 500, 1000, 0.2), &mut Fake::default());
        assert_eq!(slow.samples("pair", "stock", "read").len(), 30);
    }

    #[test]
    fn an_arm_that_cannot_falls_silent_and_the_other_goes_on() {
        let mut fake = Fake {
            script: [Reply::Unavailable("no engine is loaded".into())].into(),
            ..Fake::default()
        };
        let record = run(Budget::new(0, 1, 6, 9.0), &mut fake);
        assert_eq!(record.samples("pair", "stock", "read").len(), 6);
        assert!(record.samples("pair", "odfork", "read").is_empty());
        assert_eq!(record.silence_of("pair", "odfork"), Some("no engine is loaded"));
        assert!(record.wrongs.is_empty());
    }

    #[test]
    fn wrong_content_is_remembered_as_wrong() {
        let mut fake = Fake { script: [Reply::Wrong("page 7".into())].into(), ..Fake::default() };
        let record = run(Budget::new(0, 1, 3, 9.0), &mut fake);
        assert_eq!(record.wrongs, ["pair, odfork: page 7"]);
    }

    #[test]
    fn an_interruption_keeps_whole_rounds_only() {
        let mut fake = Fake { interrupt_after: Some(7), ..Fake::default() };
        let record = run(Budget::new(0, 1, 50, 9.0), &mut fake);
        assert!(record.interrupted);
        assert_eq!(record.samples("pair", "stock", "read").len(), 3);
        assert_eq!(record.samples("pair", "odfork", "read").len(), 3);
    }

    #[test]
    fn the_share_done_grows_and_ends_at_one() {
        let budget = Budget::new(0, 1, 10, 2.0);
        assert_eq!(share(budget, 0, Duration::ZERO), 0.0);
        assert_eq!(share(budget, 5, Duration::from_millis(200)), 0.5);
        assert_eq!(share(budget, 1, Duration::from_secs(1)), 0.5);
        assert_eq!(share(budget, 3, Duration::from_secs(60)), 1.0);
    }
}
