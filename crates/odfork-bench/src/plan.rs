//! The list of experiments of a run, at full effort or quick. Data, no doing.
//!
//! Budgets were chosen so that a full run stays below eight minutes on two cores of a virtual machine and a quick
//! one below forty seconds. An arm's name is the engine, or what makes it a reference.

use crate::experiments::{
    Act, Arm, Budget, Engine, Experiment, Freeze, Measure, ProgramSpec, SubjectSpec, GIB, MIB,
};
use crate::workload::memory::Layout;
use crate::workload::protocol::Command;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Full,
    /// Small sizes and few rounds: shows that everything runs, not how fast it is.
    Quick,
}

impl Effort {
    fn size(self, nominal: u64) -> u64 {
        match self {
            Effort::Full => nominal,
            Effort::Quick => (nominal / 32).max(16 * MIB).min(nominal),
        }
    }

    /// Warm-up rounds, rounds at least and at most, seconds.
    fn budget(self, warmup: u32, least: u32, most: u32, seconds: f64) -> Budget {
        match self {
            Effort::Full => Budget::new(warmup, least, most, seconds),
            Effort::Quick => Budget::new(1, 3, most.min(5), seconds.min(0.3)),
        }
    }

    /// How many times a command repeats inside one sample.
    fn calls(self, calls: u32) -> u32 {
        match self {
            Effort::Full => calls,
            Effort::Quick => calls.min(2),
        }
    }
}

/// The experiments at 64 MB to 8 GB whose fork times make the curve.
pub const CURVE: [(&str, u64); 5] = [
    ("size-64m", 64 * MIB),
    ("size-512m", 512 * MIB),
    ("size-2g", 2 * GIB),
    ("size-4g", 4 * GIB),
    ("size-8g", 8 * GIB),
];

/// All experiments, cheap ones first, so that an interrupted run has many figures.
pub fn experiments(effort: Effort) -> Vec<Experiment> {
    let mut plan = vec![
        small(effort),
        once(effort, "once-64m", 64 * MIB, 40, 10.0),
        curve(effort, CURVE[0]),
        curve(effort, CURVE[1]),
        still(effort),
        dirty(effort),
        freeze(effort),
        peak(effort),
        threads(effort),
        heap(effort),
        rewriting(effort),
        growth(effort),
        once(effort, "once-1g", GIB, 12, 18.0),
        three(effort),
        curve(effort, CURVE[2]),
        curve(effort, CURVE[3]),
    ];
    plan.push(curve(effort, CURVE[4]));
    plan
}

const STOCK: Engine = Engine::Stock;
const EAGER: Engine = Engine::Odfork(Freeze::Eager);
const AUTO: Engine = Engine::Odfork(Freeze::Auto);
const NEVER: Engine = Engine::Odfork(Freeze::Never);

fn ask(name: &'static str, subject: usize, command: Command) -> Arm {
    Arm { name, act: Act::Ask { subjects: vec![subject], command, watch: false } }
}

/// Subjects 0, 1, ... asked the same.
fn ask_each(names: &[&'static str], command: Command) -> Vec<Arm> {
    names.iter().enumerate().map(|(subject, name)| ask(name, subject, command)).collect()
}

fn run(name: &'static str, engine: Engine, size: u64, forks: u32) -> Arm {
    let act = Act::Run(ProgramSpec { engine, size, forks });
    Arm { name, act }
}

fn experiment(
    name: &'static str,
    (size, nominal): (u64, u64),
    subjects: Vec<SubjectSpec>,
    measures: Vec<(Vec<Arm>, Budget)>,
) -> Experiment {
    Experiment {
        name,
        size,
        nominal,
        copies: 0,
        subjects,
        measures: measures.into_iter().map(|(arms, budget)| Measure { arms, budget }).collect(),
    }
}

fn huge(size: u64) -> SubjectSpec {
    SubjectSpec { layout: Layout::Huge, ..SubjectSpec::new(STOCK, size) }
}

/// A static parent of 1 GB and everything its children can do.
fn still(effort: Effort) -> Experiment {
    let size = effort.size(GIB);
    let engines = ["stock", "odfork", "thp"];
    let calls = effort.calls(3);
    let on = |command, budget| (ask_each(&engines, command), budget);
    let mut still = experiment(
        "static-1g",
        (size, GIB),
        vec![SubjectSpec::new(STOCK, size), SubjectSpec::new(EAGER, size), huge(size)],
        vec![
            on(Command::Fork { calls }, effort.budget(2, 8, 40, 9.0)),
            on(Command::Read, effort.budget(1, 6, 30, 7.0)),
            on(Command::Sparse, effort.budget(1, 6, 30, 8.0)),
            on(Command::Full, effort.budget(1, 6, 20, 16.0)),
            on(Command::Fault, effort.budget(1, 8, 40, 5.0)),
            on(Command::Crowd { children: 32 }, effort.budget(1, 3, 10, 10.0)),
        ],
    );
    still.copies = 1;
    still
}

/// One point of the curve, with the references of "flat" and "empty" in the same rounds.
fn curve(effort: Effort, (name, nominal): (&'static str, u64)) -> Experiment {
    let size = effort.size(nominal);
    let reference = effort.size(64 * MIB).min(size);
    // Stock needs 0.4 s for each fork and exit at 8 GB: one call a sample is enough there.
    let stock_calls = if nominal >= 2 * GIB { 1 } else { 5 };
    let fork = |calls| Command::Fork { calls: effort.calls(calls) };
    experiment(
        name,
        (size, nominal),
        vec![
            SubjectSpec::new(STOCK, size),
            SubjectSpec::new(EAGER, size),
            SubjectSpec::new(EAGER, reference),
            SubjectSpec::new(STOCK, 0),
        ],
        vec![(
            vec![
                ask("stock", 0, fork(stock_calls)),
                ask("odfork", 1, fork(5)),
                ask("odfork-64m", 2, fork(5)),
                ask("empty", 3, fork(5)),
            ],
            effort.budget(3, 10, 40, if nominal >= 4 * GIB { 9.0 } else { 4.0 }),
        )],
    )
}

/// The parent dirties one page in 64 KB, forks, folds, forks. The engine never acts by itself here.
fn dirty(effort: Effort) -> Experiment {
    let size = effort.size(GIB);
    let calls = effort.calls(3);
    experiment(
        "dirty-1g",
        (size, GIB),
        vec![
            SubjectSpec::new(STOCK, size),
            SubjectSpec { prepare: Some(Command::Freeze), ..SubjectSpec::new(NEVER, size) },
        ],
        vec![(
            ask_each(&["stock", "odfork"], Command::Cycle { calls }),
            effort.budget(1, 6, 30, 12.0),
        )],
    )
}

/// Freezing against memcpy of the same bytes in the same process; thawed between, so each round begins alike.
fn freeze(effort: Effort) -> Experiment {
    let size = effort.size(GIB);
    let mut freeze = experiment(
        "freeze-1g",
        (size, GIB),
        vec![SubjectSpec::new(NEVER, size)],
        vec![(
            vec![
                ask("odfork", 0, Command::FreezeThaw),
                ask("memcpy-touched", 0, Command::CopyTouched),
                ask("memcpy-fresh", 0, Command::CopyFresh),
            ],
            effort.budget(1, 6, 20, 20.0),
        )],
    );
    freeze.copies = 1;
    freeze
}

/// Memory taken while freezing. Apart from `freeze`, because the watching takes time from the other core.
fn peak(effort: Effort) -> Experiment {
    let size = effort.size(GIB);
    let watched = Arm {
        name: "odfork",
        act: Act::Ask { subjects: vec![0], command: Command::Freeze, watch: true },
    };
    let mut peak = experiment(
        "peak-1g",
        (size, GIB),
        vec![SubjectSpec::new(NEVER, size)],
        vec![(vec![watched], effort.budget(1, 5, 10, 5.0))],
    );
    peak.copies = 1;
    peak
}

/// A parent with four more threads that sleep.
fn threads(effort: Effort) -> Experiment {
    let size = effort.size(512 * MIB);
    let threaded = |engine| SubjectSpec { threads: 4, ..SubjectSpec::new(engine, size) };
    let calls = effort.calls(3);
    experiment(
        "threads-512m",
        (size, 512 * MIB),
        vec![threaded(STOCK), threaded(EAGER)],
        vec![(
            ask_each(&["stock", "odfork"], Command::Fork { calls }),
            effort.budget(2, 8, 30, 4.0),
        )],
    )
}

/// The memory comes from malloc in 64 KB blocks: the brk heap.
fn heap(effort: Effort) -> Experiment {
    let size = effort.size(512 * MIB);
    let malloced =
        |engine| SubjectSpec { layout: Layout::Malloced, ..SubjectSpec::new(engine, size) };
    let calls = effort.calls(3);
    experiment(
        "heap-512m",
        (size, 512 * MIB),
        vec![malloced(STOCK), malloced(EAGER)],
        vec![(
            ask_each(&["stock", "odfork"], Command::Fork { calls }),
            effort.budget(2, 8, 30, 4.0),
        )],
    )
}

/// The parent rewrites everything between forks: the worst case for an image.
fn rewriting(effort: Effort) -> Experiment {
    let size = effort.size(256 * MIB);
    let mut rewriting = experiment(
        "rewrite-256m",
        (size, 256 * MIB),
        vec![
            SubjectSpec::new(STOCK, size),
            SubjectSpec::new(AUTO, size),
            SubjectSpec::new(EAGER, size),
        ],
        vec![(
            ask_each(&["stock", "odfork", "eager"], Command::Rewrite),
            effort.budget(3, 8, 30, 10.0),
        )],
    );
    rewriting.copies = 2;
    rewriting
}

/// A block of 64 MB that was there at a fork grows to 256 MB by realloc.
fn growth(effort: Effort) -> Experiment {
    let size = effort.size(64 * MIB);
    let mut growth = experiment(
        "realloc-64m",
        (size, 64 * MIB),
        vec![SubjectSpec::new(STOCK, 0), SubjectSpec::new(EAGER, 0)],
        vec![(
            ask_each(&["stock", "odfork"], Command::Realloc { bytes: size }),
            effort.budget(1, 6, 20, 6.0),
        )],
    );
    growth.copies = 10;
    growth
}

/// Three parents of 1 GB that fork at the same time.
fn three(effort: Effort) -> Experiment {
    let size = effort.size(GIB);
    let subjects = [[STOCK; 3], [EAGER; 3]].concat();
    let calls = effort.calls(2);
    let together = |name, subjects: [usize; 3]| Arm {
        name,
        act: Act::Ask {
            subjects: subjects.to_vec(),
            command: Command::Fork { calls },
            watch: false,
        },
    };
    experiment(
        "three-1g",
        (size, GIB),
        subjects
            .into_iter()
            .map(|engine| SubjectSpec { pinned: false, ..SubjectSpec::new(engine, size) })
            .collect(),
        vec![(
            vec![together("stock", [0, 1, 2]), together("odfork", [3, 4, 5])],
            effort.budget(2, 6, 20, 7.0),
        )],
    )
}

/// A small program that forks 200 times, start to end.
fn small(effort: Effort) -> Experiment {
    let size = 8 * MIB;
    experiment(
        "small-8m",
        (size, size),
        vec![],
        vec![(
            vec![run("stock", STOCK, size, 200), run("odfork", AUTO, size, 200)],
            effort.budget(2, 10, 120, 20.0),
        )],
    )
}

/// A program that forks once, start to end: by default, and when told to be eager.
fn once(effort: Effort, name: &'static str, nominal: u64, rounds: u32, seconds: f64) -> Experiment {
    let size = effort.size(nominal);
    let mut once = experiment(
        name,
        (size, nominal),
        vec![],
        vec![(
            vec![
                run("stock", STOCK, size, 1),
                run("odfork", AUTO, size, 1),
                run("eager", EAGER, size, 1),
            ],
            effort.budget(1, 6, rounds, seconds),
        )],
    );
    once.copies = 2;
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_arms_refer_to_subjects_that_exist() {
        for effort in [Effort::Full, Effort::Quick] {
            let plan = experiments(effort);
            let names: BTreeSet<&str> = plan.iter().map(|e| e.name).collect();
            assert_eq!(names.len(), plan.len());
            for experiment in &plan {
                for arm in experiment.measures.iter().flat_map(|m| &m.arms) {
                    if let Act::Ask { subjects, .. } = &arm.act {
                        let known = experiment.subjects.len();
                        assert!(subjects.iter().all(|&subject| subject < known));
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_run_is_at_most_eight_minutes_and_a_quick_one_forty_seconds() {
        let total =
            |effort| -> f64 { experiments(effort).iter().map(Experiment::expected_seconds).sum() };
        assert!(total(Effort::Full) < 480.0, "{}", total(Effort::Full));
        assert!(total(Effort::Quick) < 40.0, "{}", total(Effort::Quick));
    }

    #[test]
    fn the_largest_experiment_fits_a_machine_of_24_gb() {
        for experiment in experiments(Effort::Full) {
            let fitted = experiment.fitted(22 * GIB).unwrap();
            assert_eq!(fitted.size, fitted.nominal, "{}", fitted.name);
        }
    }

    #[test]
    fn a_quick_run_needs_little_memory() {
        for experiment in experiments(Effort::Quick) {
            assert!(experiment.needs() < 3 * GIB, "{}", experiment.name);
        }
    }
}
