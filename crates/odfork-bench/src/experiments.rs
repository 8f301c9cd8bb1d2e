//! The experiments: which subjects are held, what their arms are asked, and for how long. Data, no doing.
//!
//! An experiment loads its subjects once and runs several measures on them. Its size can be halved until it fits
//! the machine; the goals of the figures apply only at the nominal size. Reference arms (an empty process, a
//! 64 MB one) ride along in the same rounds, so that "flat" is a paired ratio too.

use std::time::Duration;

use crate::workload::memory::Layout;
use crate::workload::protocol::Command;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Memory left to everything else on the machine.
const HEADROOM: u64 = 512 * MIB;
/// Below this an experiment says nothing any more and is left out.
const SMALLEST: u64 = 16 * MIB;

/// ODFORK_FREEZE of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    Auto,
    Eager,
    Never,
}

impl Freeze {
    pub fn word(self) -> &'static str {
        match self {
            Freeze::Auto => "auto",
            Freeze::Eager => "eager",
            Freeze::Never => "never",
        }
    }
}

/// What forks: the kernel alone, or with the library preloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Stock,
    Odfork(Freeze),
    /// A kernel with on-demand-fork, told to use it.
    Kernel,
    /// Nobody: the harness alone.
    Null,
    /// The kernel alone, and the process is a Python interpreter.
    Python,
}

/// A process that holds memory and obeys.
#[derive(Clone, Copy, Debug)]
pub struct SubjectSpec {
    pub engine: Engine,
    pub size: u64,
    /// How much of it is filled and worked on; None: all.
    pub touched: Option<u64>,
    pub layout: Layout,
    pub threads: u32,
    /// Kept on one processor with its children. Not for subjects that are asked together.
    pub pinned: bool,
    /// Asked once before measuring.
    pub prepare: Option<Command>,
}

impl SubjectSpec {
    pub fn new(engine: Engine, size: u64) -> Self {
        SubjectSpec {
            engine,
            size,
            touched: None,
            layout: Layout::Mapped,
            threads: 0,
            pinned: true,
            prepare: None,
        }
    }
}

/// A whole program: started, runs to its end, timed from outside.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec {
    pub engine: Engine,
    pub size: u64,
    pub forks: u32,
}

/// What one sample of an arm is.
#[derive(Clone, Debug)]
pub enum Act {
    /// Ask these subjects, all at once; the sample is the median of their answers. With `watch`, the memory taken
    /// meanwhile by the first is sampled (`extra`, and `extra-system` as MemAvailable saw it); then it thaws, unwatched.
    Ask {
        subjects: Vec<usize>,
        command: Command,
        watch: bool,
    },
    Run(ProgramSpec),
}

impl Act {
    fn has_label(&self, label: &str) -> bool {
        match self {
            Act::Ask { command, watch, .. } => {
                command.labels().contains(&label) || (*watch && label.starts_with("extra"))
            }
            Act::Run(_) => label == "program",
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Arm {
    pub name: &'static str,
    pub act: Act,
}

/// How long a measure may go on.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub warmup: u32,
    pub rounds_at_least: u32,
    pub rounds_at_most: u32,
    pub time: Duration,
}

impl Budget {
    pub fn new(warmup: u32, rounds_at_least: u32, rounds_at_most: u32, seconds: f64) -> Self {
        Budget { warmup, rounds_at_least, rounds_at_most, time: Duration::from_secs_f64(seconds) }
    }
}

/// Arms that are interleaved.
#[derive(Clone, Debug)]
pub struct Measure {
    pub arms: Vec<Arm>,
    pub budget: Budget,
}

impl Measure {
    pub fn gives(&self, label: &str) -> bool {
        self.arms.iter().any(|arm| arm.act.has_label(label))
    }
}

/// Subjects and the measures taken on them.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub name: &'static str,
    pub size: u64,
    /// The size the goals speak of.
    pub nominal: u64,
    /// How many times `size` children or copies need beyond the subjects.
    pub copies: u64,
    pub subjects: Vec<SubjectSpec>,
    pub measures: Vec<Measure>,
}

impl Experiment {
    /// Bytes that must be available for it.
    pub fn needs(&self) -> u64 {
        let held: u64 = self.subjects.iter().map(|subject| subject.size).sum();
        held + held / 16 + self.copies * self.size + HEADROOM
    }

    /// The same at half the size. Reference subjects keep theirs.
    fn halved(mut self) -> Self {
        let size = self.size;
        for subject in self.subjects.iter_mut().filter(|subject| subject.size == size) {
            subject.touched = subject.touched.map(|touched| touched / 2);
        }
        let programs =
            self.measures.iter_mut().flat_map(|measure| &mut measure.arms).filter_map(|arm| {
                match &mut arm.act {
                    Act::Run(program) => Some(&mut program.size),
                    Act::Ask { .. } => None,
                }
            });
        let held = self.subjects.iter_mut().map(|subject| &mut subject.size);
        for other in held.chain(programs).filter(|other| **other == size) {
            *other = size / 2;
        }
        self.size = size / 2;
        self
    }

    /// The largest version, halving, that fits into `available` bytes. None: not even a small one fits.
    pub fn fitted(mut self, available: u64) -> Option<Self> {
        while self.needs() > available {
            if self.size / 2 < SMALLEST {
                return None;
            }
            self = self.halved();
        }
        Some(self)
    }

    /// Rough length in seconds, for the time left: loading at 1.5 GB/s, the budgets, checking at the end.
    pub fn expected_seconds(&self) -> f64 {
        let held: u64 = self.subjects.iter().map(|subject| subject.size).sum();
        let gigabytes = held as f64 / GIB as f64;
        let measuring: f64 =
            self.measures.iter().map(|measure| measure.budget.time.as_secs_f64() * 1.1).sum();
        0.3 + gigabytes * 1.5 + measuring
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(size: u64, copies: u64) -> Experiment {
        Experiment {
            name: "e",
            size,
            nominal: size,
            copies,
            subjects: vec![
                SubjectSpec::new(Engine::Stock, size),
                SubjectSpec::new(Engine::Odfork(Freeze::Eager), size),
                SubjectSpec::new(Engine::Stock, 0),
                SubjectSpec::new(Engine::Odfork(Freeze::Eager), 64 * MIB),
            ],
            measures: vec![Measure {
                arms: vec![Arm {
                    name: "stock",
                    act: Act::Run(ProgramSpec { engine: Engine::Stock, size, forks: 1 }),
                }],
                budget: Budget::new(1, 3, 5, 1.0),
            }],
        }
    }

    #[test]
    fn a_fitting_experiment_keeps_its_size() {
        let fitted = experiment(8 * GIB, 0).fitted(22 * GIB).unwrap();
        assert_eq!((fitted.size, fitted.nominal), (8 * GIB, 8 * GIB));
    }

    #[test]
    fn a_large_one_is_halved_but_its_references_are_not() {
        let mut large = experiment(8 * GIB, 0);
        large.subjects[1].touched = Some(GIB);
        let fitted = large.fitted(6 * GIB).unwrap();
        assert_eq!(fitted.subjects[1].touched, Some(GIB / 4));
        assert_eq!((fitted.size, fitted.nominal), (2 * GIB, 8 * GIB));
        let sizes: Vec<u64> = fitted.subjects.iter().map(|s| s.size).collect();
        assert_eq!(sizes, [2 * GIB, 2 * GIB, 0, 64 * MIB]);
        let Act::Run(program) = &fitted.measures[0].arms[0].act else {
            panic!("a program");
        };
        assert_eq!(program.size, 2 * GIB);
        assert!(fitted.needs() <= 6 * GIB);
    }

    #[test]
    fn copies_count_and_nothing_fits_into_nothing() {
        assert!(experiment(GIB, 2).needs() > experiment(GIB, 0).needs() + GIB);
        assert!(experiment(GIB, 0).fitted(100 * MIB).is_none());
    }
}
