//! A run: one experiment after the other, each fitted to the memory that is there, measured, verified, reported on.
//!
//! Steps of one experiment: 1. fit, 2. start, 3. prepare, 4. measure, 5. verify, 6. stop. A step that fails
//! silences the arms it concerns and the run goes on; only wrong content makes the run fail in the end.

use serde_json::Value;

use crate::experiments::{Act, Engine, Experiment, MIB};
use crate::figures::Figure;
use crate::pairing::{measure, Executor, Reply};
use crate::progress::Progress;
use crate::record::{Record, Sizes};
use crate::workload::protocol::Command;
use odfork_samples::stats::{median, Rng};

/// A stock fork this many times longer than its processor time was disturbed.
const DISTURBED: f64 = 1.25;

/// Hears what is known after each experiment, so that a late failure loses nothing.
pub trait Witness {
    fn experiment_done(&mut self, experiment: &Experiment, record: &Record);
    fn engine_stats(&mut self, experiment: &Experiment, subject: usize, stats: &str);
}

/// Leaves out the experiments and measures that none of the figures needs.
pub fn needed(plan: Vec<Experiment>, figures: &[Figure]) -> Vec<Experiment> {
    plan.into_iter()
        .filter_map(|mut experiment| {
            let labels: Vec<&str> = figures
                .iter()
                .filter(|figure| figure.experiment == experiment.name)
                .flat_map(|figure| [figure.base.label, figure.subject.label])
                .collect();
            experiment.measures.retain(|measure| labels.iter().any(|label| measure.gives(label)));
            (!experiment.measures.is_empty()).then_some(experiment)
        })
        .collect()
}

/// Runs the plan. The record is complete up to the moment it returns, also when interrupted.
pub fn run(
    plan: Vec<Experiment>,
    executor: &mut dyn Executor,
    rng: &mut Rng,
    progress: &mut Progress,
    witness: &mut dyn Witness,
) -> Record {
    let mut record = Record::default();
    let names: Vec<&str> = plan.iter().map(|experiment| experiment.name).collect();
    for experiment in plan {
        if executor.interrupted() || record.interrupted {
            record.interrupted = true;
            break;
        }
        progress.begin(experiment.name, experiment.expected_seconds());
        if let Some(experiment) = fit(experiment, executor, &mut record) {
            conduct(&experiment, executor, rng, progress, witness, &mut record);
            witness.experiment_done(&experiment, &record);
        }
        progress.end();
    }
    progress.clear();
    record.notes.extend(disturbance(&record, &names));
    record
}

/// A fork that took much longer than the processor time it used was waiting for other work.
fn disturbance(record: &Record, experiments: &[&str]) -> Option<String> {
    let factor = |experiment: &str| {
        let time = median(record.samples(experiment, "stock", "fork"))?;
        let used = median(record.samples(experiment, "stock", "fork-cpu"))?;
        let factor = time / used;
        (factor > DISTURBED).then(|| format!("{experiment} ({factor:.1}x)"))
    };
    let places: Vec<String> = experiments.iter().filter_map(|name| factor(name)).collect();
    (!places.is_empty()).then(|| {
        format!(
            "other work took the processor during forks, whose times are too long by about the factor \
             given: {}; for better figures run alone",
            places.join(", ")
        )
    })
}

/// Step 1.
fn fit(experiment: Experiment, executor: &dyn Executor, record: &mut Record) -> Option<Experiment> {
    let (name, planned, needs) = (experiment.name, experiment.size, experiment.needs());
    let available = executor.available();
    let Some(fitted) = experiment.fitted(available) else {
        record.notes.push(format!(
            "{name}: left out; it needs {} MB and {} MB are available",
            needs / MIB,
            available / MIB
        ));
        return None;
    };
    if fitted.size != planned {
        record.notes.push(format!(
            "{name}: scaled down from {} MB to {} MB; full size needs {} MB, {} MB are available",
            planned / MIB,
            fitted.size / MIB,
            needs / MIB,
            available / MIB
        ));
    }
    let sizes = Sizes { actual: fitted.size, nominal: fitted.nominal };
    record.set_sizes(name, sizes);
    Some(fitted)
}

/// Steps 2 to 6.
fn conduct(
    experiment: &Experiment,
    executor: &mut dyn Executor,
    rng: &mut Rng,
    progress: &mut Progress,
    witness: &mut dyn Witness,
    record: &mut Record,
) {
    start(experiment, executor, record);
    let count = experiment.measures.len() as f64;
    for (index, one) in experiment.measures.iter().enumerate() {
        let mut tick = |share: f64| {
            progress.advance(|| experiment.name.to_owned(), (index as f64 + share) / count);
        };
        measure(executor, experiment, one, record, rng, &mut tick);
        if record.interrupted {
            break;
        }
    }
    if !record.interrupted {
        verify(experiment, executor, record, witness);
    }
    executor.stop();
}

/// Steps 2 and 3.
fn start(experiment: &Experiment, executor: &mut dyn Executor, record: &mut Record) {
    let failures = executor.start(&experiment.subjects);
    for (subject, failure) in failures.into_iter().enumerate() {
        if executor.interrupted() {
            record.interrupted = true;
            return;
        }
        if let Some(reason) = failure {
            blame(experiment, subject, Reply::Wrong(reason), record);
        } else if let Some(command) = experiment.subjects[subject].prepare {
            let reply = executor.perform(&ask(subject, command));
            blame(experiment, subject, reply, record);
        }
    }
}

/// Step 5: every subject that still speaks checks every word; engines tell their statistics.
fn verify(
    experiment: &Experiment,
    executor: &mut dyn Executor,
    record: &mut Record,
    witness: &mut dyn Witness,
) {
    for (subject, spec) in experiment.subjects.iter().enumerate() {
        if is_silent(experiment, subject, record) {
            continue;
        }
        let reply = executor.perform(&ask(subject, Command::Verify));
        blame(experiment, subject, reply, record);
        if let Engine::Odfork(_) = spec.engine {
            if let Reply::Text(stats) = executor.perform(&ask(subject, Command::Stats)) {
                record.set_engine(experiment.name, &engine_of(&stats));
                witness.engine_stats(experiment, subject, &stats);
            }
        }
    }
}

/// "huge", or "plain (why)": the engine named in a subject's statistics.
fn engine_of(stats: &str) -> String {
    let stats: Value = serde_json::from_str(stats).unwrap_or_default();
    let word = |name: &str| stats[name].as_str().unwrap_or("").to_string();
    let (engine, reason) = (word("engine"), word("reason"));
    match engine.as_str() {
        "" => "unknown".into(),
        "plain" if !reason.is_empty() => format!("plain ({reason})"),
        _ => engine,
    }
}

fn ask(subject: usize, command: Command) -> Act {
    Act::Ask { subjects: vec![subject], command, watch: false }
}

/// The arms that ask this subject.
fn arms_of(experiment: &Experiment, subject: usize) -> impl Iterator<Item = &'static str> + '_ {
    experiment
        .measures
        .iter()
        .flat_map(|measure| &measure.arms)
        .filter(move |arm| match &arm.act {
            Act::Ask { subjects, .. } => subjects.contains(&subject),
            Act::Run(_) => false,
        })
        .map(|arm| arm.name)
}

fn is_silent(experiment: &Experiment, subject: usize, record: &Record) -> bool {
    arms_of(experiment, subject).any(|arm| record.silence_of(experiment.name, arm).is_some())
}

/// Notes a bad reply against every arm that needs the subject.
fn blame(experiment: &Experiment, subject: usize, reply: Reply, record: &mut Record) {
    let reason = match reply {
        Reply::Values(_) | Reply::Text(_) => return,
        Reply::Interrupted => {
            record.interrupted = true;
            return;
        }
        Reply::Unavailable(reason) => reason,
        Reply::Wrong(what) => {
            let arm = arms_of(experiment, subject).next().unwrap_or("a subject");
            record.wrongs.push(format!("{}, {arm}: {what}", experiment.name));
            what
        }
    };
    for arm in arms_of(experiment, subject) {
        record.silence(experiment.name, arm, &reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::figures;
    use crate::experiments::GIB;
    use crate::figures::{judge, Verdict};
    use crate::pairing::tests::Fake;
    use crate::plan::{experiments, Effort};
    use crate::record::SeriesName;
    use std::time::Duration;

    #[derive(Default)]
    struct Listener {
        done: Vec<&'static str>,
    }

    impl Witness for Listener {
        fn experiment_done(&mut self, experiment: &Experiment, _: &Record) {
            self.done.push(experiment.name);
        }
        fn engine_stats(&mut self, _: &Experiment, _: usize, _: &str) {}
    }

    fn run_fake(plan: Vec<Experiment>, fake: &mut Fake) -> (Record, Listener) {
        let mut listener = Listener::default();
        let record =
            run(plan, fake, &mut Rng::with_seed(1), &mut Progress::silent(1.0), &mut listener);
        (record, listener)
    }

    fn roomy() -> Fake {
        Fake { memory: 64 * GIB, ..Fake::default() }
    }

    #[test]
    fn a_whole_run_judges_every_figure() {
        let mut fake = roomy();
        let plan = experiments(Effort::Full);
        let count = plan.len();
        let (record, listener) = run_fake(plan, &mut fake);
        assert_eq!(listener.done.len(), count);
        assert_eq!(fake.stops, count);
        for figure in figures() {
            let finding = judge(figure, &record, &mut Rng::with_seed(1));
            let unavailable = matches!(finding.verdict, Verdict::Unavailable(_));
            // The fake has no memory to watch.
            assert_eq!(unavailable, figure.name == "freeze-memory", "{figure:?}");
        }
    }

    #[test]
    fn only_what_the_chosen_figures_need_is_run() {
        let chosen: Vec<Figure> =
            figures().into_iter().filter(|figure| figure.name == "read-1g").collect();
        let plan = needed(experiments(Effort::Full), &chosen);
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].name, "static-1g");
        assert_eq!(plan[0].measures.len(), 1);
    }

    #[test]
    fn too_little_memory_scales_down_and_says_so() {
        let mut fake = roomy();
        fake.memory = 6 * GIB;
        let (record, _) = run_fake(experiments(Effort::Full), &mut fake);
        let note = record.notes.iter().find(|note| note.starts_with("size-8g"));
        assert!(note.unwrap().contains("scaled down from 8192 MB to 2048 MB"));
        let figure = figures().into_iter().find(|f| f.name == "fork-8g").unwrap();
        let finding = judge(figure, &record, &mut Rng::with_seed(1));
        assert_eq!(finding.verdict, Verdict::Scaled { size: 2 * GIB });
    }

    #[test]
    fn the_engine_is_read_from_the_statistics() {
        let of = |text: &str| engine_of(text);
        assert_eq!(of(r#"{"engine":"huge","reason":"tmpfs"}"#), "huge");
        assert_eq!(of(r#"{"engine":"plain","reason":"no /proc"}"#), "plain (no /proc)");
        assert_eq!(of("not JSON"), "unknown");
    }

    #[test]
    fn forks_that_waited_for_the_processor_are_noted() {
        let mut record = Record::default();
        for (arm, label, time) in [("stock", "fork", 30.0), ("stock", "fork-cpu", 10.0)] {
            record.add(SeriesName::new("size-2g", arm, label), time);
            record.add(SeriesName::new("size-4g", arm, label), 7.0);
        }
        let note = disturbance(&record, &["size-2g", "size-4g", "small-8m"]).unwrap();
        assert!(note.contains("size-2g (3.0x)") && !note.contains("size-4g"));
        assert_eq!(disturbance(&record, &["size-4g"]), None);
    }

    #[test]
    fn no_memory_leaves_experiments_out_with_the_reason() {
        let mut fake = roomy();
        fake.memory = 100 * MIB;
        let (record, listener) = run_fake(experiments(Effort::Full), &mut fake);
        assert!(listener.done.is_empty());
        assert!(record.notes[0].contains("left out"), "{}", record.notes[0]);
    }

    #[test]
    fn an_engine_that_cannot_prepare_is_silent_but_stock_is_measured() {
        let mut fake = roomy();
        fake.script = [Reply::Unavailable("no engine is loaded".into())].into();
        let plan: Vec<Experiment> = experiments(Effort::Full)
            .into_iter()
            .filter(|experiment| experiment.name == "dirty-1g")
            .collect();
        let (record, _) = run_fake(plan, &mut fake);
        assert_eq!(record.silence_of("dirty-1g", "odfork"), Some("no engine is loaded"));
        assert!(!record.samples("dirty-1g", "stock", "folded").is_empty());
        assert!(record.wrongs.is_empty());
    }

    #[test]
    fn an_interruption_ends_the_run_and_keeps_what_is_there() {
        let mut fake = roomy();
        fake.interrupt_after = Some(60);
        let (record, listener) = run_fake(experiments(Effort::Full), &mut fake);
        assert!(record.interrupted);
        assert!(listener.done.len() < 3);
        assert!(!record.samples("small-8m", "stock", "program").is_empty());
        assert!(fake.clock < Duration::from_secs(2));
    }
}
