//! What may be done to a thread in a system call: which may be interrupted, and what mends them.
//!
//! Owns the tables; pure. The kernel begins most interrupted calls again by itself, or goes on with
//! what is left of their time. Those that answer EINTR instead are begun again by `mend`. Those
//! that come back with less than they would have are gone on with. What is not named here is left
//! alone: then threads are not held now. signal(7) lists the calls that are never begun again.
//!
//! A look at a thread that runs, or has just woken up, does not tell what it will be in when it
//! stops. So what cannot be mended says so itself, from before it begins (`engine::unmended`).

use crate::sys::abi::calls as old;
use crate::task::Blocked;

/// What is known about a call that a thread sleeps in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Care {
    /// It may be interrupted.
    None,
    /// It may be, if it is known since when its time passes.
    Timed,
    /// It may be, if this descriptor has no limits of time and is no terminal or file.
    Descriptor(i32),
    /// It may be where it sleeps so that signals do not wake it.
    Deaf,
    /// It must not be.
    Leave,
}

/// Where a call keeps its limit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Milliseconds, as an `i32`; negative: none.
    Milliseconds(usize),
    /// The address of a `timespec`, or 0: none.
    Timespec(usize),
    /// The address of a `timeval`, or 0: none.
    Timeval(usize),
}

/// So far above its stack pointer a function's own variables are taken for granted.
const OWN: u64 = 1024;

const FUTEX_WAITV: i64 = 449;
const FUTEX_WAIT: i64 = 455;

/// The care that a call needs.
pub fn care(blocked: &Blocked) -> Care {
    let Some(call) = blocked.call else { return Care::None };
    match call as i64 {
        // No thread that ends is stopped.
        libc::SYS_exit | libc::SYS_exit_group => Care::Leave,
        old::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_semtimedop => match limit_of(call as i64) {
            Some(limit) if has_limit(limit, &blocked.arguments) => Care::Timed,
            _ => Care::None,
        },
        libc::SYS_ppoll | libc::SYS_pselect6 | old::SYS_select => match limit_of(call as i64) {
            Some(limit) if !is_kept_up(limit, blocked) => Care::Timed,
            _ => Care::None,
        },
        // What is received whole or not at all would come back in part.
        libc::SYS_recvfrom if is_whole(blocked.arguments[3]) => Care::Leave,
        libc::SYS_recvmsg if is_whole(blocked.arguments[2]) => Care::Leave,
        // Of some families a second one would be another answer.
        libc::SYS_connect => Care::Leave,
        call if waits_for_descriptor(call) => Care::Descriptor(blocked.arguments[0] as i32),
        call if is_begun_again(call) => Care::None,
        call if is_deaf(call) => Care::Deaf,
        _ => Care::Leave,
    }
}

/// Calls that wait for the other end of the descriptor in their first argument.
fn waits_for_descriptor(call: i64) -> bool {
    matches!(
        call,
        libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_pread64
            | libc::SYS_preadv
            | libc::SYS_preadv2
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendfile
            | libc::SYS_accept
            | libc::SYS_accept4
    )
}

/// Of these, calls that send. On a stream the rest would be sent by another call, which takes up
/// the error of a connection that is reset meanwhile: the program would miss it.
pub fn sends(blocked: &Blocked) -> bool {
    let call = blocked.call.unwrap_or_default() as i64;
    matches!(
        call,
        libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendfile
    )
}

/// The kernel writes there what is left, and goes on with that: a variable of the C library's. In
/// memory that cannot be written it does neither, and answers EINTR.
fn is_kept_up(limit: Limit, blocked: &Blocked) -> bool {
    let (Limit::Milliseconds(at) | Limit::Timespec(at) | Limit::Timeval(at)) = limit;
    let place = blocked.arguments[at];
    place == 0 || place.wrapping_sub(blocked.stack as u64) < OWN
}

fn is_whole(flags: u64) -> bool {
    flags as i32 & libc::MSG_WAITALL != 0
}

/// And it is not there a second time.
fn is_taken_whole(flags: u64) -> bool {
    is_whole(flags) && flags as i32 & libc::MSG_PEEK == 0
}

/// Calls that the kernel begins again, or goes on with, when no handler was called.
fn is_begun_again(call: i64) -> bool {
    matches!(
        call,
        libc::SYS_futex
            | FUTEX_WAITV
            | FUTEX_WAIT
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | old::SYS_poll
            | old::SYS_pause
            | libc::SYS_rt_sigsuspend
            | libc::SYS_restart_syscall
            | libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_msgsnd
            | libc::SYS_msgrcv
            | libc::SYS_semop
            | libc::SYS_mq_timedsend
            | libc::SYS_mq_timedreceive
            | libc::SYS_flock
            | libc::SYS_fcntl
            | libc::SYS_sched_yield
    )
}

/// Interrupted in this call, somebody else may be told that its thread does not wait: it must not
/// stand there. `answer`: that of the interrupted call.
pub fn must_go_on(call: i64, answer: i64) -> bool {
    /// `ERESTARTSYS` to `ERESTARTNOHAND`: the call will be begun again.
    const BEGUN_AGAIN: core::ops::RangeInclusive<i64> = -514..=-512;
    is_deaf(call) && BEGUN_AGAIN.contains(&answer)
}

/// Calls that sleep until a disk or a lock of the kernel's has answered. Where a signal would wake
/// them they wait for somebody, who would notice: the other end of a named pipe, a server.
fn is_deaf(call: i64) -> bool {
    matches!(
        call,
        old::SYS_open
            | libc::SYS_openat
            | libc::SYS_openat2
            | old::SYS_stat
            | old::SYS_lstat
            | libc::SYS_fstat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | old::SYS_access
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | old::SYS_readlink
            | libc::SYS_readlinkat
            | old::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | old::SYS_unlink
            | libc::SYS_unlinkat
            | old::SYS_mkdir
            | libc::SYS_mkdirat
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync_file_range
            | libc::SYS_msync
            | libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_mremap
            | libc::SYS_madvise
            | libc::SYS_brk
    )
}

/// Where the limit of a call is whose time the kernel would let begin anew.
pub fn limit_of(call: i64) -> Option<Limit> {
    match call {
        old::SYS_epoll_wait | libc::SYS_epoll_pwait => Some(Limit::Milliseconds(3)),
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => Some(Limit::Timespec(3)),
        libc::SYS_rt_sigtimedwait | libc::SYS_ppoll => Some(Limit::Timespec(2)),
        libc::SYS_pselect6 => Some(Limit::Timespec(4)),
        old::SYS_select => Some(Limit::Timeval(4)),
        _ => None,
    }
}

/// There is a limit, and it is not that of a call that does not wait.
pub fn has_limit(limit: Limit, arguments: &[u64; 6]) -> bool {
    match limit {
        Limit::Milliseconds(at) => arguments[at] as i32 > 0,
        Limit::Timespec(at) | Limit::Timeval(at) => arguments[at] != 0,
    }
}

/// An answer of EINTR means that nothing was done, so that the call may be begun again: those
/// above, calls on sockets that have limits of time, and a wait until a terminal has sent all.
pub fn may_begin_again(call: i64, arguments: &[u64; 6]) -> bool {
    limit_of(call).is_some()
        || waits_for_descriptor(call)
        || matches!(call, libc::SYS_semop | libc::SYS_fallocate | libc::SYS_connect)
        || call == libc::SYS_ioctl && arguments[1] == libc::TCSBRK && arguments[2] != 0
}

/// The descriptor that such a call moves to, or from; `None` where it is told not to wait.
pub fn waits_on(call: i64, arguments: &[u64; 6], rest: Rest) -> Option<i32> {
    let flags = match call {
        libc::SYS_sendto | libc::SYS_recvfrom => arguments[3],
        libc::SYS_sendmsg | libc::SYS_recvmsg => arguments[2],
        _ => 0,
    };
    let to = if matches!(rest, Rest::Pipe(..)) { arguments[2] } else { arguments[0] };
    (flags as i32 & libc::MSG_DONTWAIT == 0).then_some(to as i32)
}

/// How the rest of a transfer is asked for that came back with less than it was to move: by which
/// arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// A buffer and a length.
    Buffer(usize, usize),
    /// A length only: the kernel has moved the position.
    Length(usize),
    /// A length and flags: what is in a pipe, without a wait for more.
    Pipe(usize, usize),
    /// A vector of buffers and its length.
    Vector(usize, usize),
    /// A message header.
    Message(usize),
    /// A buffer and a length, of a read that may wait for more than comes at once.
    Read(usize, usize),
    /// A vector and its length, of such a read.
    ReadVector(usize, usize),
    /// A buffer and a length, of random bytes.
    Random(usize, usize),
    /// The same two, or a message header, to be received whole.
    Whole(usize, usize),
    WholeMessage(usize),
}

/// Calls that return before their time if interrupted, and never do so else but with an end or an
/// error to come: asking for the rest then gives that, and the answer is the same.
pub fn rest_of(call: i64, arguments: &[u64; 6]) -> Option<Rest> {
    match call {
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => Some(Rest::Buffer(1, 2)),
        libc::SYS_sendfile => Some(Rest::Length(3)),
        libc::SYS_copy_file_range => Some(Rest::Length(4)),
        libc::SYS_splice => Some(Rest::Pipe(4, 5)),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => Some(Rest::Vector(1, 2)),
        libc::SYS_sendmsg => Some(Rest::Message(1)),
        libc::SYS_read | libc::SYS_pread64 => Some(Rest::Read(1, 2)),
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => Some(Rest::ReadVector(1, 2)),
        libc::SYS_getrandom => Some(Rest::Random(0, 1)),
        libc::SYS_recvfrom if is_taken_whole(arguments[3]) => Some(Rest::Whole(1, 2)),
        libc::SYS_recvmsg if is_taken_whole(arguments[2]) => Some(Rest::WholeMessage(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(call: i64, arguments: [u64; 6]) -> Care {
        care(&Blocked { call: Some(call as u64), arguments, stack: 1 })
    }

    #[test]
    fn who_waits_for_a_pipe_goes_on_at_once() {
        assert!(must_go_on(libc::SYS_openat, -512) && !must_go_on(libc::SYS_openat, 3));
        assert!(!must_go_on(libc::SYS_openat, -2) && !must_go_on(libc::SYS_read, -512));
    }

    #[test]
    fn each_call_of_the_manual_has_its_care() {
        let forever = u64::from(u32::MAX);
        assert_eq!(asked(old::SYS_epoll_wait, [3, 0, 1, forever, 0, 0]), Care::None);
        assert_eq!(asked(old::SYS_epoll_wait, [3, 0, 1, 100, 0, 0]), Care::Timed);
        assert_eq!(asked(libc::SYS_epoll_pwait2, [3, 0, 1, 0, 0, 8]), Care::None);
        assert_eq!(asked(libc::SYS_rt_sigtimedwait, [1, 0, 4096, 8, 0, 0]), Care::Timed);
        assert_eq!(asked(libc::SYS_rt_sigtimedwait, [1, 0, 0, 8, 0, 0]), Care::None);
        assert_eq!(asked(libc::SYS_semtimedop, [1, 1, 1, 4096, 0, 0]), Care::Timed);
        assert_eq!(asked(libc::SYS_read, [7, 1, 1, 0, 0, 0]), Care::Descriptor(7));
        // On its stack, in a constant, none.
        for (limit, want) in [(9000, Care::None), (90000, Care::Timed), (0, Care::None)] {
            let arguments = [1, 0, 0, 0, limit, 0];
            let call = Some(libc::SYS_pselect6 as u64);
            assert_eq!(care(&Blocked { call, arguments, stack: 8800 }), want);
        }
        let whole = libc::MSG_WAITALL as u64;
        assert_eq!(asked(libc::SYS_recvfrom, [7, 1, 9, whole, 0, 0]), Care::Leave);
        assert_eq!(asked(libc::SYS_recvfrom, [7, 1, 9, 0, 0, 0]), Care::Descriptor(7));
        assert_eq!(asked(libc::SYS_recvmsg, [7, 1, whole, 0, 0, 0]), Care::Leave);
        for call in [old::SYS_vfork, libc::SYS_clone, libc::SYS_clone3, libc::SYS_ioctl] {
            assert_eq!(asked(call, [0; 6]), Care::Leave);
        }
        for call in [libc::SYS_recvmmsg, libc::SYS_sendmmsg, libc::SYS_connect, libc::SYS_exit] {
            assert_eq!(asked(call, [0; 6]), Care::Leave);
        }
        assert_eq!(asked(libc::SYS_openat, [0; 6]), Care::Deaf);
        assert_eq!(care(&Blocked::default()), Care::None);
    }
}
