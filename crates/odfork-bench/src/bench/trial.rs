//! The shape of an experiment: groups of subjects that live at the same time, and the cells asked of them.
//!
//! A cell is one point of one engine: a command to one or more subjects, the parameters it stands for, and which
//! of the answer's numbers become which metrics. All cells of a group are interleaved. Pure data.

use crate::bench::engine::Engine;
use crate::experiments::SubjectSpec;
use crate::workload::protocol::Command;
use odfork_samples::samples::Params;

/// How a number of an answer (nanoseconds) becomes a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// Nanoseconds as they are.
    Ns,
    /// Seconds.
    Seconds,
    /// So many bytes in the time given: bytes a second.
    Rate(u64),
}

impl Reading {
    pub fn unit(self) -> &'static str {
        match self {
            Reading::Ns => "ns",
            Reading::Seconds => "s",
            Reading::Rate(_) => "bytes/s",
        }
    }

    pub fn read(self, ns: f64) -> f64 {
        match self {
            Reading::Ns => ns,
            Reading::Seconds => ns / 1e9,
            Reading::Rate(bytes) => bytes as f64 * 1e9 / ns.max(1.0),
        }
    }
}

/// One number of an answer, and what it is called in the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub label: String,
    pub name: &'static str,
    pub reading: Reading,
    /// Parameters of this number alone: the turn of a round.
    pub extra: Vec<(&'static str, serde_json::Value)>,
}

impl Metric {
    pub fn new(name: &'static str, reading: Reading) -> Metric {
        Metric { label: name.into(), name, reading, extra: Vec::new() }
    }
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub engine: Engine,
    /// Indices into the subjects of the group; several are asked at once.
    pub subjects: Vec<usize>,
    /// Untimed, before each sample: folds what the last sample dirtied. Its time becomes the metric `fold`.
    pub fold: bool,
    pub command: Command,
    pub params: Params,
    pub metrics: Vec<Metric>,
}

/// Subjects that are resident together, and what is asked of them.
#[derive(Clone, Debug)]
pub struct Group {
    /// For progress and notes: "1.0 GB".
    pub title: String,
    pub subjects: Vec<SubjectSpec>,
    pub cells: Vec<Cell>,
    /// Share of the experiment's time, relative to the other groups.
    pub weight: f64,
    /// Unmeasured passes over all cells.
    pub warmups: u32,
    pub rounds_at_most: u32,
    /// How often a cheap cell is sampled in one round: its median needs it and its time allows it.
    pub repeats: u32,
    /// What the children of one sample may take beyond the subjects, bytes.
    pub children: u64,
    /// Pages of 2 MB the kernel's pool must have.
    pub pool_pages: u64,
    /// What was left out of it, and why.
    pub notes: Vec<String>,
}

/// Left to everything else on the machine.
const HEADROOM: u64 = 768 << 20;

impl Group {
    pub fn new(title: String, weight: f64) -> Group {
        Group {
            title,
            subjects: Vec::new(),
            cells: Vec::new(),
            weight,
            warmups: 1,
            rounds_at_most: 200,
            repeats: 1,
            children: 0,
            pool_pages: 0,
            notes: Vec::new(),
        }
    }

    /// Adds a subject and gives its index.
    pub fn seat(&mut self, spec: SubjectSpec) -> usize {
        if matches!(spec.layout, crate::workload::memory::Layout::Hugetlb) {
            // And a few for what a child writes.
            self.pool_pages += spec.size.div_ceil(2 << 20) + 8;
        }
        self.subjects.push(spec);
        self.subjects.len() - 1
    }

    /// Bytes that must be available before it starts.
    pub fn needs(&self) -> u64 {
        let held: u64 = self.subjects.iter().map(|subject| subject.size).sum();
        held + held / 16 + self.children + HEADROOM
    }
}

/// What an experiment plans with.
#[derive(Clone, Debug)]
pub struct Brief {
    pub engines: Vec<Engine>,
    pub effort: Effort,
    /// Bytes that can be had now.
    pub available: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Quick,
    Default,
    Full,
}

impl Effort {
    pub fn word(self) -> &'static str {
        match self {
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Full => "full",
        }
    }
}

impl Brief {
    /// Leaves out, with a note, the groups that do not fit into memory.
    pub fn fitting(&self, groups: Vec<Group>, notes: &mut Vec<String>) -> Vec<Group> {
        let (fitting, cut): (Vec<Group>, Vec<Group>) =
            groups.into_iter().partition(|group| group.needs() <= self.available);
        if let Some(least) = cut.iter().map(Group::needs).min() {
            let titles: Vec<&str> = cut.iter().map(|group| group.title.as_str()).collect();
            notes.push(format!(
                "cut: {} left out; at least {} MB are needed and {} MB are available",
                titles.join(", "),
                least >> 20,
                self.available >> 20
            ));
        }
        fitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_samples_in_their_unit() {
        assert_eq!(Reading::Ns.read(1500.0), 1500.0);
        assert_eq!(Reading::Seconds.read(2e9), 2.0);
        assert_eq!(Reading::Rate(4096).read(4096.0), 1e9);
        assert_eq!(Reading::Rate(1).unit(), "bytes/s");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let group = |size: u64| {
            let mut group = Group::new(format!("{size} GB"), 1.0);
            group.seat(Engine::Plain.subject(size << 30));
            group
        };
        let brief =
            Brief { engines: vec![Engine::Plain], effort: Effort::Default, available: 3 << 30 };
        let mut notes = Vec::new();
        let left = brief.fitting(vec![group(1), group(8)], &mut notes);
        assert_eq!(left.len(), 1);
        assert!(notes[0].contains("8 GB left out"), "{notes:?}");
    }
}
