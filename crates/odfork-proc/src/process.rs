//! Who a process is: its threads, program, command line, and numbers of `/proc/PID/stat`.
//!
//! What it holds in memory is in [`status`](crate::status) and [`maps`](crate::maps).

use std::fmt::Display;
use std::fs;

/// Number of a process or a task.
pub type Pid = i32;

/// Numbers of all processes in `/proc`.
pub fn all() -> Vec<Pid> {
    numbers_in("/proc")
}

/// Task numbers of all threads; none when the process is gone.
pub fn threads(pid: Pid) -> Vec<Pid> {
    numbers_in(&format!("/proc/{pid}/task"))
}

/// A process and all that come from it.
pub fn family(pid: Pid) -> Vec<Pid> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        for thread in threads(pid) {
            let path = format!("/proc/{pid}/task/{thread}/children");
            let text = fs::read_to_string(path).unwrap_or_default();
            all.extend(text.split_whitespace().filter_map(|word| word.parse::<Pid>().ok()));
        }
        next += 1;
    }
    all
}

fn numbers_in(folder: &str) -> Vec<Pid> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The program a process runs; a file that was replaced is named as it was.
pub fn program(pid: Pid) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// Name of the program, at most 15 characters, which anybody may read.
pub fn short_name(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// The words of the command line; `None` for a process without one.
pub fn command_line(pid: Pid) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| printable(&String::from_utf8_lossy(word)))
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Control characters could rewrite the reader's terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Fields of `/proc/PID/stat`, counted from 1 as in proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Page faults that needed no disk.
    MinorFaults = 10,
    /// Processor time in the program, in clock ticks.
    UserTicks = 14,
    /// Processor time in the kernel, in clock ticks.
    SystemTicks = 15,
    /// Of children that were waited for.
    ReapedUserTicks = 16,
    /// The same in the kernel.
    ReapedSystemTicks = 17,
    /// Where the heap begins (`start_brk`); 0 for whom the kernel does not tell.
    StartOfHeap = 47,
}

/// One number of a process (or `self`); `None` when it is gone.
pub fn stat(pid: impl Display, field: Stat) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    stat_of(&String::from_utf8_lossy(&text), field)
}

/// The name, field 2, may hold blanks and brackets; what follows its last bracket is plain.
pub fn stat_of(text: &str, field: Stat) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(field as usize - 3)?.parse().ok()
}

/// The kernel's rule who may trace whom (`kernel.yama.ptrace_scope`); `None` when it adds none.
pub fn ptrace_scope() -> Option<String> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    (!matches!(scope, "" | "0")).then(|| scope.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        let own = std::process::id() as Pid;
        assert!(threads(own).contains(&own) && all().contains(&own));
        assert!(stat(own, Stat::MinorFaults).unwrap() > 0);
        assert!(program(own).is_some() && command_line(own).is_some());
        assert!(!short_name(own).is_empty());
    }

    #[test]
    fn a_process_that_is_gone_has_nothing() {
        assert_eq!(stat(Pid::MAX, Stat::MinorFaults), None);
        assert_eq!((threads(Pid::MAX), program(Pid::MAX)), (vec![], None));
    }

    #[test]
    fn a_name_with_brackets_shifts_no_field() {
        let text = "7 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15";
        assert_eq!(stat_of(text, Stat::MinorFaults), Some(10));
        assert_eq!(stat_of(text, Stat::SystemTicks), Some(15));
        assert_eq!(stat_of("7 (a", Stat::UserTicks), None);
    }

    #[test]
    fn control_characters_are_not_shown() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a?[2Jb");
    }
}
