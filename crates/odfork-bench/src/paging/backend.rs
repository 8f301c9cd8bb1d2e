//! Who pages: the backends of the experiment, their words, what each is asked, and how its workload
//! process is started.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::op::Op;
use crate::baselines::swap;
use crate::link::Link;
use crate::pager::plain;
use odfork_samples::samples::Params;

/// In the order of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Our pager of all memory, pages out on disk.
    Any,
    /// The same, pages out in memory, compressed by lz4.
    AnyLz4,
    /// The umap library with pages of 4 KB.
    Umap4K,
    /// The umap library with pages of 64 KB.
    Umap64K,
    /// Nobody: the bare continue fault, the yardstick of a reclaim.
    Bare,
}

use Backend::{
    Any, AnyLz4, Bare, Mmap, Pager, PagerLz4, PagerTwo, SwapFile, Umap4K, Umap64K, Zram,
};

pub const ALL: [Backend; 11] =
    [SwapFile, Zram, Mmap, Pager, PagerLz4, PagerTwo, Any, AnyLz4, Umap4K, Umap64K, Bare];
pub use odfork_samples::configurations::BACKENDS as WORDS;

/// Threads of the op in which many fault at once.
pub const MANY: u32 = 8;
/// Reclaims alone; what was read is compared before and after.
const RECLAIM: [Op; 3] = [Op::Settle, Op::Reclaim, Op::Settle];
const IN_ORDER: [Op; 2] = [Op::SeqRead, Op::SeqWrite];
const REST: [Op; 5] = [Op::Warm, Op::Zipf, Op::Phase, Op::Threads(1), Op::Threads(MANY)];

/// What every workload process of a run is told, and where things lie.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This program.
    pub program: PathBuf,
    /// Bytes of memory of the workload.
    pub region: u64,
    /// Bytes of it that may be resident.
    pub resident: u64,
    /// Most time of an op.
    pub limit: Duration,
    /// Folder on a disk: swap file, mapped file, the pager's store.
    pub store: PathBuf,
    /// Temporary folder of the sockets.
    pub folder: PathBuf,
    /// The umap library, if the user has one.
    pub umap: Option<PathBuf>,
}

impl Settings {
    /// Of every sample.
    pub fn params(&self) -> Params {
        [("bytes", self.region), ("resident", self.resident)]
            .map(|(name, bytes)| (name.to_string(), bytes.into()))
            .into()
    }
}

impl Backend {
    pub fn word(self) -> &'static str {
        WORDS[self as usize]
    }

    /// It has a daemon, which can be asked.
    pub fn is_pager(self) -> bool {
        matches!(self, Pager | PagerLz4 | PagerTwo)
    }

    /// It pages all memory of the process.
    pub fn is_any(self) -> bool {
        matches!(self, Any | AnyLz4)
    }

    pub fn maps_file(self) -> bool {
        matches!(self, Mmap | Umap4K | Umap64K)
    }

    /// What it is asked in one round, in this order.
    pub fn ops(self) -> Vec<Op> {
        match self {
            Bare => vec![Op::Continue],
            // Only the comparison of one handler with two needs it.
            PagerTwo => vec![Op::Fill, Op::SeqRead, Op::Threads(1), Op::Threads(MANY)],
            // Their file is full from the beginning.
            Mmap | Umap4K | Umap64K => [&IN_ORDER[..], &REST].concat(),
            SwapFile | Zram | Any | AnyLz4 => [&[Op::Fill][..], &IN_ORDER, &REST].concat(),
            Pager | PagerLz4 => [&[Op::Fill][..], &IN_ORDER, &REST, &RECLAIM].concat(),
        }
    }

    /// Bytes its control group may use; None: it bounds itself, the group only counts.
    pub fn group_limit(self, settings: &Settings) -> Option<u64> {
        let bounded = matches!(self, SwapFile | Zram | Mmap);
        bounded.then(|| settings.resident + allowance(settings.region))
    }

    /// Why it cannot be had here; None: it can, as far as one sees from outside.
    pub fn refusal(self, settings: &Settings) -> Option<String> {
        match self {
            SwapFile => swap::refusal(),
            Zram => swap::zram_refusal(),
            Pager | PagerLz4 | PagerTwo => {
                let socket = settings.folder.join("probe.sock");
                probe(settings, &["large".as_ref(), "--socket".as_ref(), socket.as_os_str()]).err()
            }
            Any | AnyLz4 => probe(settings, &["any".as_ref()]).err(),
            Umap4K | Umap64K if settings.umap.is_none() => {
                Some("give the folder of a built libumap.so with --umap DIR".into())
            }
            _ => None,
        }
    }

    /// The process, not yet started; `seed` of its accesses.
    pub fn command(self, settings: &Settings, seed: u64) -> Command {
        let mut command = match self {
            Pager => pager_run(settings, (&settings.store, "none", 1)),
            PagerLz4 => pager_run(settings, (Path::new("memory"), "lz4", 1)),
            PagerTwo => pager_run(settings, (Path::new("memory"), "lz4", 2)),
            Any => any_run(settings, (&settings.store, "none")),
            AnyLz4 => any_run(settings, (Path::new("memory"), "lz4")),
            _ => plain(&settings.program),
        };
        if self.is_pager() {
            command.arg("--socket").arg(self.socket(settings, seed));
        }
        if self.is_pager() || self.is_any() {
            command.arg("--").arg(&settings.program);
        }
        command.arg("paged");
        for (name, number) in [
            ("--region", settings.region),
            ("--resident", settings.resident),
            ("--limit", settings.limit.as_millis() as u64),
            ("--seed", seed),
        ] {
            command.args([name, &number.to_string()]);
        }
        if self.maps_file() {
            command.arg("--file").arg(self.file(settings));
        }
        if let (Umap4K | Umap64K, Some(library)) = (self, &settings.umap) {
            let page = if self == Umap4K { 4 << 10 } else { 64 << 10 };
            command.arg("--umap").arg(library);
            command.env("UMAP_PAGESIZE", page.to_string());
            command.env("UMAP_BUFSIZE", (settings.resident / page).to_string());
        }
        command
    }

    /// Where the pager of one trial is asked: a daemon of an earlier one may still be there.
    pub fn socket(self, settings: &Settings, seed: u64) -> PathBuf {
        settings.folder.join(format!("{}-{seed:x}.sock", self.word()))
    }

    /// The file it maps, where it does.
    pub fn file(self, settings: &Settings) -> PathBuf {
        settings.store.join(format!("odfork-{}-{}", self.word(), std::process::id()))
    }
}

/// What the process needs beside its region: its lists, page tables, itself.
pub fn allowance(region: u64) -> u64 {
    (4 << 20) + region * 3 / 256
}

/// `odfork page run` with a daemon of our own; the program and its arguments are still to come.
fn pager_run(settings: &Settings, (store, compress, handlers): (&Path, &str, u32)) -> Command {
    let mut command = plain(&settings.program);
    command.args(["page", "run", "--limit", &settings.resident.to_string()]);
    command.arg("--store").arg(store);
    command.args(["--compress", compress, "--handlers", &handlers.to_string()]);
    // What does not fit into memory is all of the region, whatever it compresses to.
    command.args(["--store-size", &(settings.region + (settings.region >> 2)).to_string()]);
    // The lists of the workload are not what is paged here.
    command.args(["--malloc", "0"]);
    command
}

/// The same without a daemon. Its limit is for all of the process, as that of a control group is.
fn any_run(settings: &Settings, (store, compress): (&Path, &str)) -> Command {
    let mut command = plain(&settings.program);
    let limit = settings.resident + allowance(settings.region);
    command.args(["page", "run", "--memory", "any", "--limit", &limit.to_string()]);
    command.arg("--store").arg(store).args(["--compress", compress]);
    command
}

/// Runs `true` under the pager, with these words behind `--memory`.
fn probe(settings: &Settings, words: &[&OsStr]) -> Result<(), String> {
    let mut command = plain(&settings.program);
    command.args(["page", "run", "--limit", "16M", "--store", "memory", "--memory"]);
    command.args(words).args(["--", "true"]);
    command.stderr(Stdio::piped());
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

    pub fn settings() -> Settings {
        Settings {
            program: "/bin/odfork".into(),
            region: 1 << 30,
            resident: 256 << 20,
            limit: Duration::from_secs(5),
            store: "/var/tmp".into(),
            folder: "/tmp/o".into(),
            umap: Some("/opt/umap/libumap.so".into()),
        }
    }

    fn words(backend: Backend) -> String {
        let command = backend.command(&settings(), 7);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_word_means_one_backend() {
        assert_eq!(ALL.map(Backend::word), WORDS);
        assert_eq!(
            (PagerTwo.word(), Umap4K.word(), Bare.word()),
            ("pager-lz4-2", "umap-4k", "bare")
        );
    }

    #[test]
    fn the_same_workload_runs_under_every_backend() {
        for backend in ALL {
            let line = words(backend);
            assert!(line.contains("paged --region 1073741824 --resident 268435456"), "{line}");
            assert_eq!(line.contains("page run"), backend.is_pager() || backend.is_any(), "{line}");
            assert_eq!(
                line.contains("--file"),
                matches!(backend, Mmap | Umap4K | Umap64K),
                "{line}"
            );
        }
        assert!(words(Pager).contains("--store /var/tmp --compress none --handlers 1"));
        assert!(words(Any).contains("--memory any --limit 285212672 --store /var/tmp"));
        assert!(words(PagerTwo).contains("--store memory --compress lz4 --handlers 2"));
        let umap = Umap64K.command(&settings(), 1);
        let size = umap.get_envs().find(|(name, _)| *name == "UMAP_BUFSIZE").unwrap().1;
        assert_eq!(size.unwrap(), "4096");
    }

    #[test]
    fn only_what_the_kernel_pages_is_bounded_by_the_group() {
        let bounded: Vec<Backend> =
            ALL.into_iter().filter(|backend| backend.group_limit(&settings()).is_some()).collect();
        assert_eq!(bounded, [SwapFile, Zram, Mmap]);
        assert_eq!(SwapFile.group_limit(&settings()), Some((256 + 16) << 20));
    }

    #[test]
    fn umap_without_a_library_says_how_to_give_one() {
        let without = Settings { umap: None, ..settings() };
        assert!(Umap4K.refusal(&without).unwrap().contains("--umap DIR"));
        assert_eq!(Umap4K.refusal(&settings()), None);
    }

    #[test]
    fn every_series_of_a_target_is_one_that_is_measured() {
        use odfork_samples::targets::{Of, TARGETS};
        for target in TARGETS.iter() {
            let both = match target.of {
                Of::Ratio(a, b) | Of::Difference(a, b) => vec![a, b],
                Of::One(a) | Of::Sum(a) => vec![a],
            };
            for (backend, op, _) in both {
                let at = WORDS.iter().position(|word| *word == backend).unwrap();
                let asked = ALL[at].ops().iter().any(|known| known.word() == op);
                assert!(asked || op.is_empty(), "{}: {backend} is not asked {op}", target.what);
            }
        }
    }
}
