//! What the machine is: the facts a figure is worthless without. Reads /proc and /sys, writes
//! nothing.

use std::fs;

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use odfork_proc::cow_fork::{self, Support};
use odfork_proc::status::{bytes_of, value_of};

/// The machine at the start of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this crate, which is that of `odfork`.
    pub version: &'static str,
    /// Release of the kernel, as `uname -r` has it.
    pub kernel: String,
    /// Name of the processor in `/proc/cpuinfo`.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// `MemTotal`, in bytes.
    pub memory_bytes: u64,
    /// `MemAvailable`, in bytes.
    pub available_bytes: u64,
    /// The chosen word of /sys/kernel/mm/transparent_hugepage/enabled.
    pub thp: String,
    /// The chosen word of `shmem_enabled` beside it.
    pub shmem_thp: String,
    /// Whose forks share page tables: "no", "off", "on request" or "all".
    pub kernel_engine: &'static str,
    /// The hypervisor as far as it shows itself, or "no".
    pub virtualised: String,
    /// Load average of the last minute.
    pub load: f64,
    /// Effective user id.
    pub user_id: u32,
    /// When it was, in seconds since 1970.
    pub unix_seconds: u64,
}

impl Environment {
    /// Looks at this machine now. What cannot be read is empty or 0.
    pub fn observe() -> Self {
        Environment {
            version: env!("CARGO_PKG_VERSION"),
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu: value_of(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown").into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory("MemTotal"),
            available_bytes: memory_available(),
            thp: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            shmem_thp: chosen(&read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
            kernel_engine: match cow_fork::support() {
                Support::Missing => "no",
                Support::Off => "off",
                Support::OnRequest => "on request",
                Support::Everyone => "all",
            },
            virtualised: hypervisor(),
            load: read("/proc/loadavg")
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0.0),
            user_id: rustix::process::geteuid().as_raw(),
            unix_seconds: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
        }
    }

    /// One line for the head of the report.
    pub fn summary(&self) -> String {
        format!(
            "Linux {}, {} x {}, {:.1} GB of memory ({:.1} GB available), THP {}, virtualised: {}, \
             load {:.2}{}",
            self.kernel,
            self.cores,
            self.cpu,
            gigabytes(self.memory_bytes),
            gigabytes(self.available_bytes),
            self.thp,
            self.virtualised,
            self.load,
            if self.user_id == 0 { ", as root" } else { "" },
        )
    }
}

/// Page-table work in a virtual machine costs several times what it costs on bare metal: a report
/// must say which.
fn hypervisor() -> String {
    let flagged = read("/proc/cpuinfo").lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|w| w == "hypervisor")
    });
    if !flagged {
        return "no".into();
    }
    let names = ["/sys/hypervisor/type", "/sys/class/dmi/id/sys_vendor"].map(read);
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| "yes".into())
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// MemAvailable in bytes; 0 when the kernel does not say.
pub fn memory_available() -> u64 {
    memory("MemAvailable")
}

/// A freezing process may move this much between two readings before they no longer fit together.
const TORN: u64 = 2 << 20;

/// Bytes a freezing process holds: its anonymous pages and page tables, and the shared memory of
/// the whole system, for image pages that are not mapped yet are counted nowhere else. Independent
/// of what other programs allocate privately. Pages move from one count to the other meanwhile, so
/// the first is read twice; None when it changed (the reader lost the processor in between), and
/// for a process that is gone.
pub fn memory_held(pid: u32) -> Option<u64> {
    let own = || {
        let status = read(&format!("/proc/{pid}/status"));
        bytes_of(&status, "RssAnon") + bytes_of(&status, "VmPTE")
    };
    let (before, shared, after) = (own(), memory("Shmem"), own());
    (after > 0 && before.abs_diff(after) <= TORN).then_some(after + shared)
}

fn memory(name: &str) -> u64 {
    bytes_of(&read("/proc/meminfo"), name)
}

/// The word in brackets of "always [madvise] never".
fn chosen(choices: &str) -> String {
    choices
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or_else(|| "unknown".into(), |(word, _)| word.to_string())
}

/// The last processor this process may use, when there is more than one to choose from.
pub fn last_cpu() -> Option<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok().filter(|set| set.count() > 1)?;
    (0..CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let meminfo = "MemTotal:       24000000 kB\nMemFree:  5 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(bytes_of(meminfo, "MemAvailable"), 23_000_000 << 10);
        assert_eq!(bytes_of(meminfo, "Mem"), 0);
        let cpu = value_of("model name\t: Some CPU @ 2 GHz\n", "model name");
        assert_eq!((cpu, value_of("", "model name")), (Some("Some CPU @ 2 GHz"), None));
    }

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "unknown");
    }

    #[test]
    fn this_machine_can_be_described() {
        let environment = Environment::observe();
        assert!(environment.memory_bytes > environment.available_bytes);
        assert!(environment.cores > 0);
        assert!(!environment.virtualised.is_empty());
        assert_eq!(memory_held(u32::MAX), None);
        assert!(environment.summary().contains(&environment.kernel));
    }
}
