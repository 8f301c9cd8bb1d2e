//! What each experiment asks: its points, as groups of subjects and cells. Data made by loops, no doing.
//!
//! Sizes and shares follow the published experiments; docs/experiments/ says where and why they differ. `exec` has a
//! file of its own.

use serde_json::{json, Value};

use crate::bench::engine::Engine;
use crate::bench::trial::{Brief, Cell, Effort, Group, Metric, Reading};
use crate::experiments::SubjectSpec;
use crate::workload::protocol::{Command, Via};
use odfork_samples::samples::Params;

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// Heap sizes, shares written and numbers of forks of the published grid.
const HEAPS_1988: [u64; 7] = [0, 1_000, 3_162, 10_000, 31_622, 100_000, 316_228];
const FRACS: [u32; 7] = [0, 100, 300, 500, 700, 900, 1000];
const FRACS_LARGE: [u32; 3] = [0, 100, 500];
const FORKS_1988: [u32; 8] = [0, 1, 3, 10, 32, 100, 316, 1000];
/// The same steps, a thousand times and more.
const HEAPS_MODERN: [u64; 8] =
    [0, 1_000_000, 3_162_278, 10_000_000, 31_622_777, 100_000_000, 316_227_766, 1_000_000_000];
const HEAP_FULL: u64 = 3_162_277_660;

pub(super) fn params(pairs: &[(&str, Value)]) -> Params {
    pairs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

pub(super) fn ns(names: &[&'static str]) -> Vec<Metric> {
    names.iter().map(|name| Metric::new(name, Reading::Ns)).collect()
}

pub(super) fn cell(
    engine: Engine,
    subject: usize,
    command: Command,
    params: Params,
    metrics: Vec<Metric>,
) -> Cell {
    Cell { engine, subjects: vec![subject], fold: false, command, params, metrics }
}

/// "512 MB", "1.5 GB".
pub(super) fn size_words(bytes: u64) -> String {
    match bytes {
        0..MB => format!("{bytes} bytes"),
        MB..GB => format!("{} MB", bytes / MB),
        _ => format!("{:.1} GB", bytes as f64 / GB as f64),
    }
}

/// For experiments that are not made of groups (profile).
pub fn nothing(_: &Brief) -> Vec<Group> {
    Vec::new()
}

pub fn grid(brief: &Brief) -> Vec<Group> {
    let forks: &[u32] = if brief.effort == Effort::Quick { &FORKS_1988[..6] } else { &FORKS_1988 };
    let mut classic = Group::new("1988 scale".into(), 1.0);
    for &heap in &HEAPS_1988 {
        for &engine in &classic_engines(brief) {
            grid_cells(&mut classic, engine, ("1988", heap), (forks, &FRACS));
        }
    }
    // All heaps in one group: were they measured one after the other, the machine's drift would look like size.
    let mut modern = Group::new("modern scale".into(), 1.3);
    let heaps = match brief.effort {
        Effort::Quick => &HEAPS_MODERN[..5],
        _ => &HEAPS_MODERN[..],
    };
    for &heap in heaps.iter().chain([HEAP_FULL].iter().filter(|_| brief.effort == Effort::Full)) {
        modern.children = heap;
        // Writing a gigabyte takes seconds: a few shares of it have to do unless there is time.
        let fracs = if heap > 500_000_000 && brief.effort != Effort::Full {
            &FRACS_LARGE[..]
        } else {
            &FRACS
        };
        for &engine in &brief.engines {
            grid_cells(&mut modern, engine, ("modern", heap), (modern_forks(heap), fracs));
        }
    }
    modern.repeats = 5;
    for group in [&mut classic, &mut modern] {
        group.warmups = 0;
    }
    vec![classic, modern]
}

/// No heap of 1988 has room for a huge page, and none is worth an image: without time for all, plain stands for them.
fn classic_engines(brief: &Brief) -> Vec<Engine> {
    let mut engines = brief.engines.clone();
    engines.retain(|&engine| engine != Engine::Thp);
    if brief.effort == Effort::Default && engines.contains(&Engine::Plain) {
        engines.retain(|&engine| engine != Engine::Image);
    }
    engines
}

/// One fork, and for small heaps as many as make a sample long enough to be told from noise.
fn modern_forks(heap: u64) -> &'static [u32] {
    match heap {
        0..=20_000_000 => &[1, 10],
        20_000_001..=50_000_000 => &[1, 3],
        _ => &[1],
    }
}

fn grid_cells(
    group: &mut Group,
    engine: Engine,
    (scale, heap): (&str, u64),
    (forks, fracs): (&[u32], &[u32]),
) {
    let subject = group.seat(engine.subject(heap.next_multiple_of(PAGE)));
    for &forks in forks {
        for &permille in fracs {
            let point = params(&[
                ("scale", json!(scale)),
                ("forks", json!(forks)),
                ("bytes", json!(heap)),
                ("frac", json!(f64::from(permille) / 1000.0)),
            ]);
            let metrics =
                ["real", "user", "sys"].map(|name| Metric::new(name, Reading::Seconds)).to_vec();
            let command = Command::Grid { forks, permille };
            group.cells.push(cell(engine, subject, command, point, metrics));
        }
    }
}

pub fn latency(brief: &Brief) -> Vec<Group> {
    let step = GB / 2;
    // As far as memory goes when every engine holds the size at once.
    let engines =
        brief.engines.iter().filter(|&&engine| engine != Engine::Null).count().max(1) as u64;
    let most = brief.available.saturating_sub(GB) * 16 / 17 / engines;
    let (alone, crowd): (Vec<u64>, Vec<u64>) = match brief.effort {
        Effort::Quick => (vec![64 * MB, 256 * MB], vec![64 * MB]),
        Effort::Default => (vec![step, GB, 2 * GB, 4 * GB], vec![GB]),
        Effort::Full => {
            let steps = |most: u64| (1..=most / step).map(|n| n * step).collect();
            (steps(most), steps(most / 3))
        }
    };
    let one = alone.into_iter().map(|size| latency_group(brief, size, 1));
    one.chain(crowd.into_iter().map(|size| latency_group(brief, size, 3))).collect()
}

fn latency_group(brief: &Brief, size: u64, processes: u64) -> Group {
    let title = match processes {
        1 => size_words(size),
        _ => format!("{processes} x {}", size_words(size)),
    };
    let mut group = Group::new(title, 1.0 + size as f64 / GB as f64);
    // Filling memory takes most of the time: the pool of huge pages only where it was published.
    let skipped = |engine| engine == Engine::Hugetlb && (processes > 1 || size > GB);
    let in_full = brief.effort == Effort::Full;
    for &engine in brief.engines.iter().filter(|&&engine| in_full || !skipped(engine)) {
        let subjects = (0..processes)
            .map(|_| {
                let spec = engine.subject(size);
                // Three on one processor would only wait for one another.
                group.seat(SubjectSpec { pinned: processes == 1, ..spec })
            })
            .collect();
        let calls = if size > GB { 1 } else { 3 };
        let point = params(&[("bytes", json!(size)), ("processes", json!(processes))]);
        let metrics = ns(&["fork", "fork-cpu", "total"]);
        let all = cell(engine, 0, Command::Fork { calls }, point, metrics);
        group.cells.push(Cell { subjects, ..all });
    }
    group
}

pub fn fault(brief: &Brief) -> Vec<Group> {
    let size = if brief.effort == Effort::Quick { 64 * MB } else { GB };
    one_cell_each(brief, size, Command::Fault, ns(&["fault"]))
}

/// One group of one size in which every engine is asked the same.
fn one_cell_each(brief: &Brief, size: u64, command: Command, metrics: Vec<Metric>) -> Vec<Group> {
    let mut group = Group::new(size_words(size), 1.0);
    for &engine in &brief.engines {
        let subject = group.seat(engine.subject(size));
        let point = params(&[("bytes", json!(size))]);
        group.cells.push(cell(engine, subject, command, point, metrics.clone()));
    }
    vec![group]
}

pub fn access(brief: &Brief) -> Vec<Group> {
    let size = match brief.effort {
        Effort::Quick => 64 * MB,
        Effort::Default => 512 * MB,
        Effort::Full => 4 * GB,
    };
    let shares: &[u32] = match brief.effort {
        Effort::Full => &[0, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000],
        _ => &[0, 100, 250, 500, 1000],
    };
    let mut group = Group::new(size_words(size), 1.0);
    group.warmups = 0;
    group.children = size;
    for &engine in &brief.engines {
        let subject = group.seat(engine.subject(size));
        for read in [1000, 750, 500, 250, 0] {
            for &share in shares {
                let point = params(&[
                    ("bytes", json!(size)),
                    ("read", json!(f64::from(read) / 1000.0)),
                    ("share", json!(f64::from(share) / 1000.0)),
                ]);
                let command = Command::Touch { read_permille: read, share_permille: share };
                let one = cell(engine, subject, command, point, ns(&["total", "fork"]));
                group.cells.push(Cell { fold: engine == Engine::Image, ..one });
            }
        }
    }
    vec![group]
}

/// Turns before and after, as published.
const TURNS: u32 = 10;

pub fn parent_writes(brief: &Brief) -> Vec<Group> {
    // The published buffer: 100,000 pages.
    let size = if brief.effort == Effort::Quick { 64 * MB } else { 100_000 * PAGE };
    let mut group = Group::new(size_words(size), 1.0);
    for &engine in &brief.engines {
        let subject = group.seat(engine.subject(size));
        for via in Via::ALL {
            let point = params(&[("bytes", json!(size)), ("via", json!(via.word()))]);
            let command = Command::Rounds { via, rounds: TURNS };
            let one = cell(engine, subject, command, point, turns());
            group.cells.push(Cell { fold: engine == Engine::Image, ..one });
        }
    }
    vec![group]
}

fn turns() -> Vec<Metric> {
    let turn = |phase: &'static str, turn: u32| Metric {
        label: format!("{phase}-{turn}"),
        name: "round",
        reading: Reading::Ns,
        extra: vec![("phase", json!(phase)), ("turn", json!(turn))],
    };
    let before = (1..=TURNS).map(|n| turn("before", n));
    before.chain((1..=TURNS).map(|n| turn("after", n))).collect()
}

pub fn copy_rate(brief: &Brief) -> Vec<Group> {
    let sizes: &[u64] = match brief.effort {
        Effort::Quick => &[316_228, 64 * MB],
        Effort::Default => &[316_228, 64 * MB, 512 * MB],
        Effort::Full => &[316_228, 64 * MB, 512 * MB, 2 * GB],
    };
    let group = |&size: &u64| {
        let mut group = Group::new(size_words(size), 1.0);
        group.children = 2 * size;
        for &engine in &brief.engines {
            let spec = engine.subject(size.next_multiple_of(PAGE));
            // What is copied is whole pages; the harness holds less than the others.
            let bytes = spec.size;
            let subject = group.seat(spec);
            for (command, label, name) in
                [(Command::CopyTouched, "copy", "copy"), (Command::Service, "service", "service")]
            {
                let metric = Metric {
                    label: label.into(),
                    name,
                    reading: Reading::Rate(bytes),
                    extra: Vec::new(),
                };
                let point = params(&[("bytes", json!(size))]);
                group.cells.push(cell(engine, subject, command, point, vec![metric]));
            }
        }
        group
    };
    sizes.iter().map(group).collect()
}
