//! `exec`: every way to start a program, from parents of every size.
//!
//! A size is a group, so all ways of a size are interleaved. "Does a start depend on the memory of
//! its parent?" is a ratio across sizes: each group therefore also holds a small parent, which
//! starts by the ways that share memory.

use serde_json::json;

use odfork_samples::samples::Recording;
use odfork_samples::spawn_timings::ratios_of_starts;

use super::matrix::matrix;
use super::{How, Subjects, Suite};
use crate::configuration::Configuration::{self, Image, Kernel, Null, Plain};
use crate::configuration::Subject;
use crate::plan::{ns, params, size_words, Config, Effort, Op, Plan, GIB, MIB};
use crate::room;
use crate::runner::Point;
use crate::tables;
use crate::workload::protocol::{Actions, Command, Method};

pub static SUITE: Suite = Suite {
    name: "exec",
    row: "M15",
    question: "What does starting another program cost, by every way there is?",
    published: "20 MB used: 21.60 s with fork, 1.53 s with vfork, for a few thousand programs",
    metrics: &["each", "user", "sys"],
    params: &["allocated", "used", "method", "actions"],
    configurations: &[Plain, Image, Kernel, Null],
    how: How::Subjects(Subjects { plans, seconds: Some([12.0, 100.0, 600.0]), tables }),
};

fn tables(suite: &Suite, recording: &Recording) -> String {
    let samples = &recording.samples;
    let ratios = tables::ratios(&ratios_of_starts(samples));
    format!("{}{}{ratios}", tables::medians(suite, recording), matrix(samples))
}

/// The parent that rides along in every group.
const SMALL: u64 = 8 * MIB;
/// Ways that lend the memory instead of copying its tables, and are to be flat.
const LENDING: [Method; 3] = [Method::VforkExec, Method::PosixSpawn, Method::Spawn];
/// What an engine can make a difference to.
const UNDER_ENGINES: [Method; 4] =
    [Method::ForkExec, Method::VforkExec, Method::PosixSpawn, Method::Spawn];

/// Bytes mapped, and bytes touched.
#[derive(Clone, Copy)]
struct Memory {
    allocated: u64,
    used: u64,
}

fn plans(config: &Config) -> Vec<Plan> {
    sizes(config.effort).into_iter().map(|memory| plan(config, memory)).collect()
}

/// The small parent, the published three, and those a fork feels; in megabytes, mapped and touched.
const SIZES: [(u64, u64); 9] = [
    (8, 8),
    (20, 10),
    (20, 20),
    (40, 20),
    (200, 200),
    (1024, 1024),
    (2048, 2048),
    (4096, 4096),
    (8192, 8192),
];

fn sizes(effort: Effort) -> Vec<Memory> {
    let wanted: &[usize] = match effort {
        Effort::Quick => &[0, 1, 2, 4],
        Effort::Default => &[0, 1, 2, 3, 4, 5],
        Effort::Full => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
    };
    let memory = |&index: &usize| {
        let (allocated, used) = SIZES[index];
        Memory { allocated: allocated * MIB, used: used * MIB }
    };
    wanted.iter().map(memory).collect()
}

fn plan(config: &Config, memory: Memory) -> Plan {
    let title = format!("{} used of {}", size_words(memory.used), size_words(memory.allocated));
    // A round of a large parent takes longer: its forks, and looking at all its pages after each
    // sample.
    let mut plan = Plan::new(title, 1.0 + memory.used as f64 / (4 * GIB) as f64);
    let (first, others): (Vec<Configuration>, Vec<Configuration>) =
        config.configurations.iter().partition(|&&one| one == Plain);
    // What is compared with comes first: room may not be enough for all.
    for configuration in first {
        add_subject(&mut plan, config, configuration, memory);
        if memory.used > SMALL {
            add_small(&mut plan);
        }
        add_python(&mut plan, config, memory);
    }
    for configuration in others {
        add_subject(&mut plan, config, configuration, memory);
    }
    plan
}

fn add_subject(plan: &mut Plan, config: &Config, configuration: Configuration, memory: Memory) {
    // While memory is frozen its content is there twice.
    let more = if configuration == Image { memory.used } else { 0 };
    let subject = configuration.subject(memory.allocated);
    let subject = Subject { touched: Some(memory.used.min(subject.size)), ..subject };
    let needed = (configuration.word(), subject.size + more);
    if configuration != Plain && !has_room(plan, config, needed) {
        return;
    }
    plan.children += more;
    let target = plan.subject(subject);
    for start in starts(configuration, config.effort) {
        plan.points().push(point(configuration, target, memory, start));
    }
}

/// Of a subject: every way, and those with actions also with each of them.
fn starts(configuration: Configuration, effort: Effort) -> Vec<(Method, Actions)> {
    let plain = |methods: &[Method]| methods.iter().map(|&m| (m, Actions::Plain)).collect();
    if !matches!(configuration, Plain | Null) {
        return plain(&UNDER_ENGINES);
    }
    let mut all: Vec<(Method, Actions)> = plain(&Method::NATIVE);
    let asked = Actions::ALL.into_iter().filter(|&actions| match actions {
        Actions::Plain => false,
        Actions::Close10000 => effort != Effort::Quick,
        _ => true,
    });
    for actions in asked {
        all.extend(Method::ALL.into_iter().filter(|m| m.has_actions()).map(|m| (m, actions)));
    }
    all
}

/// The other side of the ratios across sizes, alive at the same time as the large parent.
fn add_small(plan: &mut Plan) {
    let target = plan.subject(Plain.subject(SMALL));
    let memory = Memory { allocated: SMALL, used: SMALL };
    for method in LENDING {
        plan.points().push(point(Plain, target, memory, (method, Actions::Plain)));
    }
}

/// A Python process of the same memory, beside what the interpreter itself takes.
fn add_python(plan: &mut Plan, config: &Config, memory: Memory) {
    let method = Method::PythonSubprocess;
    if !has_room(plan, config, (method.word(), memory.allocated)) {
        return;
    }
    let touched = Some(memory.used);
    let subject = Subject { is_python: true, touched, ..Subject::new(Plain, memory.allocated) };
    let target = plan.subject(subject);
    plan.points().push(point(Plain, target, memory, (method, Actions::Plain)));
}

/// Whether `more` bytes fit beside what the group holds; if not, the plan says so.
fn has_room(plan: &mut Plan, config: &Config, (what, more): (&str, u64)) -> bool {
    let needed = plan.needs() + more + more / 16;
    let fits = needed <= config.available;
    // A group that does not fit without it is left out as a whole, which has a note of its own.
    if !fits && plan.needs() <= config.available {
        let (title, words) = (&plan.group.title, room::words(needed, config.available));
        plan.notes.push(format!("{title}: {what} left out; with it {words}"));
    }
    fits
}

fn point(
    configuration: Configuration,
    target: usize,
    Memory { allocated, used }: Memory,
    (method, actions): (Method, Actions),
) -> Point<Op> {
    let params = params(&[
        ("allocated", json!(allocated)),
        ("used", json!(used)),
        ("method", json!(method.word())),
        ("actions", json!(actions.word())),
    ]);
    let count = match method {
        Method::ForkExec if used > 2 * GIB => 2,
        Method::ForkExec if used > 100 * MIB => 5,
        _ => 40,
    };
    let op = Op::ask(Command::Exec { method, actions, count }, ns(&["each", "user", "sys"]));
    Point { engine: configuration.word(), targets: vec![target], params, op }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn config(effort: Effort, gigabytes: u64) -> Config {
        let configurations = vec![Image, Plain, Null];
        let available = gigabytes * GIB;
        Config { configurations, effort, available, only: Vec::new() }
    }

    fn is(point: &Point<Op>, used: u64, word: &str) -> bool {
        point.params["used"] == used && point.params["method"] == word
    }

    #[test]
    fn every_group_has_every_way_and_the_two_sides_of_each_ratio() {
        for mut plan in plans(&config(Effort::Full, 22)) {
            let title = plan.group.title.clone();
            let points = plan.points();
            let plain: Vec<&Point<Op>> =
                points.iter().filter(|point| point.engine == "plain").collect();
            let words: BTreeSet<&str> =
                plain.iter().filter_map(|point| point.params["method"].as_str()).collect();
            assert_eq!(words, Method::ALL.map(Method::word).into(), "{}", title);
            for method in LENDING {
                let small = plain.iter().filter(|point| is(point, SMALL, method.word()));
                assert!(small.count() >= 1, "{}: {method:?}", title);
            }
            for actions in Actions::ALL {
                let both = plain.iter().filter(|c| {
                    c.params["actions"] == actions.word() && !is(c, SMALL, "vfork+exec")
                });
                let both = both
                    .filter(|c| ["spawn", "posix_spawn"].iter().any(|w| c.params["method"] == *w));
                assert!(both.count() >= 2, "{}: {actions:?}", title);
            }
        }
    }

    #[test]
    fn no_point_is_in_a_group_twice() {
        for mut plan in plans(&config(Effort::Full, 22)) {
            let title = plan.group.title.clone();
            let points = plan.points();
            let names: BTreeSet<String> =
                points.iter().map(|p| format!("{} {:?}", p.engine, p.params)).collect();
            assert_eq!(names.len(), points.len(), "{title}");
        }
    }

    #[test]
    fn what_does_not_fit_beside_the_largest_is_left_out_and_said() {
        let last = |gigabytes| plans(&config(Effort::Full, gigabytes)).pop().unwrap();
        let points = |plan: &Plan| plan.group.blocks[0].points.clone();
        let has = |plan: &Plan, one: Configuration| {
            points(plan).iter().any(|point| point.engine == one.word())
        };
        let large = last(22);
        assert!(!has(&large, Image) && has(&large, Plain));
        assert!(points(&large).iter().any(|point| is(point, 8 * GIB, "python-subprocess")));
        assert!(large.needs() <= 22 * GIB);
        assert!(
            large.notes.iter().any(|note| note.contains("image left out")),
            "{:?}",
            large.notes
        );
        let tight = last(10);
        assert!(!points(&tight).iter().any(|point| is(point, 8 * GIB, "python-subprocess")));
        assert!(has(&tight, Plain) && tight.needs() <= 10 * GIB);
        assert!(has(&last(64), Image));
    }
}
