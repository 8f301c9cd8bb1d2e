//! The engines an experiment compares, by the words users and sample files know them by.
//!
//! Owns: which engine means which kind of subject, and whether it can be had here. Does not start anything.

use crate::executor::Stage;
use crate::experiments::{Engine as Loading, Freeze, SubjectSpec};
use crate::workload::memory::Layout;
use crate::workload::protocol::Command;
use odfork_proc::cow_fork::{self, Support};

/// What pays for the copy: nothing special, larger pages, an image, the kernel's page tables, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// 4 KB pages under the running kernel's fork.
    Plain,
    /// Transparent huge pages (MADV_HUGEPAGE).
    Thp,
    /// Huge pages from the kernel's pool (MAP_HUGETLB).
    Hugetlb,
    /// libodfork.so preloaded, memory frozen.
    Image,
    /// A kernel that shares page tables at fork, asked to by the subject (`cow_fork`).
    Kernel,
    /// The harness alone: every clock and loop, without the thing measured.
    Null,
}

use Engine::{Hugetlb, Image, Kernel, Null, Plain, Thp};

pub const ALL: [Engine; 6] = [Plain, Thp, Hugetlb, Image, Kernel, Null];

/// Under it no engine but one would be what it is called.
const SHARED_BY_ALL: &str =
    "with vm.cow_fork=2 every fork shares page tables, so only the kernel engine is itself; sysctl vm.cow_fork=1";
const THP_MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

impl Engine {
    pub fn word(self) -> &'static str {
        match self {
            Plain => "plain",
            Thp => "thp",
            Hugetlb => "hugetlb",
            Image => "image",
            Kernel => "kernel",
            Null => "null",
        }
    }

    pub fn from_word(word: &str) -> Option<Engine> {
        ALL.into_iter().find(|engine| engine.word() == word)
    }

    /// Why this engine cannot be had here; None when it can.
    pub fn refusal(self, stage: &Stage) -> Option<String> {
        match self {
            Kernel => cow_fork::support().obstacle().map(str::to_owned),
            Plain | Thp | Hugetlb | Image if cow_fork::support() == Support::Everyone => {
                Some(SHARED_BY_ALL.to_owned())
            }
            Image if !stage.library.exists() => Some(format!(
                "{} is missing; build it with `cargo build --release --workspace`, or name it in ODFORK_LIB",
                stage.library.display()
            )),
            Thp if std::fs::read_to_string(THP_MODE).is_ok_and(|mode| mode.contains("[never]")) => {
                Some(format!("transparent huge pages are off in {THP_MODE}"))
            }
            _ => None,
        }
    }

    /// A subject of this engine that holds `size` bytes.
    pub fn subject(self, size: u64) -> SubjectSpec {
        let (loading, layout) = match self {
            Plain => (Loading::Stock, Layout::Mapped),
            Thp => (Loading::Stock, Layout::Huge),
            Hugetlb => (Loading::Stock, Layout::Hugetlb),
            Image => (Loading::Odfork(Freeze::Eager), Layout::Mapped),
            Kernel => (Loading::Kernel, Layout::Mapped),
            Null => (Loading::Null, Layout::Mapped),
        };
        let prepare = (self == Image).then_some(Command::Freeze);
        // The harness costs the same whatever the memory: it need not hold any.
        let size = if self == Null { size.min(1 << 20) } else { size };
        SubjectSpec { layout, prepare, ..SubjectSpec::new(loading, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_one_engine() {
        for engine in ALL {
            assert_eq!(Engine::from_word(engine.word()), Some(engine));
        }
        assert_eq!(Engine::from_word("vfork"), None);
    }

    #[test]
    fn only_an_image_is_prepared_and_the_harness_holds_next_to_nothing() {
        let prepared: Vec<&str> = ALL
            .into_iter()
            .filter(|engine| engine.subject(1 << 30).prepare.is_some())
            .map(Engine::word)
            .collect();
        assert_eq!(prepared, ["image"]);
        assert_eq!(Null.subject(1 << 30).size, 1 << 20);
    }
}
