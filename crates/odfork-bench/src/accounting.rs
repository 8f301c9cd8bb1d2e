//! What the kernel has counted of a process: page faults, and processor time thread by thread.

use std::fs;
use std::path::Path;

/// Of processes since they began. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub major: u64,
    pub minor: u64,
    pub user_ns: u64,
    pub system_ns: u64,
}

impl Usage {
    /// Of this process.
    pub fn now() -> Usage {
        Usage::of(libc::RUSAGE_SELF)
    }

    /// And of its children that were reaped.
    pub fn with_children() -> Usage {
        let (own, children) = (Usage::now(), Usage::of(libc::RUSAGE_CHILDREN));
        own.combined(children, |own, more| own + more)
    }

    pub fn since(self, earlier: Usage) -> Usage {
        self.combined(earlier, |now, then| now - then)
    }

    fn combined(self, other: Usage, by: fn(u64, u64) -> u64) -> Usage {
        Usage {
            major: by(self.major, other.major),
            minor: by(self.minor, other.minor),
            user_ns: by(self.user_ns, other.user_ns),
            system_ns: by(self.system_ns, other.system_ns),
        }
    }

    fn of(who: libc::c_int) -> Usage {
        // SAFETY: zeroed is a valid value, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Usage {
            major: usage.ru_majflt as u64,
            minor: usage.ru_minflt as u64,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
        }
    }
}

/// Nanoseconds a thread ran, and waited for a processor (`/proc/PID/schedstat`).
pub fn scheduled(folder: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// Processor time of all threads of `pid`, but not of its first thread where `but_first`.
pub fn cpu_ns(pid: u32, but_first: bool) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let first = pid.to_string();
    let counted =
        threads.flatten().filter(|thread| !(but_first && thread.file_name() == first.as_str()));
    counted.filter_map(|thread| Some(scheduled(&thread.path())?.0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_the_first_thread_can_be_left_out() {
        let own = std::process::id();
        let begin = std::time::Instant::now();
        let mut sum = 0u64;
        while begin.elapsed().as_millis() < 20 {
            sum = sum.wrapping_add(1);
        }
        if cpu_ns(own, false) == 0 {
            println!("SKIPPED: this kernel has no schedstat");
            return;
        }
        assert!(sum > 0 && cpu_ns(own, true) <= cpu_ns(own, false));
        assert_eq!(cpu_ns(u32::MAX, false), 0);
    }
}
