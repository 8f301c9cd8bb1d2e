//! Which thread may be interrupted without a trace: what the threads of a process wait in.
//!
//! A call that is interrupted and has no handler of a signal to run is made again by the kernel,
//! with the time that is left. A few are not: they answer EINTR. Those that wait without a limit
//! can be made again. Those with one would wait for all of it anew, so they are interrupted only
//! when they have just begun. Calls that may have done part of their work are waited for.

use std::collections::HashMap;
use std::fs;

use odfork_proc::process;
use odfork_proc::ptrace::Pid;
use odfork_proc::status::value_of;

/// Made again by the kernel.
const RESTARTED: [libc::c_long; 27] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_futex,
    libc::SYS_rt_sigsuspend,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_restart_syscall,
    libc::SYS_futex_waitv,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigprocmask,
];

/// Answer EINTR, and which of their arguments is the limit of their time.
const BROKEN_OFF: [(libc::c_long, usize); 7] = [
    (libc::SYS_epoll_wait, 3),
    (libc::SYS_epoll_pwait, 3),
    (libc::SYS_epoll_pwait2, 3),
    (libc::SYS_rt_sigtimedwait, 2),
    (libc::SYS_semtimedop, 3),
    (libc::SYS_io_getevents, 4),
    (libc::SYS_semop, NEVER),
];
const NEVER: usize = usize::MAX;
/// Its flags may ask for all bytes: then an interruption ends it with a part.
const RECEIVE_FLAGS: usize = 3;

/// Calls of the second kind, and those with a limit of time that belongs to a socket.
pub fn is_repeatable(number: i64) -> bool {
    const OF_SOCKETS: [libc::c_long; 6] = [
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_recvmsg,
        libc::SYS_recvfrom,
        libc::SYS_read,
        libc::SYS_readv,
    ];
    BROKEN_OFF.iter().any(|(call, _)| *call == number) || OF_SOCKETS.contains(&number)
}

/// How often each thread had gone to sleep by the last look.
pub type Sleeps = HashMap<Pid, u64>;

#[derive(Debug, PartialEq)]
enum Obstacle {
    None,
    /// It would wait anew, for as long again.
    Limit(i64),
    Part(i64),
}

/// The first thread that may be interrupted now; else what one of them waits in. To be asked again
/// and again.
pub fn choose(pid: Pid, sleeps: &mut Sleeps) -> (Option<Pid>, String) {
    let mut threads = process::threads(pid);
    threads.sort_by_key(|&tid| (tid != pid, tid));
    let mut why = "it has no thread that runs".to_owned();
    for tid in threads {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
        let state = read("stat").unwrap_or_default();
        let state = state.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('R' | 'S')) {
            continue;
        }
        match obstacle(&read("syscall").unwrap_or_default()) {
            Obstacle::None => return (Some(tid), why),
            Obstacle::Part(call) => why = format!("thread {tid} waits in call {call}"),
            Obstacle::Limit(call) => {
                let count = slept(&read("status").unwrap_or_default());
                if sleeps.insert(tid, count).is_some_and(|before| before != count) {
                    return (Some(tid), why);
                }
                why = format!("thread {tid} waits in call {call}, with a limit of time");
            }
        }
    }
    (None, why)
}

fn slept(status: &str) -> u64 {
    value_of(status, "voluntary_ctxt_switches").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Why a thread is not to be interrupted, by `/proc/PID/task/TID/syscall`: a number, six arguments
/// and two addresses, or the word "running".
fn obstacle(text: &str) -> Obstacle {
    let mut words = text.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return Obstacle::None;
    };
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    let arguments: Vec<u64> = words.map(hex).collect();
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    if number < 0 || RESTARTED.contains(&number) {
        return Obstacle::None;
    }
    if number == libc::SYS_recvfrom && argument(RECEIVE_FLAGS) & libc::MSG_WAITALL as u64 == 0 {
        return Obstacle::None;
    }
    let Some((_, at)) = BROKEN_OFF.iter().find(|(call, _)| *call == number) else {
        return Obstacle::Part(number);
    };
    // A number of milliseconds, -1 is no limit; else the address of a time, 0 is none.
    let is_endless = match number {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (argument(*at) as i32) < 0,
        _ => *at == NEVER || argument(*at) == 0,
    };
    match is_endless {
        true => Obstacle::None,
        false => Obstacle::Limit(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_apart() {
        let is_free = |text: &str| obstacle(text) == Obstacle::None;
        assert!(is_free("running\n") && is_free("-1 0x7ffd0 0x55d0\n") && is_free(""));
        assert!(is_free("230 0x0 0x0 0x7f 0x7f 0x0 0x0 0x7ffd0 0x7f00\n"), "clock_nanosleep");
        assert!(is_free("232 0x4 0x7f 0x10 0xffffffff 0x0 0x0 0x7ffd0 0x7f00\n"), "no limit");
        assert!(!is_free("232 0x4 0x7f 0x10 0x3e8 0x0 0x0 0x7ffd0 0x7f00\n"), "a second");
        assert!(is_free("45 0x4 0x7f 0x10 0x0 0x0 0x0 0x7ffd0 0x7f00\n"), "recv");
        assert!(!is_free("45 0x4 0x7f 0x10 0x100 0x0 0x0 0x7ffd0 0x7f00\n"), "all of it");
        let begun = slept("State:\tS\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9");
        assert_eq!(begun, 7);
        assert!(!is_free("1 0x4 0x7f 0x10 0x0 0x0 0x0 0x7ffd0 0x7f00\n"), "write");
        assert!(is_repeatable(libc::SYS_epoll_wait) && !is_repeatable(libc::SYS_close));
        assert!(!is_repeatable(-1));
    }
}
