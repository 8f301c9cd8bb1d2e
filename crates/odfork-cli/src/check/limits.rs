//! Probes that read settings, limits and the state of this process.
//!
//! What has no effect to try out is read from where the kernel tells it. Parsing is kept apart from
//! reading, so that settings this machine does not have are tested too.

use std::fs;

use rustix::process::{getrlimit, Resource};

use odfork_proc::cow_fork::{self, Support};

use super::group::{self, Left};
use super::Seen;

const MIB: u64 = 1 << 20;
/// Linux's own default; glibc programs stay far below it.
const USUAL_MAP_COUNT: u64 = 65_530;
/// The extra memory a freeze is allowed to take.
const FREEZE_HEADROOM: u64 = 64 * MIB;

fn setting(path: &str) -> Result<String, Seen> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|error| Seen::no(format!("{path}: {error}")))
}

pub fn proc() -> Seen {
    match fs::read_to_string("/proc/self/maps") {
        Ok(maps) if maps.lines().count() > 3 => match fs::metadata("/proc/self/pagemap") {
            Ok(_) => Seen::yes(format!("{} mappings read", maps.lines().count())),
            Err(error) => Seen::partly(format!("maps can be read, pagemap cannot: {error}")),
        },
        Ok(_) => Seen::no("/proc/self/maps is empty"),
        Err(error) => Seen::no(format!("/proc/self/maps: {error}")),
    }
}

pub fn kernel_engine() -> Seen {
    match cow_fork::support() {
        Support::Missing => Seen::no("this kernel copies page tables at fork"),
        Support::Off => Seen::no("vm.cow_fork = 0"),
        Support::OnRequest => Seen::yes("vm.cow_fork = 1: for processes that ask"),
        Support::Everyone => Seen::yes("vm.cow_fork = 2: for all processes"),
    }
}

pub fn overcommit() -> Seen {
    setting("/proc/sys/vm/overcommit_memory")
        .map_or_else(|seen| seen, |mode| judge_overcommit(&mode))
}

fn judge_overcommit(mode: &str) -> Seen {
    let found = format!("vm.overcommit_memory = {mode}");
    match mode {
        "0" | "1" => Seen::yes(found),
        _ => Seen::no(found),
    }
}

pub fn max_map_count() -> Seen {
    setting("/proc/sys/vm/max_map_count").map_or_else(|seen| seen, |count| judge_map_count(&count))
}

fn judge_map_count(text: &str) -> Seen {
    let found = format!("vm.max_map_count = {text}");
    match text.parse::<u64>() {
        Ok(count) if count >= USUAL_MAP_COUNT => Seen::yes(found),
        _ => Seen::no(found),
    }
}

pub fn file_size() -> Seen {
    match getrlimit(Resource::Fsize).current {
        None => Seen::yes("no limit (RLIMIT_FSIZE)"),
        Some(bytes) => Seen::no(format!("RLIMIT_FSIZE is {}", amount(bytes))),
    }
}

pub fn seccomp() -> Seen {
    match status_field("Seccomp") {
        Some(mode) => judge_seccomp(&mode),
        // Without /proc: a process in strict mode would have died of the question.
        // SAFETY: asks for a number, changes nothing.
        None => {
            judge_seccomp(&unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }.to_string())
        }
    }
}

fn judge_seccomp(mode: &str) -> Seen {
    match mode {
        "0" => Seen::yes("mode 0, no filter"),
        "1" => Seen::no("mode 1, strict"),
        "2" => Seen::partly("mode 2, a filter is in place"),
        other => Seen::partly(format!("mode {other}")),
    }
}

pub fn tracer() -> Seen {
    match status_field("TracerPid").as_deref() {
        Some("0") => Seen::yes("no tracer"),
        Some(pid) => Seen::no(format!("traced by process {pid}")),
        None => Seen::partly("unknown without /proc"),
    }
}

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

pub fn huge_pages() -> Seen {
    const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
    let read = |name: &str| setting(&format!("{FOLDER}/{name}"));
    let (anonymous, shared) = match (read("enabled"), read("shmem_enabled")) {
        (Ok(anonymous), Ok(shared)) => (anonymous, shared),
        (Err(seen), _) | (_, Err(seen)) => return seen,
    };
    // SAFETY: asks for a number, changes nothing.
    let disabled = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) } > 0;
    judge_huge_pages(&anonymous, &shared, disabled)
}

/// Both settings read like `always [madvise] never`. For a mount with huge=always only shmem's
/// "deny" matters.
fn judge_huge_pages(anonymous: &str, shared: &str, disabled: bool) -> Seen {
    let chosen = |list: &str| list.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let found = format!("enabled {}, shmem_enabled {}", chosen(anonymous), chosen(shared));
    if disabled {
        Seen::no(format!("{found}, but switched off for this process"))
    } else if chosen(shared) == "deny" {
        Seen::no(found)
    } else {
        Seen::yes(found)
    }
}

pub fn memory() -> Seen {
    // Where it is unknown how much is free, nothing is frozen.
    let Some(available) = setting("/proc/meminfo").ok().and_then(|text| available_of(&text)) else {
        return Seen::no("unknown: /proc/meminfo cannot be read");
    };
    let (left, limit) = match group::left() {
        Left::Bytes(left) => (left, format!("{} left in the cgroup", amount(left))),
        Left::Unlimited => (u64::MAX, "no cgroup limit".to_owned()),
        Left::Unknown => (0, "the cgroup's limits cannot be read".to_owned()),
    };
    let found = format!("{}, {limit}", amount(available));
    if available.min(left) > FREEZE_HEADROOM {
        Seen::yes(found)
    } else {
        Seen::no(found)
    }
}

fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes in the unit a person would choose.
fn amount(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KB", bytes / 1024),
        0x10_0000..0x4000_0000 => format!("{} MB", bytes / MIB),
        _ => format!("{:.1} GB", bytes as f64 / (1024 * MIB) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Mark;

    #[test]
    fn settings_of_other_machines() {
        assert_eq!(judge_overcommit("2").mark, Mark::No);
        assert_eq!(judge_overcommit("0").mark, Mark::Yes);
        assert_eq!(judge_map_count("65530").mark, Mark::Yes);
        assert_eq!(judge_map_count("1000").mark, Mark::No);
        assert_eq!(judge_seccomp("2").mark, Mark::Partly);
        assert_eq!(judge_seccomp("0").mark, Mark::Yes);
    }

    #[test]
    fn huge_pages_are_denied_by_shmem_or_the_process() {
        let list = "always inherit within_size advise [never] deny force";
        assert_eq!(judge_huge_pages("always [madvise] never", list, false).mark, Mark::Yes);
        assert_eq!(judge_huge_pages("always [madvise] never", list, true).mark, Mark::No);
        let denied = judge_huge_pages("[always] madvise never", "always never [deny] force", false);
        assert_eq!(
            (denied.mark, denied.found.as_str()),
            (Mark::No, "enabled always, shmem_enabled deny")
        );
    }

    #[test]
    fn amounts() {
        assert_eq!(available_of("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 * MIB));
        assert_eq!(amount(512), "512 bytes");
        assert_eq!(amount(2 * MIB), "2 MB");
        assert_eq!(amount(3 << 29), "1.5 GB");
    }
}
