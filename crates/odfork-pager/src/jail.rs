//! The daemon's seccomp jail: the system calls it may make once it serves.
//!
//! It holds the memory of all programs and parses what they write, so a bug in it must not become
//! more than that. It opens no file, creates no process, no socket, no executable memory. Any call
//! that is not listed fails with EPERM. It does not kill, because a future C library may make a
//! call of its own that can fail as well. Left out on purpose: open, socket, connect, clone, exec,
//! ptrace, process_vm_*, and every ioctl that is not a userfaultfd's.

use std::collections::BTreeMap;
use std::io::{Error, Result};

use odfork_sys::abi::{calls as old, userfaultfd};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Allowed with any arguments.
const FREE: [i64; 47] = [
    // pages and messages
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv2,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_lseek,
    libc::SYS_fallocate,
    libc::SYS_close,
    old::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    old::SYS_poll,
    libc::SYS_fstat,
    // memory of its own
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    // time and threads
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // signals and the end
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getppid,
];

/// Allowed when the argument at this place is one of these.
fn chosen(own: u64) -> [(i64, u8, Vec<u64>); 5] {
    let faults = [
        userfaultfd::COPY,
        userfaultfd::ZEROPAGE,
        userfaultfd::CONTINUE,
        userfaultfd::POISON,
        userfaultfd::WAKE,
    ];
    let files = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GETFL, libc::F_SETFL];
    const NAME_OF_MEMORY: u64 = 0x5356_4d41;
    [
        (libc::SYS_ioctl, 1, faults.to_vec()),
        (libc::SYS_fcntl, 1, files.map(|what| what as u64).to_vec()),
        (libc::SYS_prctl, 0, vec![libc::PR_SET_NAME as u64, NAME_OF_MEMORY]),
        (libc::SYS_kill, 0, vec![own]),
        (libc::SYS_tgkill, 0, vec![own]),
    ]
}

fn rules() -> std::result::Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let one = |at: u8, test: SeccompCmpOp, value: u64| {
        SeccompRule::new(vec![SeccompCondition::new(at, Dword, test, value)?])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FREE.iter().map(|&number| (number, Vec::new())).collect();
    for (number, at, values) in chosen(u64::from(std::process::id())) {
        let list: std::result::Result<_, _> =
            values.into_iter().map(|value| one(at, SeccompCmpOp::Eq, value)).collect();
        rules.insert(number, list?);
    }
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        let plain = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        rules.insert(number, vec![one(2, plain, 0)?]);
    }
    Ok(rules)
}

/// From now on, for all threads of this process.
///
/// # Errors
/// The kernel has no seccomp, or this is another machine than the list was made for.
pub fn enter() -> Result<()> {
    let arch = std::env::consts::ARCH.try_into().map_err(Error::other)?;
    let (refuse, allow) = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
    let filter = rules().and_then(|rules| SeccompFilter::new(rules, refuse, allow, arch));
    let program: BpfProgram = filter.and_then(SeccompFilter::try_into).map_err(Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// In a child, for there is no way out: the answers as bits of its exit status.
    fn attempts() -> i32 {
        let refused = |answer: i64| {
            answer == -1 && Error::last_os_error().raw_os_error() == Some(libc::EPERM)
        };
        let file = crate::sys::memory_file(c"test", 4096).expect("a file");
        if enter().is_err() {
            return 127;
        }
        let fd = file.as_raw_fd();
        // SAFETY: plain calls, most of which must fail; nothing they could make is used.
        let tried = unsafe {
            [
                refused(i64::from(libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY))),
                refused(i64::from(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0))),
                refused(libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0)),
                refused(i64::from(libc::ioctl(fd, libc::TIOCSTI, c"x".as_ptr()))),
                refused(libc::mmap(std::ptr::null_mut(), 4096, 5, 0x22, -1, 0) as i64),
                refused(i64::from(libc::kill(libc::getppid(), 0))),
                libc::mmap(std::ptr::null_mut(), 4096, 3, 0x22, -1, 0) != libc::MAP_FAILED,
            ]
        };
        tried.iter().enumerate().filter(|(_, done)| !**done).map(|(at, _)| 1 << at).sum()
    }

    #[test]
    fn what_a_daemon_does_not_need_is_refused() {
        // SAFETY: the child makes system calls, allocates (glibc's fork allows that), and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(attempts());
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 0, "bits of what was not as it should be");
    }
}
