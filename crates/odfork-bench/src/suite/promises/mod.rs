//! `promises`: the figures the project promises, and where it loses; each group's parents under
//! stock fork and odfork.
//!
//! Owns which groups and blocks give the series that `odfork_samples::promises` judges. A group is
//! halved until it fits the machine; goals apply only at its nominal size. Reference series (an
//! empty process, a 64 MB one) ride along in the same rounds, so that "flat" is a paired ratio too.
//! Budgets were chosen so that a run stays below eight minutes on two cores of a virtual machine
//! and a quick one below forty seconds.

mod parents;

use anyhow::{bail, Result};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use odfork_samples::promises::{disturbance, figures, judge, Figure, Finding};
use odfork_samples::promises::{BYTES, GROUP, NOMINAL, SERIES};
use odfork_samples::stats::Rng;

use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{Image, Plain, Thp};
use crate::figures as lines;
use crate::measure::{measure, stage};
use crate::options::{subject_command, SubjectOptions};
use crate::plan::{Config, Effort, Op, Plan, GIB, MIB};
use crate::runner::Point;
use crate::tables;
use parents::*;

pub static SUITE: Suite = Suite {
    name: "promises",
    row: "",
    question: "What do fork and what follows cost under odfork, and where does it lose?",
    published: "goals of this project; see docs/benchmarks.md",
    metrics: &[
        "fork",
        "fork-cpu",
        "total",
        "read",
        "sparse",
        "full",
        "fault",
        "crowd",
        "unfolded",
        "fold",
        "folded",
        "freeze",
        "thaw",
        "copy",
        "rewrite",
        "realloc",
        "program",
        "extra",
        "extra-system",
    ],
    params: &[GROUP, SERIES, BYTES, NOMINAL],
    configurations: &[Plain, Thp, Image],
    how: How::Own { command: options, run },
};

static SUBJECTS: Subjects = Subjects { plans, seconds: None, tables: tables::medians };

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    subjects: SubjectOptions,
    /// Only figures whose name begins with NAME; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the figures and their goals, measure nothing
    #[arg(long)]
    list: bool,
}

fn options() -> Command {
    subject_command::<Options>(Command::new(SUITE.name).about(SUITE.question)).after_help(EXAMPLES)
}

/// Measures, judges, prints; returns the exit status.
fn run(matches: &ArgMatches) -> Result<u8> {
    let Options { subjects, only, list } = Options::from_arg_matches(matches)?;
    let chosen = choose(&only)?;
    if list {
        print!("{}", lines::list(&chosen));
        return Ok(0);
    }
    if let Some(why) = Image.refusal(&stage(&subjects)?.library) {
        bail!("needed: the library; {why}");
    }
    let mut recorder = measure(&SUITE, &SUBJECTS, &subjects, only)?;
    disturbance(&recorder.recording).into_iter().for_each(|note| recorder.note(note));
    if recorder.interrupted {
        recorder.note("interrupted; the table holds what was measured".into());
    }
    let mut rng = Rng::with_seed(subjects.common.seed);
    let judged = chosen.into_iter().map(|figure| judge(figure, &recorder.recording, &mut rng));
    let findings: Vec<Finding> = judged.collect();
    findings.iter().for_each(|finding| recorder.figure(finding));
    print!("{}", lines::tables(&findings, &recorder.recording, recorder.interrupted));
    recorder.close()
}

fn is_chosen(figure: &Figure, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|word| figure.name.starts_with(word.as_str()))
}

/// The figures whose name begins with one of the words; all when there is none.
fn choose(only: &[String]) -> Result<Vec<Figure>> {
    let mut all = figures();
    if let Some(word) = only.iter().find(|word| !all.iter().any(|f| f.name.starts_with(*word))) {
        let names: Vec<&str> = all.iter().map(|figure| figure.name).collect();
        bail!("no figure begins with {word:?}; there are: {}", names.join(", "));
    }
    all.retain(|figure| is_chosen(figure, only));
    Ok(all)
}

/// One group of parents, and the size its goals speak of.
struct Case {
    name: &'static str,
    nominal: u64,
    build: fn(&Scale) -> Plan,
}

const fn case(name: &'static str, nominal: u64, build: fn(&Scale) -> Plan) -> Case {
    Case { name, nominal, build }
}

/// Cheap ones first, so that an interrupted run has many figures.
const CASES: [Case; 17] = [
    case("small-8m", 8 * MIB, small),
    case("once-64m", 64 * MIB, |scale| once(scale, 40, 10.0)),
    case("size-64m", 64 * MIB, curve),
    case("size-512m", 512 * MIB, curve),
    case("static-1g", GIB, still),
    case("dirty-1g", GIB, dirty),
    case("freeze-1g", GIB, freeze),
    case("peak-1g", GIB, peak),
    case("threads-512m", 512 * MIB, threads),
    case("heap-512m", 512 * MIB, heap),
    case("rewrite-256m", 256 * MIB, rewriting),
    case("realloc-64m", 64 * MIB, growth),
    case("once-1g", GIB, |scale| once(scale, 12, 18.0)),
    case("three-1g", GIB, three),
    case("size-2g", 2 * GIB, curve),
    case("size-4g", 4 * GIB, curve),
    case("size-8g", 8 * GIB, curve),
];

/// Below this a group says nothing any more and is left out.
const SMALLEST: u64 = 16 * MIB;

fn plans(config: &Config) -> Vec<Plan> {
    let chosen: Vec<Figure> =
        figures().into_iter().filter(|figure| is_chosen(figure, &config.only)).collect();
    CASES.iter().filter_map(|case| needed(case, fitted(case, config), &chosen)).collect()
}

/// The largest version, three quarters at a time, that fits into memory; what does not even then is
/// for the caller to leave out.
fn fitted(case: &Case, config: &Config) -> Plan {
    let planned = size_of(config.effort, case.nominal);
    let mut scale = Scale { case, size: planned, effort: config.effort };
    let mut plan = (case.build)(&scale);
    let full = plan.needs();
    while plan.needs() > config.available && scale.size / 4 * 3 >= SMALLEST {
        scale.size = scale.size / 4 * 3 / MIB * MIB;
        plan = (case.build)(&scale);
    }
    if scale.size != planned && plan.needs() <= config.available {
        plan.notes.push(format!(
            "{}: scaled down from {} MB to {} MB; full size needs {} MB, {} MB are available",
            case.name,
            planned / MIB,
            scale.size / MIB,
            full / MIB,
            config.available / MIB
        ));
    }
    plan
}

/// Without the blocks that none of the figures needs; None when nothing is left.
fn needed(case: &Case, mut plan: Plan, chosen: &[Figure]) -> Option<Plan> {
    let of_case = chosen.iter().filter(|figure| figure.group == case.name);
    let metrics: Vec<&str> =
        of_case.flat_map(|figure| [figure.base.metric, figure.subject.metric]).collect();
    let gives = |point: &Point<Op>| point.op.metrics().iter().any(|name| metrics.contains(name));
    plan.group.blocks.retain(|block| block.points.iter().any(gives));
    (!plan.group.blocks.is_empty()).then_some(plan)
}

fn size_of(effort: Effort, nominal: u64) -> u64 {
    match effort {
        Effort::Quick => (nominal / 32).max(SMALLEST).min(nominal),
        _ => nominal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::share;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn config(effort: Effort, available: u64) -> Config {
        let configurations = SUITE.configurations.to_vec();
        Config { configurations, effort, available, only: Vec::new() }
    }

    #[test]
    fn every_figure_has_a_group_whose_blocks_give_its_series() {
        let plans = plans(&config(Effort::Default, 64 * GIB));
        let mut names = BTreeSet::new();
        for figure in figures() {
            assert!(names.insert(figure.name), "{} twice", figure.name);
            let plan = plans
                .iter()
                .find(|plan| plan.group.title == figure.group)
                .unwrap_or_else(|| panic!("{}: no group", figure.name));
            let sides = [Some(figure.base), Some(figure.subject), figure.third];
            for side in sides.into_iter().flatten() {
                let mut points = plan.group.blocks.iter().flat_map(|block| &block.points);
                let gives = |point: &Point<Op>| {
                    point.params[SERIES] == side.series && point.op.metrics().contains(&side.metric)
                };
                assert!(points.any(gives), "{}: {side:?}", figure.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_points_say_what_the_suite_says() {
        for effort in [Effort::Default, Effort::Quick] {
            let plans = plans(&config(effort, 64 * GIB));
            let names: BTreeSet<&str> = plans.iter().map(|p| p.group.title.as_str()).collect();
            assert_eq!((names.len(), plans.len()), (CASES.len(), CASES.len()));
            for plan in &plans {
                for point in plan.group.blocks.iter().flat_map(|block| &block.points) {
                    assert!(point.targets.iter().all(|&t| t < plan.group.targets.len()));
                    assert!(point.op.metrics().iter().all(|name| SUITE.metrics.contains(name)));
                    let names: BTreeSet<&str> = point.params.keys().map(String::as_str).collect();
                    assert_eq!(names, SUITE.params.iter().copied().collect());
                }
            }
        }
    }

    #[test]
    fn a_run_is_at_most_eight_minutes_and_a_quick_one_forty_seconds() {
        let total = |effort| -> f64 {
            let mut plans = plans(&config(effort, 64 * GIB));
            share(&mut plans, None);
            plans.iter().map(|plan| plan.group.expected).sum()
        };
        assert!(total(Effort::Default) < 480.0, "{}", total(Effort::Default));
        assert!(total(Effort::Quick) < 40.0, "{}", total(Effort::Quick));
    }

    #[test]
    fn on_a_machine_of_24_gb_only_8_gb_is_scaled_down_and_a_quick_run_needs_little() {
        for plan in plans(&config(Effort::Default, 22 * GIB)) {
            assert!(plan.needs() <= 22 * GIB, "{}", plan.group.title);
            // Both parents of 8 GB, and a second copy of the frozen one, are more.
            let is_scaled = plan.notes.iter().any(|note| note.contains("8192 MB to 6144 MB"));
            assert_eq!(is_scaled, plan.group.title == "size-8g", "{:?}", plan.notes);
        }
        for plan in plans(&config(Effort::Quick, 22 * GIB)) {
            assert!(plan.needs() < 3 * GIB, "{}", plan.group.title);
        }
    }

    #[test]
    fn too_little_memory_scales_down_and_says_so_but_references_keep_their_size() {
        let plans = plans(&config(Effort::Default, 6 * GIB));
        let plan = plans.iter().find(|plan| plan.group.title == "size-8g").unwrap();
        assert!(plan.notes[0].contains("scaled down from 8192 MB to 1458 MB"), "{:?}", plan.notes);
        let sizes: Vec<u64> = plan.group.targets.iter().map(|subject| subject.size).collect();
        assert_eq!(sizes, [1458 * MIB, 1458 * MIB, 64 * MIB, 0]);
        let point = &plan.group.blocks[0].points[0];
        assert_eq!(
            (&point.params[BYTES], &point.params[NOMINAL]),
            (&json!(1458 * MIB), &json!(8 * GIB))
        );
        assert!(plan.needs() <= 6 * GIB);
        let none = super::plans(&config(Effort::Default, 100 * MIB));
        assert!(none.iter().all(|plan| plan.needs() > 100 * MIB && plan.notes.is_empty()));
    }

    #[test]
    fn only_what_the_chosen_figures_need_is_planned() {
        let only = vec!["read-1g".to_string()];
        let plans = plans(&Config { only, ..config(Effort::Default, 64 * GIB) });
        assert_eq!(plans.len(), 1);
        assert_eq!((plans[0].group.title.as_str(), plans[0].group.blocks.len()), ("static-1g", 1));
        assert!(choose(&["nothing-like-this".into()]).unwrap_err().to_string().contains("fork-1g"));
    }
}
