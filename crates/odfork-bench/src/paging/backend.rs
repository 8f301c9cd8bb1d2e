//! Who pages: the backends of the experiment, their words, what each is asked, and how its workload process is started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::acts::Act;
use crate::link::Link;
use crate::peers::swap;

/// Engines of this experiment, in the order of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// A memory limit and swap on a file.
    SwapFile,
    /// A memory limit and swap on lz4-compressed memory.
    Zram,
    /// A memory limit and a mapped file.
    Mmap,
    /// Our pager, pages out on disk.
    Pager,
    /// Our pager, pages out in memory, compressed by lz4.
    PagerLz4,
    /// The same with two threads that serve faults.
    PagerTwo,
    /// The umap library with pages of 4 KB.
    Umap4K,
    /// The umap library with pages of 64 KB.
    Umap64K,
    /// Nobody: the bare continue fault, the yardstick of a reclaim.
    Bare,
}

use Backend::{Bare, Mmap, Pager, PagerLz4, PagerTwo, SwapFile, Umap4K, Umap64K, Zram};

pub const ALL: [Backend; 9] =
    [SwapFile, Zram, Mmap, Pager, PagerLz4, PagerTwo, Umap4K, Umap64K, Bare];
pub use odfork_samples::configurations::BACKENDS as WORDS;

/// Threads of the act in which many fault at once.
pub const MANY: u32 = 8;
/// Reclaims alone; what was read is compared before and after.
const RECLAIM: [Act; 3] = [Act::Settle, Act::Reclaim, Act::Settle];
const IN_ORDER: [Act; 2] = [Act::SeqRead, Act::SeqWrite];
const REST: [Act; 5] = [Act::Warm, Act::Zipf, Act::Phase, Act::Threads(1), Act::Threads(MANY)];

/// What every workload process of a run is told, and where things lie.
#[derive(Clone, Debug)]
pub struct Site {
    /// This program.
    pub program: PathBuf,
    /// Bytes of memory of the workload.
    pub region: u64,
    /// Bytes of it that may be resident.
    pub resident: u64,
    /// Most time of an act.
    pub limit: Duration,
    /// Folder on a disk: swap file, mapped file, the pager's store.
    pub store: PathBuf,
    /// Folder of the socket.
    pub office: PathBuf,
    /// The umap library, if the user has one.
    pub umap: Option<PathBuf>,
}

impl Backend {
    pub fn word(self) -> &'static str {
        WORDS[ALL.iter().position(|&backend| backend == self).unwrap_or(0)]
    }

    pub fn from_word(word: &str) -> Option<Backend> {
        WORDS.iter().position(|known| *known == word).map(|at| ALL[at])
    }

    pub fn is_pager(self) -> bool {
        matches!(self, Pager | PagerLz4 | PagerTwo)
    }

    pub fn maps_file(self) -> bool {
        matches!(self, Mmap | Umap4K | Umap64K)
    }

    /// What it is asked in one round, in this order.
    pub fn acts(self) -> Vec<Act> {
        match self {
            Bare => vec![Act::Continue],
            // Only the comparison of one handler with two needs it.
            PagerTwo => vec![Act::Fill, Act::SeqRead, Act::Threads(1), Act::Threads(MANY)],
            // Their file is full from the beginning.
            Mmap | Umap4K | Umap64K => [&IN_ORDER[..], &REST].concat(),
            SwapFile | Zram => [&[Act::Fill][..], &IN_ORDER, &REST].concat(),
            Pager | PagerLz4 => [&[Act::Fill][..], &IN_ORDER, &REST, &RECLAIM].concat(),
        }
    }

    /// Bytes its control group may use; None: it bounds itself, the group only counts.
    pub fn group_limit(self, site: &Site) -> Option<u64> {
        matches!(self, SwapFile | Zram | Mmap).then(|| site.resident + allowance(site.region))
    }

    /// Why it cannot be had here; None: it can, as far as one sees from outside.
    pub fn refusal(self, site: &Site) -> Option<String> {
        match self {
            SwapFile => swap::refusal(),
            Zram => swap::zram_refusal(),
            Pager | PagerLz4 | PagerTwo => probe_pager(site).err(),
            Umap4K | Umap64K if site.umap.is_none() => {
                Some("give the folder of a built libumap.so with --umap DIR".into())
            }
            _ => None,
        }
    }

    /// The process, not yet started; `seed` of its accesses.
    pub fn command(self, site: &Site, seed: u64) -> Command {
        let mut command = if self.is_pager() {
            let (store, compress) = match self {
                Pager => (site.store.as_path(), "none"),
                _ => (Path::new("memory"), "lz4"),
            };
            let mut run = pager_run(site, store, compress, if self == PagerTwo { 2 } else { 1 });
            run.arg("--socket").arg(self.socket(site, seed)).arg("--").arg(&site.program);
            run
        } else {
            plain(&site.program)
        };
        command.arg("paged");
        command.args(["--region", &site.region.to_string()]);
        command.args(["--resident", &site.resident.to_string()]);
        command.args(["--limit", &site.limit.as_millis().to_string()]);
        command.args(["--seed", &seed.to_string()]);
        if self.maps_file() {
            command.arg("--file").arg(self.file(site));
        }
        if let (Umap4K | Umap64K, Some(library)) = (self, &site.umap) {
            let page = if self == Umap4K { 4 << 10 } else { 64 << 10 };
            command.arg("--umap").arg(library);
            command.env("UMAP_PAGESIZE", page.to_string());
            command.env("UMAP_BUFSIZE", (site.resident / page).to_string());
        }
        command
    }

    /// Where the pager of one trial is asked: a daemon of an earlier one may still be there.
    pub fn socket(self, site: &Site, seed: u64) -> PathBuf {
        site.office.join(format!("{}-{seed:x}.sock", self.word()))
    }

    /// The file it maps, where it does.
    pub fn file(self, site: &Site) -> PathBuf {
        site.store.join(format!("odfork-{}-{}", self.word(), std::process::id()))
    }
}

/// What the process needs beside its region: its lists, page tables, itself.
pub fn allowance(region: u64) -> u64 {
    (4 << 20) + region * 3 / 256
}

/// A command whose environment says nothing of us.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ODFORK_PAGE_") && name != "ODFORK_PAGE_LIB" {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD");
    command
}

/// `odfork page run` with a daemon of our own; the program and its arguments are still to come.
fn pager_run(site: &Site, store: &Path, compress: &str, handlers: u32) -> Command {
    let mut command = plain(&site.program);
    command.args(["page", "run", "--limit", &site.resident.to_string()]);
    command.arg("--store").arg(store);
    command.args(["--compress", compress, "--handlers", &handlers.to_string()]);
    // What does not fit into memory is all of the region, whatever it compresses to.
    command.args(["--store-size", &(site.region + (site.region >> 2)).to_string()]);
    // The lists of the workload are not what is paged here.
    command.args(["--malloc", "0"]);
    command
}

/// Runs `true` under the pager.
fn probe_pager(site: &Site) -> Result<(), String> {
    let mut command = plain(&site.program);
    command.args(["page", "run", "--limit", "16M", "--store", "memory", "--socket"]);
    command.arg(site.office.join("probe.sock")).args(["--", "true"]);
    command.stderr(std::process::Stdio::piped());
    let mut link = Link::spawn(&mut command).map_err(|error| format!("{error:#}"))?;
    match link.finish(Duration::from_secs(10)) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("`odfork page run -- true` ends with {status}; try it for the reason"))
        }
        Err(loss) => Err(format!("`odfork page run -- true`: {loss}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn site() -> Site {
        Site {
            program: "/bin/odfork".into(),
            region: 1 << 30,
            resident: 256 << 20,
            limit: Duration::from_secs(5),
            store: "/var/tmp".into(),
            office: "/tmp/o".into(),
            umap: Some("/opt/umap/libumap.so".into()),
        }
    }

    fn words(backend: Backend) -> String {
        let command = backend.command(&site(), 7);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_word_means_one_backend() {
        for backend in ALL {
            assert_eq!(Backend::from_word(backend.word()), Some(backend));
        }
        assert_eq!(Backend::from_word("plain"), None);
    }

    #[test]
    fn the_same_workload_runs_under_every_backend() {
        for backend in ALL {
            let line = words(backend);
            assert!(line.contains("paged --region 1073741824 --resident 268435456"), "{line}");
            assert_eq!(line.contains("page run"), backend.is_pager(), "{line}");
            assert_eq!(
                line.contains("--file"),
                matches!(backend, Mmap | Umap4K | Umap64K),
                "{line}"
            );
        }
        assert!(words(Pager).contains("--store /var/tmp --compress none --handlers 1"));
        assert!(words(PagerTwo).contains("--store memory --compress lz4 --handlers 2"));
        let umap = Umap64K.command(&site(), 1);
        let size = umap.get_envs().find(|(name, _)| *name == "UMAP_BUFSIZE").unwrap().1;
        assert_eq!(size.unwrap(), "4096");
    }

    #[test]
    fn only_what_the_kernel_pages_is_bounded_by_the_group() {
        let bounded: Vec<Backend> =
            ALL.into_iter().filter(|backend| backend.group_limit(&site()).is_some()).collect();
        assert_eq!(bounded, [SwapFile, Zram, Mmap]);
        assert_eq!(SwapFile.group_limit(&site()), Some((256 + 16) << 20));
    }

    #[test]
    fn umap_without_a_library_says_how_to_give_one() {
        let without = Site { umap: None, ..site() };
        assert!(Umap4K.refusal(&without).unwrap().contains("--umap DIR"));
        assert_eq!(Umap4K.refusal(&site()), None);
    }

    #[test]
    fn every_series_of_a_target_is_one_that_is_measured() {
        use odfork_samples::targets::{Of, TARGETS};
        for target in TARGETS {
            let both = match target.of {
                Of::Ratio(a, b) | Of::Difference(a, b) => vec![a, b],
                Of::One(a) | Of::Sum(a) => vec![a],
            };
            for (engine, act, _) in both {
                let at = WORDS.iter().position(|word| *word == engine).unwrap();
                let asked = ALL[at].acts().iter().any(|known| known.word() == act);
                assert!(asked || act.is_empty(), "{}: {engine} is not asked {act}", target.what);
            }
        }
    }
}
