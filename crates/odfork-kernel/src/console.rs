//! The kernel's console output, and which messages report a fault of the kernel itself.

/// Words that only a kernel in trouble says. Checked on the message, without time and caller.
const SPLATS: [&str; 33] = [
    "BUG:",
    "BUG ",
    "kernel BUG at",
    "WARNING: CPU",
    "WARNING: ",
    "KASAN",
    "KCSAN",
    "UBSAN",
    "Oops:",
    "Kernel panic",
    "unable to handle",
    "INFO: task",
    "INFO: trying to register non-static key",
    "INFO: rcu",
    "rcu: INFO:",
    "detected stall",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "possible circular locking",
    "possible recursive locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "suspicious RCU usage",
    "sleeping function called from invalid",
    "scheduling while atomic",
    "Bad rss-counter",
    "Bad page",
    "Bad swap",
    "bad pmd",
    "refcount_t: ",
    "list_add corruption",
    "list_del corruption",
];

/// More that stands anywhere in a message.
const ANYWHERE: [&str; 6] = [
    "non-zero pgtables_bytes",
    "pagealloc: memory corruption",
    "page_counter underflow",
    "swap_free: ",
    "lock held when returning to user space",
    "double fault",
];

const PANIC: &str = "Kernel panic - not syncing";
/// The panic the host asked for when the time was over.
const ASKED: &str = "Kernel panic - not syncing: NMI";

/// The messages that report a fault, with their times.
pub fn splats(console: &str) -> Vec<String> {
    console
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .filter(|line| is_splat(message(line)))
        .map(str::to_owned)
        .collect()
}

pub fn panicked(console: &str) -> bool {
    console.contains(PANIC)
}

fn is_splat(message: &str) -> bool {
    if message.starts_with(ASKED) {
        return false;
    }
    // A program that crashed, not the kernel: "a.out[12]: segfault at ...", "traps: x[1] general
    // protection fault".
    SPLATS.iter().any(|start| message.starts_with(start) || message.contains(&format!(": {start}")))
        || ANYWHERE.iter().any(|words| message.contains(words))
}

/// Without "[    1.234567] " and "[T12] ".
fn message(line: &str) -> &str {
    let mut rest = line;
    while let Some((head, tail)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let inner = head.trim();
        let is_stamp = inner.chars().all(|c| c.is_ascii_digit() || c == '.')
            || inner
                .strip_prefix(['T', 'C'])
                .is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()));
        if !is_stamp {
            break;
        }
        rest = tail.trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_kernel_are_found() {
        for line in [
            "[    3.123456] BUG: Bad rss-counter state mm:00000000 type:MM_ANONPAGES val:3",
            "[    3.123456][   T12] WARNING: CPU: 0 PID: 12 at mm/memory.c:12 foo+0x12/0x30",
            "[    3.1] BUG: KASAN: slab-use-after-free in foo",
            "[    3.1] WARNING: possible circular locking dependency detected",
            "[    3.1] BUG kmalloc-64 (Not tainted): Poison overwritten",
            "[    3.1] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
            "[    3.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [x:1]",
            "[    3.1] INFO: task x:1 blocked for more than 900 seconds.",
            "[    3.1] mm/pgtable-generic.c:50: bad pmd 00000(1)",
            "[    3.1] Kernel panic - not syncing: Attempted to kill init!",
            "[    3.1] Oops: general protection fault, probably for non-canonical address",
            "[    3.1] swap_free: Unused swap offset entry 00000001",
        ] {
            assert_eq!(splats(line), [line]);
        }
    }

    #[test]
    fn everyday_messages_are_not() {
        for line in [
            "[    3.1] a.out[12]: segfault at 0 ip 0 sp 0 error 4 in a.out",
            "[    3.1] traps: x[1] general protection fault ip:1 sp:2 error:0",
            "[    3.1] Out of memory: Killed process 12 (x) total-vm:1kB",
            "[    3.1] Memory failure: 0x1234: recovery action for dirty page: Recovered",
            "[    0.0] Command line: oops=panic kasan_multi_shot",
            "[    0.0] kasan: KernelAddressSanitizer initialized",
            "[    0.0] rcu: Hierarchical RCU implementation.",
            "[    1.0] x invoked oom-killer: gfp_mask=0xcc0",
            "[    1.0] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
            "[    3.7] Kernel panic - not syncing: NMI: Not continuing",
            "FAULT_INJECTION: forcing a failure.",
            "",
        ] {
            assert_eq!(splats(line), Vec::<String>::new());
        }
    }

    #[test]
    fn a_panic_is_told_from_talk_about_panics() {
        assert!(panicked("[ 1.0] Kernel panic - not syncing: Fatal exception\n"));
        assert!(!panicked("Command line: panic=-1 oops=panic"));
    }
}
