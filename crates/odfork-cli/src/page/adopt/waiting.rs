//! Which thread may be interrupted without a trace: what the threads of a process wait in.
//!
//! A call that is interrupted and has no handler of a signal to run is made again by the kernel,
//! with the time that is left. A few are not: they answer EINTR. Those that wait without a limit
//! can be made again; those with one would wait for all of it anew, so their end is waited for.
//! Calls that may have done part of their work are waited for as well.

use std::fs;

use odfork_proc::process;
use odfork_proc::ptrace::Pid;

/// Made again by the kernel.
const RESTARTED: [libc::c_long; 28] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
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

/// The first thread that may be interrupted now; else what one of them waits in.
pub fn choose(pid: Pid) -> (Option<Pid>, String) {
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
            None => return (Some(tid), why),
            Some(found) => why = format!("thread {tid} waits in {found}"),
        }
    }
    (None, why)
}

/// Why a thread is not to be interrupted, by `/proc/PID/task/TID/syscall`: a number, six arguments
/// and two addresses, or the word "running".
fn obstacle(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse::<i64>().ok()?;
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    let arguments: Vec<u64> = words.map(hex).collect();
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    if number < 0 || RESTARTED.contains(&number) {
        return None;
    }
    if number == libc::SYS_recvfrom && argument(RECEIVE_FLAGS) & libc::MSG_WAITALL as u64 == 0 {
        return None;
    }
    match BROKEN_OFF.iter().find(|(call, _)| *call == number) {
        Some((_, NEVER)) => None,
        // A number of milliseconds: -1 is no limit; else the address of a time: 0 is none.
        Some((libc::SYS_epoll_wait | libc::SYS_epoll_pwait, at)) => match argument(*at) as i32 {
            ..0 => None,
            _ => Some(format!("call {number}, with a limit of time")),
        },
        Some((_, at)) if argument(*at) == 0 => None,
        Some(_) => Some(format!("call {number}, with a limit of time")),
        None => Some(format!("call {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_apart() {
        let is_free = |text: &str| obstacle(text).is_none();
        assert!(is_free("running\n") && is_free("-1 0x7ffd0 0x55d0\n") && is_free(""));
        assert!(is_free("230 0x0 0x0 0x7f 0x7f 0x0 0x0 0x7ffd0 0x7f00\n"), "clock_nanosleep");
        assert!(is_free("232 0x4 0x7f 0x10 0xffffffff 0x0 0x0 0x7ffd0 0x7f00\n"), "no limit");
        assert!(!is_free("232 0x4 0x7f 0x10 0x3e8 0x0 0x0 0x7ffd0 0x7f00\n"), "a second");
        assert!(is_free("45 0x4 0x7f 0x10 0x0 0x0 0x0 0x7ffd0 0x7f00\n"), "recv");
        assert!(!is_free("45 0x4 0x7f 0x10 0x100 0x0 0x0 0x7ffd0 0x7f00\n"), "all of it");
        assert!(!is_free("1 0x4 0x7f 0x10 0x0 0x0 0x0 0x7ffd0 0x7f00\n"), "write");
        assert!(is_repeatable(libc::SYS_epoll_wait) && !is_repeatable(libc::SYS_close));
        assert!(!is_repeatable(-1));
    }
}
