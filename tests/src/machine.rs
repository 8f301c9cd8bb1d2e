//! What this machine can do, probed by doing, for headers that say `needs=`.
//!
//! Owns: the names of the needs and their probes. Each probe answers None ("yes") or the reason a
//! program that needs it is skipped, with what would change that. Does not skip anything itself.

use std::fs;

/// Why `need` is not met here; None when it is. An unknown name is an error.
pub fn missing(need: &str) -> Result<Option<String>, String> {
    let met = |yes: bool, why: &str| Ok((!yes).then(|| why.to_string()));
    match need {
        "root" => met(is_root(), "needs root: run the tests with sudo"),
        "uffd" => met(
            has_userfaultfd(),
            "needs userfaultfd: run as root or set vm.unprivileged_userfaultfd=1",
        ),
        "thp" => met(
            has_thp(),
            "needs transparent huge pages: write madvise to \
             /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        "hugetlb" => met(
            is_root() && fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok(),
            "needs root and /proc/sys/vm/nr_hugepages",
        ),
        "yama" => met(
            read_number("/proc/sys/kernel/yama/ptrace_scope") == Some(1),
            "needs Yama with kernel.yama.ptrace_scope 1 (make kernels sets it in its guests)",
        ),
        "overcommit" => met(
            read_number("/proc/sys/vm/overcommit_memory") != Some(2),
            "needs vm.overcommit_memory other than 2",
        ),
        "core" => met(
            core_goes_to_a_file(),
            "needs core dumps in a file: write core to /proc/sys/kernel/core_pattern",
        ),
        _ => Err(format!("unknown need '{need}' in an odtest header")),
    }
}

pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// MemAvailable in MB, or none when /proc/meminfo does not say.
pub fn available_mb() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kb: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kb / 1024)
}

fn read_number(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn has_userfaultfd() -> bool {
    // SAFETY: the call takes flags only; a descriptor it returns is closed at once.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        if fd < 0 {
            return false;
        }
        libc::close(fd as i32);
    }
    true
}

fn has_thp() -> bool {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    fs::read_to_string(path).is_ok_and(|t| !t.contains("[never]"))
}

fn core_goes_to_a_file() -> bool {
    let path = "/proc/sys/kernel/core_pattern";
    fs::read_to_string(path).is_ok_and(|t| {
        let plain = !t.starts_with('|') && !t.starts_with('@') && !t.contains('/');
        plain && !t.trim().is_empty()
    })
}
