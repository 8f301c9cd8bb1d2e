//! The switch of the kernel engine: whether the running kernel shares page tables at fork, how a
//! process asks for it, and what the kernel counted.
//!
//! The interface is that of the patches in kernel/: prctl, /proc/self/use_odf for where a filter
//! refuses prctl numbers it does not know, vm.cow_fork, and the `cowpt_` lines of /proc/vmstat.
//! Used by the laboratory and by `odfork run`; nothing here allocates between fork and exec.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use odfork_sys::abi::cow_fork::{PR_GET_COW_FORK, PR_SET_COW_FORK};

const SWITCH: &str = "/proc/self/use_odf";
const SYSCTL: &str = "/proc/sys/vm/cow_fork";
const COUNTERS: &str = "/proc/vmstat";
const COUNTER_PREFIX: &str = "cowpt_";

/// What a process asks for itself and the children it forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Fork copies page tables.
    Off = 0,
    /// Until exec.
    On = 1,
    /// Over exec too: what a launcher asks for.
    OverExec = 2,
}

/// What the running kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has no CONFIG_COW_PTE_TABLES.
    Missing,
    /// vm.cow_fork is 0: nobody's forks share.
    Off,
    /// vm.cow_fork is 1: whoever asks.
    OnRequest,
    /// vm.cow_fork is 2: everybody's forks share, asked or not.
    Everyone,
}

/// Asks the kernel: its prctl answers, or the sysctl is there.
pub fn support() -> Support {
    judge(mode().is_some(), fs::read_to_string(SYSCTL).ok().as_deref())
}

fn judge(answers: bool, sysctl: Option<&str>) -> Support {
    match (answers, sysctl.map(str::trim)) {
        (_, Some("0")) => Support::Off,
        (_, Some("2")) => Support::Everyone,
        (_, Some(_)) | (true, None) => Support::OnRequest,
        (false, None) => Support::Missing,
    }
}

impl Support {
    /// Whether a process that asks gets shared tables.
    pub fn usable(self) -> bool {
        matches!(self, Support::OnRequest | Support::Everyone)
    }

    /// What is the matter and what is needed; None when it can be used.
    pub fn obstacle(self) -> Option<&'static str> {
        match self {
            Support::Missing => Some(
                "this kernel does not share page tables at fork (needed: one built with \
                 CONFIG_COW_PTE_TABLES; 'odfork kernel deb' makes the package, 'odfork kernel \
                 build' and 'boot' a guest)",
            ),
            Support::Off => Some(
                "sharing of page tables is switched off for all processes (vm.cow_fork is 0; \
                 needed: sysctl vm.cow_fork=1)",
            ),
            Support::OnRequest | Support::Everyone => None,
        }
    }
}

/// The mode of this process; None where the kernel, or a filter, knows no such call.
fn mode() -> Option<i32> {
    let zero: libc::c_ulong = 0;
    // SAFETY: reads one word of the process; a kernel without the option answers EINVAL.
    let mode = unsafe { libc::prctl(PR_GET_COW_FORK, zero, zero, zero, zero) };
    (mode >= 0).then_some(mode)
}

/// Switches this process; by the file where the call is refused.
pub fn set(mode: Mode) -> io::Result<()> {
    let (value, zero) = (mode as libc::c_ulong, 0 as libc::c_ulong);
    // SAFETY: sets one word of the process, which only fork and exec look at.
    if unsafe { libc::prctl(PR_SET_COW_FORK, value, zero, zero, zero) } == 0 {
        return Ok(());
    }
    let refused = io::Error::last_os_error();
    if !Path::new(SWITCH).exists() {
        return Err(refused);
    }
    fs::write(SWITCH, (mode as u8).to_string())
}

/// What the kernel counted since boot, for the whole system, without the prefix: share, copy, reuse
/// ...
pub type Counters = BTreeMap<String, u64>;

/// The counters now; none where the kernel has no such engine.
pub fn counters() -> Counters {
    parse(&fs::read_to_string(COUNTERS).unwrap_or_default())
}

/// The counters in the text of /proc/vmstat; other lines are none.
pub fn parse(vmstat: &str) -> Counters {
    let line = |line: &str| {
        let (name, count) = line.strip_prefix(COUNTER_PREFIX)?.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    vmstat.lines().filter_map(line).collect()
}

/// What was counted between two looks.
pub fn counted(before: &Counters, after: &Counters) -> Counters {
    let since = |name: &String, count: &u64| {
        count.saturating_sub(before.get(name).copied().unwrap_or_default())
    };
    after.iter().map(|(name, count)| (name.clone(), since(name, count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sysctl_decides_and_a_kernel_with_neither_has_no_support() {
        assert_eq!(judge(false, None), Support::Missing);
        assert_eq!(judge(true, None), Support::OnRequest);
        assert_eq!(judge(true, Some("0\n")), Support::Off);
        assert_eq!(judge(true, Some("1\n")), Support::OnRequest);
        // A filter that refuses unknown prctl numbers: the file is still there.
        assert_eq!(judge(false, Some("1\n")), Support::OnRequest);
        assert_eq!(judge(false, Some("2\n")), Support::Everyone);
    }

    #[test]
    fn what_cannot_be_used_says_what_is_needed() {
        for support in [Support::Missing, Support::Off, Support::OnRequest, Support::Everyone] {
            assert_eq!(support.usable(), support.obstacle().is_none());
        }
        assert!(Support::Missing.obstacle().is_some_and(|line| line.contains("odfork kernel deb")));
        assert!(Support::Off.obstacle().is_some_and(|line| line.contains("sysctl vm.cow_fork=1")));
    }

    #[test]
    fn only_its_counters_are_read_and_differences_never_fall_below_zero() {
        let before = parse("pgfault 9\ncowpt_share 10\ncowpt_copy 7\ncowpt_odd x\n");
        assert_eq!(before.len(), 2);
        let after = parse("cowpt_share 15\ncowpt_copy 3\ncowpt_drop 2\n");
        let since = counted(&before, &after);
        assert_eq!((since["share"], since["copy"], since["drop"]), (5, 0, 2));
    }

    #[test]
    fn a_mode_is_set_and_read_where_the_kernel_has_it() {
        if support() == Support::Missing {
            eprintln!(
                "SKIPPED a_mode_is_set_and_read_where_the_kernel_has_it: no \
                 CONFIG_COW_PTE_TABLES here"
            );
            assert!(set(Mode::On).is_err());
            return;
        }
        for mode in [Mode::On, Mode::OverExec, Mode::Off] {
            set(mode).unwrap();
            assert_eq!(super::mode(), Some(mode as i32));
        }
    }
}
