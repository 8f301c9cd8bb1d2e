//! Policies as their definitions read, slow and obvious: lists searched from end to end, times
//! written down.

use std::collections::{BTreeMap, HashMap};

pub mod moves;

#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub page: u64,
    pub write: bool,
    pub process: u32,
}

pub const POLICIES: [&str; 17] = [
    "fifo",
    "rand:seed=9",
    "lru",
    "min",
    "clock",
    "clock:insert=0",
    "sws:window=7",
    "sws:window=30",
    "pff:threshold=3",
    "vms:size=3",
    "vms:fraction=0.6",
    "fifo:local=equal",
    "lru:local=footprint",
    "clock:local=equal",
    "moves",
    "moves:own=3",
    "moves:bits=simulated",
];

type Key = (u32, u64);
/// Faults, reclaims, write-backs.
pub type Counts = (u64, u64, u64);

pub fn run(policy: &str, frames: usize, trace: &[Line]) -> Counts {
    match policy {
        "sws:window=7" => sets(frames, trace, Rule::Sample(7)),
        "sws:window=30" => sets(frames, trace, Rule::Sample(30)),
        "pff:threshold=3" => sets(frames, trace, Rule::Frequency(3)),
        "vms:size=3" => sets(frames, trace, Rule::Limit(3)),
        "vms:fraction=0.6" => {
            let share = (frames as f64 / processes(trace).len().max(1) as f64 * 0.6) as usize;
            sets(frames, trace, Rule::Limit(share.max(1)))
        }
        "fifo:local=equal" => divided("fifo", frames, trace, false),
        "clock:local=equal" => divided("clock", frames, trace, false),
        "lru:local=footprint" => divided("lru", frames, trace, true),
        "moves" => moved(frames, trace, 0, true),
        "moves:own=3" => moved(frames, trace, 3, true),
        "moves:bits=simulated" => moved(frames, trace, 0, false),
        _ => one_memory(policy, frames, trace),
    }
}

fn moved(frames: usize, trace: &[Line], own: u64, spares: bool) -> Counts {
    let mut order: Vec<Key> = Vec::new();
    for line in trace {
        let key = (line.process, line.page);
        if !order.contains(&key) {
            order.push(key);
        }
    }
    let mut pager = moves::Pager::new(frames as u64, own, spares, order.len() as u64);
    for line in trace {
        let number = order.iter().position(|&key| key == (line.process, line.page)).unwrap();
        pager.touch(number as u64, line.write);
    }
    (pager.faults, pager.reclaims, pager.written)
}

/// Processes in the order of their numbers, with their footprints.
fn processes(trace: &[Line]) -> Vec<(u32, usize)> {
    let mut order = Vec::new();
    let mut pages: HashMap<u32, Vec<u64>> = HashMap::new();
    for line in trace {
        if !order.contains(&line.process) {
            order.push(line.process);
        }
        let of = pages.entry(line.process).or_default();
        if !of.contains(&line.page) {
            of.push(line.page);
        }
    }
    order.iter().map(|process| (*process, pages[process].len())).collect()
}

fn divided(policy: &str, frames: usize, trace: &[Line], by_footprint: bool) -> Counts {
    let all = processes(trace);
    let weight = |footprint: usize| if by_footprint { footprint } else { 1 };
    let total: usize = all.iter().map(|&(_, footprint)| weight(footprint)).sum();
    let (mut before, mut sum) = (0, (0, 0, 0));
    for (process, footprint) in all {
        let after = before + weight(footprint);
        let share = (frames * after / total - frames * before / total).max(1);
        before = after;
        let own: Vec<Line> = trace.iter().copied().filter(|l| l.process == process).collect();
        let counts = one_memory(policy, share, &own);
        sum = (sum.0 + counts.0, sum.1 + counts.1, sum.2 + counts.2);
    }
    sum
}

struct Held {
    key: Key,
    entered: usize,
    touched: usize,
    bit: bool,
    dirty: bool,
}

fn one_memory(policy: &str, frames: usize, trace: &[Line]) -> Counts {
    let mut memory: Vec<Held> = Vec::new();
    let (mut faults, mut reclaims, mut writes) = (0, 0, 0);
    let (mut hand, mut seed) = (0, 9u64);
    for (now, line) in trace.iter().enumerate() {
        let key = (line.process, line.page);
        if let Some(held) = memory.iter_mut().find(|held| held.key == key) {
            reclaims += u64::from(policy.starts_with("clock") && !held.bit);
            (held.bit, held.touched) = (true, now);
            held.dirty |= line.write;
            continue;
        }
        faults += 1;
        let bit = policy != "clock:insert=0";
        let new = Held { key, entered: now, touched: now, bit, dirty: line.write };
        if memory.len() < frames {
            memory.push(new);
            continue;
        }
        let victim = match policy {
            "fifo" => least(&memory, |held| held.entered),
            "lru" => least(&memory, |held| held.touched),
            "min" => least(&memory, |held| {
                let next = trace[now..].iter().position(|l| (l.process, l.page) == held.key);
                usize::MAX - next.unwrap_or(usize::MAX)
            }),
            "rand:seed=9" => {
                seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                ((u128::from(mixed(seed)) * frames as u128) >> 64) as usize
            }
            _ => {
                while memory[hand].bit {
                    memory[hand].bit = false;
                    hand = (hand + 1) % frames;
                }
                let victim = hand;
                hand = (hand + 1) % frames;
                victim
            }
        };
        writes += u64::from(memory[victim].dirty);
        memory[victim] = new;
    }
    // MIN may choose among pages that never come again, dirty or not.
    (faults, reclaims, if policy == "min" { min_writes(frames, trace) } else { writes })
}

/// As MIN chooses: of pages that never come again, the highest number (of first appearance) leaves
/// first.
fn min_writes(frames: usize, trace: &[Line]) -> u64 {
    let mut order: Vec<Key> = Vec::new();
    let mut memory: BTreeMap<usize, bool> = BTreeMap::new();
    let mut writes = 0;
    for (now, line) in trace.iter().enumerate() {
        let key = (line.process, line.page);
        let number = order.iter().position(|&known| known == key).unwrap_or_else(|| {
            order.push(key);
            order.len() - 1
        });
        if !memory.contains_key(&number) && memory.len() == frames {
            let victim = *memory
                .keys()
                .max_by_key(|&&page| {
                    let next = trace[now..].iter().position(|l| (l.process, l.page) == order[page]);
                    (next.unwrap_or(usize::MAX), page)
                })
                .unwrap();
            writes += u64::from(memory.remove(&victim).unwrap());
        }
        *memory.entry(number).or_insert(false) |= line.write;
    }
    writes
}

fn least(memory: &[Held], value: impl Fn(&Held) -> usize) -> usize {
    (0..memory.len()).min_by_key(|&at| value(&memory[at])).unwrap()
}

fn mixed(seed: u64) -> u64 {
    let mut word = seed;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

enum Rule {
    Sample(u64),
    Frequency(u64),
    Limit(usize),
}

struct Page {
    key: Key,
    bit: bool,
    dirty: bool,
}

fn sets(frames: usize, trace: &[Line], rule: Rule) -> Counts {
    let mut sets: BTreeMap<u32, Vec<Page>> = BTreeMap::new();
    // Processes in the order of their numbers decide between sets of equal size; the last one wins.
    let numbers: Vec<u32> = processes(trace).iter().map(|p| p.0).collect();
    let mut free: Vec<Page> = Vec::new();
    let mut clocks: HashMap<u32, u64> = HashMap::new();
    let (mut faults, mut reclaims, mut writes) = (0, 0, 0);
    for line in trace {
        let (process, key) = (line.process, (line.process, line.page));
        let since = clocks.entry(process).or_default();
        if matches!(rule, Rule::Sample(window) if *since == window) {
            *since = 0;
            sample(sets.entry(process).or_default(), &mut free);
        }
        *since += 1;
        let set = sets.entry(process).or_default();
        if let Some(page) = set.iter_mut().find(|page| page.key == key) {
            reclaims += u64::from(!page.bit);
            page.bit = true;
            page.dirty |= line.write;
            continue;
        }
        if let Rule::Frequency(threshold) = rule {
            if *since > threshold {
                sample(set, &mut free);
            }
            *since = 0;
        }
        if matches!(rule, Rule::Limit(limit) if set.len() >= limit.min(frames)) {
            free.push(set.remove(0));
        }
        let page = match free.iter().position(|page| page.key == key) {
            Some(at) => {
                reclaims += 1;
                let old = free.remove(at);
                Page { key, bit: true, dirty: old.dirty | line.write }
            }
            None => {
                faults += 1;
                let held: usize = sets.values().map(Vec::len).sum::<usize>() + free.len();
                if held == frames {
                    let victim = if !free.is_empty() {
                        free.remove(0)
                    } else if !sets[&process].is_empty() {
                        sets.get_mut(&process).unwrap().remove(0)
                    } else {
                        let from = numbers.iter().max_by_key(|n| sets.get(n).map_or(0, Vec::len));
                        sets.get_mut(from.unwrap()).unwrap().remove(0)
                    };
                    writes += u64::from(victim.dirty);
                }
                Page { key, bit: true, dirty: line.write }
            }
        };
        sets.get_mut(&process).unwrap().push(page);
    }
    (faults, reclaims, writes)
}

fn sample(set: &mut Vec<Page>, free: &mut Vec<Page>) {
    for mut page in std::mem::take(set) {
        if page.bit {
            page.bit = false;
            set.push(page);
        } else {
            free.push(page);
        }
    }
}

/// LRU with an ordered map in place of a list, for long traces.
pub fn fast_lru(frames: usize, trace: &[Line]) -> Counts {
    let mut by_time: BTreeMap<usize, Key> = BTreeMap::new();
    let mut held: HashMap<Key, (usize, bool)> = HashMap::new();
    let (mut faults, mut writes) = (0, 0);
    for (now, line) in trace.iter().enumerate() {
        let key = (line.process, line.page);
        let dirty = match held.remove(&key) {
            Some((then, dirty)) => {
                by_time.remove(&then);
                dirty
            }
            None => {
                faults += 1;
                if held.len() == frames {
                    let (_, oldest) = by_time.pop_first().unwrap();
                    writes += u64::from(held.remove(&oldest).unwrap().1);
                }
                false
            }
        };
        held.insert(key, (now, dirty | line.write));
        by_time.insert(now, key);
    }
    (faults, 0, writes)
}
