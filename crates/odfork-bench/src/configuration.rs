//! The configurations an experiment compares, by the words users and sample files know them by, and
//! the subjects they are.
//!
//! Owns: which configuration means which kind of subject, and whether it can be had here. Does not
//! start anything.

use std::path::Path;

use odfork_proc::cow_fork::{self, Support};

use crate::words::words;
use crate::workload::memory::{Layout, THP_MODE};
use crate::workload::protocol::Command;

words! {
    /// What pays for the copy: nothing special, larger pages, a backing file, the kernel's page
    /// tables, or nobody.
    Configuration: 6 {
        /// 4 KB pages under the running kernel's fork.
        Plain = "plain",
        /// Transparent huge pages (MADV_HUGEPAGE).
        Thp = "thp",
        /// Huge pages from the kernel's pool (MAP_HUGETLB).
        Hugetlb = "hugetlb",
        /// libodfork.so preloaded.
        Image = "image",
        /// A kernel that shares page tables at fork, asked to by the subject (`cow_fork`).
        Kernel = "kernel",
        /// The harness alone: every clock and loop, without the thing measured.
        Null = "null",
    }
}

use Configuration::{Hugetlb, Image, Kernel, Null, Plain, Thp};

/// Under it no configuration but one would be what it is called.
const SHARED_BY_ALL: &str = "with vm.cow_fork=2 every fork shares page tables, so only the kernel \
                             engine is itself; sysctl vm.cow_fork=1";

impl Configuration {
    /// Why it cannot be had here; None when it can.
    pub fn refusal(self, library: &Path) -> Option<String> {
        match self {
            Kernel => cow_fork::support().obstacle().map(str::to_owned),
            Plain | Thp | Hugetlb | Image if cow_fork::support() == Support::Everyone => {
                Some(SHARED_BY_ALL.to_owned())
            }
            Image if !library.exists() => Some(format!(
                "{} is missing; build it with `cargo build --release --workspace`, \
                 or name it in ODFORK_LIB",
                library.display()
            )),
            Thp if std::fs::read_to_string(THP_MODE).is_ok_and(|mode| mode.contains("[never]")) => {
                Some(format!("transparent huge pages are off in {THP_MODE}"))
            }
            _ => None,
        }
    }

    /// A subject that holds `size` bytes and has forked a few times: the first forks of a process
    /// are not like the rest. What is to be frozen is; a refused freeze leaves the memory as it
    /// was, and the engine tells so at the end.
    pub fn subject(self, size: u64) -> Subject {
        let freeze = (self == Image).then_some(Command::Freeze);
        let prepare = freeze.into_iter().chain([Command::Fork { calls: 3 }]);
        // The harness costs the same whatever the memory: it need not hold any.
        let size = if self == Null { size.min(1 << 20) } else { size };
        Subject { prepare: prepare.map(Preparation::Try).collect(), ..Subject::new(self, size) }
    }
}

words! {
    /// ODFORK_FREEZE of a subject.
    Freeze: 3 {
        /// When forks have cost as much as a freeze.
        Auto = "auto",
        /// At the first fork.
        Eager = "eager",
        /// Not at all.
        Never = "never",
    }
}

/// Asked once before measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preparation {
    /// A refusal changes nothing.
    Try(Command),
    /// A refusal ends the subject's part.
    Must(Command),
}

/// A process that holds memory and obeys.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What is compared.
    pub configuration: Configuration,
    /// Of the configuration `image`.
    pub freeze: Freeze,
    /// A Python interpreter instead of this program.
    pub is_python: bool,
    /// Bytes it holds.
    pub size: u64,
    /// How much of it is filled and worked on; None: all.
    pub touched: Option<u64>,
    /// What kind of memory they are.
    pub layout: Layout,
    /// Threads beside the first, which only sleep.
    pub threads: u32,
    /// Kept on one processor with its children. Not for subjects that are asked together.
    pub pinned: bool,
    /// What it does before the first round.
    pub prepare: Vec<Preparation>,
}

impl Subject {
    /// A subject of this size with the layout its configuration needs, and nothing else.
    pub fn new(configuration: Configuration, size: u64) -> Subject {
        let layout = match configuration {
            Thp => Layout::Huge,
            Hugetlb => Layout::Hugetlb,
            _ => Layout::Mapped,
        };
        Subject {
            configuration,
            freeze: Freeze::Eager,
            is_python: false,
            size,
            touched: None,
            layout,
            threads: 0,
            pinned: true,
            prepare: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_is_frozen_and_the_harness_holds_next_to_nothing() {
        let freeze = Preparation::Try(Command::Freeze);
        let frozen: Vec<&str> = Configuration::ALL
            .into_iter()
            .filter(|configuration| configuration.subject(1 << 30).prepare.contains(&freeze))
            .map(Configuration::word)
            .collect();
        assert_eq!(frozen, ["image"]);
        assert_eq!(Null.subject(1 << 30).size, 1 << 20);
    }
}
