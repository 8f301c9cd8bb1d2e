//! Who forks, and what becomes of the children: a pure state machine over events, in any order.
//!
//! A child may be seen to exec or end before its parent is seen to have made it (the kernel wakes
//! the child first), so a life can begin without a birth. Time is handed in. Opens no file and
//! knows nothing of ptrace.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use odfork_proc::process::Pid;
use odfork_samples::stats::median;

/// The system call that made a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
// Newer architectures have no fork and vfork.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub enum Call {
    Fork,
    Vfork,
    Clone,
    Clone3,
    /// Found in /proc afterwards, or made by a 32-bit program.
    Unknown,
}

/// What the new task shares with its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A copy of the memory.
    Fork,
    /// The memory is lent until exec or exit: vfork, posix_spawn.
    Vfork,
    /// A process in the same memory that is no thread and not waited for.
    Shared,
    Thread,
    /// A process; how it was made was not seen.
    Unknown,
}

impl Call {
    fn word(self) -> &'static str {
        match self {
            Call::Fork => "fork",
            Call::Vfork => "vfork",
            Call::Clone => "clone",
            Call::Clone3 => "clone3",
            Call::Unknown => "unseen call",
        }
    }
}

impl Class {
    /// By the flags of clone and clone3.
    pub fn of_flags(flags: u64) -> Class {
        let has = |flag: i32| flags & flag as u32 as u64 != 0;
        match (has(libc::CLONE_THREAD), has(libc::CLONE_VM), has(libc::CLONE_VFORK)) {
            (true, _, _) => Class::Thread,
            (_, true, true) => Class::Vfork,
            (_, true, false) => Class::Shared,
            _ => Class::Fork,
        }
    }
    fn word(self) -> &'static str {
        match self {
            Class::Fork => "(fork)",
            Class::Vfork => "(vfork-class)",
            Class::Shared => "(shares memory)",
            Class::Thread => "(thread)",
            Class::Unknown => "(process)",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Born {
        parent: Pid,
        child: Pid,
        call: Call,
        class: Class,
    },
    /// The process runs another program now; `faults` are its minor faults so far.
    Exec {
        pid: Pid,
        name: String,
        faults: Option<u64>,
    },
    Ended {
        pid: Pid,
    },
}

#[derive(Clone, Debug)]
struct Birth {
    parent: Pid,
    /// Program that the parent ran then.
    by: String,
    class: Class,
    at: f64,
    predicted_ns: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Life {
    birth: Option<Birth>,
    name: String,
    /// It made processes of its own before any exec.
    forked: bool,
    exec: Option<(f64, Option<u64>)>,
    ended: bool,
}

/// What became of children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fates {
    /// They did nothing but exec: a copy of the memory was not needed.
    pub execs: u64,
    /// They made children of their own and then ran another program.
    pub forks_then_execs: u64,
    /// They ended as the program they were born as.
    pub exits: u64,
    /// They were there at the end, still the same program.
    pub lives: u64,
}

impl Fates {
    fn add(&mut self, life: &Life) {
        *match (life.exec.is_some(), life.forked, life.ended) {
            (true, false, _) => &mut self.execs,
            (true, true, _) => &mut self.forks_then_execs,
            (false, _, true) => &mut self.exits,
            (false, _, false) => &mut self.lives,
        } += 1;
    }

    pub fn total(&self) -> u64 {
        self.execs + self.forks_then_execs + self.exits + self.lives
    }
}

/// One kind of maker: a program, and its children.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Maker {
    pub name: String,
    pub shell: bool,
    /// Copies of the memory (and children of unknown class).
    pub forks: Fates,
    /// Vfork-class and shared-memory children.
    pub lent: Fates,
    /// Sum over its forks, estimated from its memory at each; not measured.
    pub predicted_ns: u64,
}

/// What was seen, summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// "clone3 vfork-class" -> count, threads included.
    pub calls: BTreeMap<String, u64>,
    pub threads: u64,
    pub processes: u64,
    pub forks: Fates,
    pub lent: Fates,
    /// The same for the process that was named itself, without its descendants.
    pub own_forks: Fates,
    pub own_lent: Fates,
    pub makers: Vec<Maker>,
    /// Children of shells among all children.
    pub from_shells: u64,
    /// Medians over fork-class children that exec; the time includes the observation's own stops.
    pub until_exec_s: Option<f64>,
    pub faults_until_exec: Option<f64>,
    pub predicted_ns: u64,
}

const SHELLS: [&str; 10] =
    ["sh", "dash", "bash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"];

#[derive(Debug)]
pub struct ForkStatistics {
    root: Pid,
    living: HashMap<Pid, Life>,
    /// Lives whose number was given to somebody else since.
    past: Vec<Life>,
    calls: BTreeMap<(Call, Class), u64>,
}

impl ForkStatistics {
    pub fn new(root: Pid, name: &str) -> ForkStatistics {
        let life = Life { name: name.to_owned(), ..Life::default() };
        let living = HashMap::from([(root, life)]);
        ForkStatistics { root, living, past: Vec::new(), calls: BTreeMap::new() }
    }

    /// Takes an event; `predicted_ns` is what a fork of the parent costs by the model, where known.
    pub fn take(&mut self, event: Event, at: f64, predicted_ns: Option<u64>) {
        match event {
            Event::Born { parent, child, call, class } => {
                *self.calls.entry((call, class)).or_default() += 1;
                if class != Class::Thread {
                    self.born(child, class, parent, (at, predicted_ns));
                }
            }
            Event::Exec { pid, name, faults } => {
                let life = self.living.entry(pid).or_default();
                life.name = name;
                life.exec.get_or_insert((at, faults));
            }
            Event::Ended { pid } => self.living.entry(pid).or_default().ended = true,
        }
    }

    fn born(&mut self, child: Pid, class: Class, parent: Pid, when: (f64, Option<u64>)) {
        let maker = self.living.entry(parent).or_default();
        maker.forked |= maker.exec.is_none();
        let by = maker.name.clone();
        let (at, predicted_ns) = when;
        let birth = Birth { parent, by: by.clone(), class, at, predicted_ns };
        let known = self.living.entry(child).or_default();
        if known.birth.is_some() || child == self.root {
            // The number was used before.
            self.past.push(std::mem::take(known));
        }
        known.birth = Some(birth);
        if known.name.is_empty() {
            known.name = by;
        }
    }

    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for (&(call, class), &count) in &self.calls {
            summary.calls.insert(format!("{} {}", call.word(), class.word()), count);
            summary.threads += if class == Class::Thread { count } else { 0 };
        }
        let (mut makers, mut times, mut faults) = (BTreeMap::new(), Vec::new(), Vec::new());
        for life in self.living.values().chain(&self.past) {
            let Some(birth) = &life.birth else { continue };
            let maker: &mut Maker = makers.entry(&birth.by).or_default();
            let [all, own, of_maker] = match birth.class {
                Class::Fork | Class::Unknown => {
                    [&mut summary.forks, &mut summary.own_forks, &mut maker.forks]
                }
                _ => [&mut summary.lent, &mut summary.own_lent, &mut maker.lent],
            };
            all.add(life);
            of_maker.add(life);
            if birth.parent == self.root {
                own.add(life);
            }
            summary.processes += 1;
            summary.predicted_ns += birth.predicted_ns.unwrap_or(0);
            maker.predicted_ns += birth.predicted_ns.unwrap_or(0);
            if let (Some((at, count)), Class::Fork) = (life.exec, birth.class) {
                times.push((at - birth.at).max(0.0));
                faults.extend(count.map(|count| count as f64));
            }
        }
        summary.until_exec_s = median(&times);
        summary.faults_until_exec = median(&faults);
        let named = |(name, maker): (&String, Maker)| {
            let shell = SHELLS.contains(&name.trim_start_matches('-'));
            Maker { name: name.clone(), shell, ..maker }
        };
        summary.makers = makers.into_iter().map(named).collect();
        summary.makers.sort_by_key(|maker| Reverse(maker.children()));
        let shells = summary.makers.iter().filter(|maker| maker.shell);
        summary.from_shells = shells.map(Maker::children).sum();
        summary
    }
}

impl Maker {
    fn children(&self) -> u64 {
        self.forks.total() + self.lent.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn born(parent: Pid, child: Pid, class: Class) -> Event {
        Event::Born { parent, child, call: Call::Clone, class }
    }

    fn exec(pid: Pid, name: &str) -> Event {
        Event::Exec { pid, name: name.into(), faults: Some(30) }
    }

    fn statistics(events: Vec<Event>) -> Summary {
        let mut statistics = ForkStatistics::new(1, "sh");
        for (index, event) in events.into_iter().enumerate() {
            statistics.take(event, index as f64, Some(10));
        }
        statistics.summary()
    }

    #[test]
    fn children_are_told_apart_by_what_they_do() {
        let fork = |child| born(1, child, Class::Fork);
        let seen = statistics(vec![
            fork(10),
            exec(10, "true"),
            Event::Ended { pid: 10 },
            fork(11),
            Event::Ended { pid: 11 },
            fork(12),
            fork(13),
            born(13, 14, Class::Fork),
            exec(13, "ls"),
            exec(14, "cat"),
        ]);
        let forks = Fates { execs: 2, forks_then_execs: 1, exits: 1, lives: 1 };
        assert_eq!((seen.forks, seen.processes), (forks, 5));
        assert_eq!(seen.own_forks.total(), 4);
        assert_eq!((seen.from_shells, seen.predicted_ns), (5, 50));
        assert_eq!(seen.faults_until_exec, Some(30.0));
        assert_eq!(seen.makers.len(), 1);
    }

    #[test]
    fn a_child_seen_before_its_birth_is_the_same_child() {
        let early = vec![exec(10, "true"), Event::Ended { pid: 10 }, born(1, 10, Class::Fork)];
        let seen = statistics(early);
        assert_eq!(seen.forks, Fates { execs: 1, ..Fates::default() });
        // Its time cannot be negative.
        assert_eq!(seen.until_exec_s, Some(0.0));
    }

    #[test]
    fn a_number_used_twice_is_two_children() {
        let seen = statistics(vec![
            born(1, 10, Class::Fork),
            exec(10, "true"),
            Event::Ended { pid: 10 },
            born(1, 10, Class::Vfork),
            Event::Ended { pid: 10 },
        ]);
        assert_eq!((seen.forks.execs, seen.lent.exits, seen.processes), (1, 1, 2));
    }

    #[test]
    fn makers_are_named_by_what_they_ran_at_that_moment() {
        let seen = statistics(vec![
            born(1, 10, Class::Fork),
            exec(10, "make"),
            born(10, 11, Class::Vfork),
            exec(11, "gcc"),
            born(10, 12, Class::Vfork),
            exec(12, "gcc"),
            born(10, 99, Class::Thread),
        ]);
        let names: Vec<_> = seen.makers.iter().map(|maker| maker.name.as_str()).collect();
        assert_eq!(names, ["make", "sh"]);
        assert_eq!((seen.makers[0].lent.execs, seen.makers[1].forks.execs), (2, 1));
        assert!(seen.makers[1].shell && !seen.makers[0].shell);
        // make is born of a fork that only execs, although it makes children after that.
        assert_eq!((seen.forks.execs, seen.threads, seen.from_shells), (1, 1, 1));
        assert_eq!(seen.calls["clone (vfork-class)"], 2);
        assert_eq!(seen.own_lent.total(), 0);
    }

    #[test]
    fn flags_decide_the_class() {
        let flags = |list: &[i32]| Class::of_flags(list.iter().map(|&flag| flag as u64).sum());
        assert_eq!(flags(&[libc::SIGCHLD, libc::CLONE_CHILD_SETTID]), Class::Fork);
        assert_eq!(flags(&[libc::SIGCHLD, libc::CLONE_VM, libc::CLONE_VFORK]), Class::Vfork);
        assert_eq!(flags(&[libc::CLONE_VM]), Class::Shared);
        assert_eq!(
            flags(&[libc::CLONE_VM, libc::CLONE_THREAD, libc::CLONE_SIGHAND]),
            Class::Thread
        );
        // vfork without shared memory is a fork that waits.
        assert_eq!(flags(&[libc::CLONE_VFORK]), Class::Fork);
    }
}
