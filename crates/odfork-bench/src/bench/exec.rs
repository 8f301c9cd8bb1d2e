//! What `exec` asks: every way to start a program, from parents of every size. Data, no doing.
//!
//! A size is a group, so all ways of a size are interleaved. "Does a start depend on the memory of its parent?" is a
//! ratio across sizes: each group therefore also holds a small parent, which starts by the ways that share memory.

use serde_json::json;

use crate::bench::engine::Engine;
use crate::bench::plans::{cell, ns, params, size_words};
use crate::bench::trial::{Brief, Cell, Effort, Group};
use crate::experiments::{Engine as Loading, SubjectSpec};
use crate::workload::protocol::{Actions, Command, Method};

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

/// The parent that rides along in every group.
const SMALL: u64 = 8 * MB;
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

pub fn groups(brief: &Brief) -> Vec<Group> {
    sizes(brief.effort).into_iter().map(|memory| group(brief, memory)).collect()
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
        Memory { allocated: allocated * MB, used: used * MB }
    };
    wanted.iter().map(memory).collect()
}

fn group(brief: &Brief, memory: Memory) -> Group {
    let title = format!("{} used of {}", size_words(memory.used), size_words(memory.allocated));
    // A round of a large parent takes longer: its forks, and looking at all its pages after each sample.
    let mut group = Group::new(title, 1.0 + memory.used as f64 / (4 * GB) as f64);
    let (plain, others): (Vec<Engine>, Vec<Engine>) =
        brief.engines.iter().partition(|&&engine| engine == Engine::Plain);
    // What is compared with comes first: room may not be enough for all.
    for engine in plain {
        seat_engine(&mut group, brief, engine, memory);
        if memory.used > SMALL {
            seat_small(&mut group);
        }
        seat_python(&mut group, brief, memory);
    }
    for engine in others {
        seat_engine(&mut group, brief, engine, memory);
    }
    group
}

fn seat_engine(group: &mut Group, brief: &Brief, engine: Engine, memory: Memory) {
    // While an image is made its content is there twice.
    let more = if engine == Engine::Image { memory.used } else { 0 };
    let spec = engine.subject(memory.allocated);
    let spec = SubjectSpec { touched: Some(memory.used.min(spec.size)), ..spec };
    if engine != Engine::Plain && !has_room(group, brief, (engine.word(), spec.size + more)) {
        return;
    }
    group.children += more;
    let subject = group.seat(spec);
    for (method, actions) in starts(engine, brief.effort) {
        group.cells.push(start(engine, subject, memory, (method, actions)));
    }
}

/// Of an engine's subject: every way, and those with actions also with each of them.
fn starts(engine: Engine, effort: Effort) -> Vec<(Method, Actions)> {
    let plain = |methods: &[Method]| methods.iter().map(|&m| (m, Actions::Plain)).collect();
    if !matches!(engine, Engine::Plain | Engine::Null) {
        return plain(&UNDER_ENGINES);
    }
    let mut all: Vec<(Method, Actions)> = plain(&Method::NATIVE);
    let asked = Actions::ALL.into_iter().filter(|&actions| match actions {
        Actions::Plain => false,
        Actions::Close10000 => effort != Effort::Quick,
        _ => true,
    });
    for actions in asked {
        all.extend(Method::ALL.into_iter().filter(|m| m.acts()).map(|m| (m, actions)));
    }
    all
}

/// The other side of the ratios across sizes, alive at the same time as the large parent.
fn seat_small(group: &mut Group) {
    let subject = group.seat(Engine::Plain.subject(SMALL));
    let memory = Memory { allocated: SMALL, used: SMALL };
    for method in LENDING {
        group.cells.push(start(Engine::Plain, subject, memory, (method, Actions::Plain)));
    }
}

/// A Python process of the same memory, beside what the interpreter itself takes.
fn seat_python(group: &mut Group, brief: &Brief, memory: Memory) {
    let method = Method::PythonSubprocess;
    if !has_room(group, brief, (method.word(), memory.allocated)) {
        return;
    }
    let touched = Some(memory.used);
    let spec = SubjectSpec { touched, ..SubjectSpec::new(Loading::Python, memory.allocated) };
    let subject = group.seat(spec);
    group.cells.push(start(Engine::Plain, subject, memory, (method, Actions::Plain)));
}

/// Whether `more` bytes fit beside what the group holds; if not, the group says so.
fn has_room(group: &mut Group, brief: &Brief, (what, more): (&str, u64)) -> bool {
    let needed = group.needs() + more + more / 16;
    let fits = needed <= brief.available;
    // A group that does not fit without it is left out as a whole, which has a note of its own.
    if !fits && group.needs() <= brief.available {
        let (needed, available) = (needed >> 20, brief.available >> 20);
        let title = &group.title;
        group.notes.push(format!(
            "{title}: {what} left out; {needed} MB are needed with it and {available} MB are available"
        ));
    }
    fits
}

fn start(
    engine: Engine,
    subject: usize,
    Memory { allocated, used }: Memory,
    (method, actions): (Method, Actions),
) -> Cell {
    let point = params(&[
        ("allocated", json!(allocated)),
        ("used", json!(used)),
        ("method", json!(method.word())),
        ("actions", json!(actions.word())),
    ]);
    let count = match method {
        Method::ForkExec if used > 2 * GB => 2,
        Method::ForkExec if used > 100 * MB => 5,
        _ => 40,
    };
    let command = Command::Exec { method, actions, count };
    cell(engine, subject, command, point, ns(&["each", "user", "sys"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn brief(effort: Effort, gigabytes: u64) -> Brief {
        let engines = vec![Engine::Image, Engine::Plain, Engine::Null];
        Brief { engines, effort, available: gigabytes * GB }
    }

    fn is(cell: &Cell, used: u64, word: &str) -> bool {
        cell.params["used"] == used && cell.params["method"] == word
    }

    #[test]
    fn every_group_has_every_way_and_the_two_sides_of_each_ratio() {
        for group in groups(&brief(Effort::Full, 22)) {
            let plain: Vec<&Cell> =
                group.cells.iter().filter(|cell| cell.engine == Engine::Plain).collect();
            let words: BTreeSet<&str> =
                plain.iter().filter_map(|cell| cell.params["method"].as_str()).collect();
            assert_eq!(words, Method::ALL.map(Method::word).into(), "{}", group.title);
            for method in LENDING {
                let small = plain.iter().filter(|cell| is(cell, SMALL, method.word()));
                assert!(small.count() >= 1, "{}: {method:?}", group.title);
            }
            for actions in Actions::ALL {
                let both = plain.iter().filter(|c| {
                    c.params["actions"] == actions.word() && !is(c, SMALL, "vfork+exec")
                });
                let both = both
                    .filter(|c| ["spawn", "posix_spawn"].iter().any(|w| c.params["method"] == *w));
                assert!(both.count() >= 2, "{}: {actions:?}", group.title);
            }
        }
    }

    #[test]
    fn no_point_is_in_a_group_twice() {
        for group in groups(&brief(Effort::Full, 22)) {
            let points: BTreeSet<String> =
                group.cells.iter().map(|c| format!("{:?} {:?}", c.engine, c.params)).collect();
            assert_eq!(points.len(), group.cells.len(), "{}", group.title);
        }
    }

    #[test]
    fn what_does_not_fit_beside_the_largest_is_left_out_and_said() {
        let last = |gigabytes| groups(&brief(Effort::Full, gigabytes)).pop().unwrap();
        let has = |group: &Group, engine| group.cells.iter().any(|cell| cell.engine == engine);
        let large = last(22);
        assert!(!has(&large, Engine::Image) && has(&large, Engine::Plain));
        assert!(large.cells.iter().any(|cell| is(cell, 8 * GB, "python-subprocess")));
        assert!(large.needs() <= 22 * GB);
        assert!(
            large.notes.iter().any(|note| note.contains("image left out")),
            "{:?}",
            large.notes
        );
        let tight = last(10);
        assert!(!tight.cells.iter().any(|cell| is(cell, 8 * GB, "python-subprocess")));
        assert!(has(&tight, Engine::Plain) && tight.needs() <= 10 * GB);
        assert!(has(&last(64), Engine::Image));
    }
}
