//! Processor time of other processes, thread by thread, as the kernel's scheduler counts it.

use std::fs;
use std::path::Path;

/// Nanoseconds of processor time of all threads of `pid`, but not of its first thread where `but_first`.
pub fn cpu_ns(pid: u32, but_first: bool) -> u64 {
    let folder = format!("/proc/{pid}/task");
    let Ok(threads) = fs::read_dir(&folder) else { return 0 };
    let first = pid.to_string();
    threads
        .flatten()
        .filter(|thread| !(but_first && thread.file_name() == first.as_str()))
        .map(|thread| thread_ns(&thread.path()))
        .sum()
}

fn thread_ns(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
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
