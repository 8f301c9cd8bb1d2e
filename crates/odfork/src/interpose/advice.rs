//! madvise(2), process_madvise(2): the kernel would show a backing file's content again where the
//! program gave content up, or refuse.

use core::ffi::{c_int, c_void};

use super::errno::answer;
use super::fork::watch_children;
use crate::kept::{DONTDUMP, DONTFORK, HUGEPAGE, NOHUGEPAGE, WIPEONFORK};
use crate::sys::abi::advice::MADV_GUARD_INSTALL;
use crate::sys::{self, PAGE};
use crate::thaw::Content;
use crate::{args, engine};

/// What has to happen to frozen memory before an advice may be carried out.
fn advice_needs(advice: c_int) -> Option<Content> {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED | MADV_GUARD_INSTALL => {
            Some(Content::Zero(advice))
        }
        libc::MADV_REMOVE => Some(Content::Keep),
        _ => None,
    }
}

/// Advice that gives a mapping a property. Memory that has one is never frozen, so it
/// must not be when it gets one: a thaw later would lose it.
fn is_property(advice: c_int) -> bool {
    matches!(
        advice,
        libc::MADV_WIPEONFORK | libc::MADV_DONTFORK | libc::MADV_DONTDUMP | libc::MADV_MERGEABLE
    )
}

/// The property that an advice gives and anonymous memory has to get again, and the one it takes.
fn kept_by(advice: c_int) -> Option<(u32, u32)> {
    match advice {
        libc::MADV_HUGEPAGE => Some((HUGEPAGE, NOHUGEPAGE)),
        libc::MADV_NOHUGEPAGE => Some((NOHUGEPAGE, HUGEPAGE)),
        libc::MADV_DOFORK => Some((0, DONTFORK)),
        libc::MADV_DODUMP => Some((0, DONTDUMP)),
        libc::MADV_KEEPONFORK => Some((0, WIPEONFORK)),
        _ => None,
    }
}

/// This kernel knows the advice: it accepts it for an empty range. Every kernel knows the
/// commonest.
fn is_known_advice(advice: c_int) -> bool {
    // SAFETY: an empty range.
    advice == libc::MADV_DONTNEED
        || unsafe { sys::raw(libc::SYS_madvise, args![0, 0, advice]) == 0 }
}

/// madvise by the kernel, after frozen memory was thawed as the advice needs.
pub fn advise(addr: usize, len: usize, advice: c_int) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_madvise, args![addr, len, advice]) };
    let Some(pages) = len.checked_next_multiple_of(PAGE) else { return call() };
    if addr % PAGE != 0 || addr.checked_add(pages).is_none() {
        return call();
    }
    if leaves_mapping(advice) {
        return call();
    }
    if !gives_up(advice) {
        let advise = || advise_private(addr, pages, advice, call);
        let answer = engine::with_advice(|| engine::on_private(addr, pages, advise));
        match advice {
            libc::MADV_KEEPONFORK => engine::keep_in_children(addr, pages),
            libc::MADV_WIPEONFORK => watch_children(),
            _ => {}
        }
        return answer;
    }
    advise_private(addr, pages, advice, call)
}

/// Advice that means neither content nor the mapping.
fn leaves_mapping(advice: c_int) -> bool {
    const MADV_COLLAPSE: c_int = 25;
    matches!(
        advice,
        libc::MADV_WILLNEED
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_POPULATE_READ
            | libc::MADV_POPULATE_WRITE
            | MADV_COLLAPSE
    )
}

/// Advice after which zeros are there: live memory stays live.
fn gives_up(advice: c_int) -> bool {
    matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED)
}

/// Other advice, where what is not given up is private.
fn advise_private(addr: usize, pages: usize, advice: c_int, call: impl Fn() -> isize) -> isize {
    if is_property(advice) {
        // What is still frozen gets it again when it is thawed (`engine/wipe.rs` sees to its own).
        let later = |bit, answer| {
            if engine::is_done(answer) {
                engine::state().addresses.keep(addr, addr + pages, bit, 0);
            }
            answer
        };
        return engine::with_property(addr, pages, |thawed| match (thawed, advice) {
            (Err(_), libc::MADV_WIPEONFORK) => as_answer(engine::wipe(addr, addr + pages)),
            (Err(_), libc::MADV_DONTFORK) => later(DONTFORK, call()),
            (Err(_), libc::MADV_DONTDUMP) => later(DONTDUMP, call()),
            _ => call(),
        });
    }
    if let Some(kept) = kept_by(advice) {
        return engine::keep(addr, pages, kept, call);
    }
    let Some(content) = advice_needs(advice).filter(|_| is_known_advice(advice)) else {
        return call();
    };
    if let Some(answer) = engine::call_if_plain(addr, pages, false, &call) {
        return answer;
    }
    if let Content::Zero(advice) = content {
        if let Some(answer) = engine::give_up(addr, pages, advice) {
            engine::gave_up(addr, pages);
            return answer;
        }
    }
    let answer = engine::with_thawed(addr, pages, content, false, |thawed| {
        match (thawed, content) {
            (Ok(true), _) => 0,
            // Without the helper zeros cannot be had: say that the advice failed,
            // which madvise(2) allows, rather than show old content.
            (Err(_), Content::Zero(_)) => -(libc::EAGAIN as isize),
            // As of anonymous memory.
            (Err(_), Content::Keep) => -(libc::EINVAL as isize),
            _ => call(),
        }
    });
    engine::gave_up(addr, pages);
    answer
}

/// madvise(2): frozen memory becomes anonymous first where the advice means its content.
#[no_mangle]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    answer(|| advise(addr as usize, len, advice)) as c_int
}

fn as_answer(done: sys::SysResult<()>) -> isize {
    done.map_or_else(|e| -(e.0 as isize), |()| 0)
}

/// process_madvise by the kernel. What this process advises for itself (Linux 6.13) is done range
/// by range as madvise does it; for others the kernel knows no advice that frozen memory minds.
pub fn advise_by_vector(a: [usize; 6]) -> isize {
    let (advice, flags) = (a[3] as c_int, a[4]);
    let call = |vector: usize, count: usize| {
        let a = args![a[0], vector, count, advice, flags];
        // SAFETY: the program's own call, or one of no range.
        engine::on_private(0, usize::MAX, || unsafe { sys::raw(libc::SYS_process_madvise, a) })
    };
    if !engine::anything_frozen() || leaves_mapping(advice) || a[2] > MOST_RANGES || call(0, 0) != 0
    {
        return call(a[1], a[2]);
    }
    let mut done = 0;
    for at in (0..a[2]).map(|i| a[1].wrapping_add(i * size_of::<[usize; 2]>())) {
        let Some([start, len]) = range_at(at) else { return part(done, -(libc::EFAULT as isize)) };
        let answer = if len == 0 { 0 } else { advise(start, len, advice) };
        if answer < 0 {
            return part(done, answer);
        }
        done += len;
    }
    done as isize
}

/// As the kernel's `UIO_MAXIOV`.
const MOST_RANGES: usize = 1024;

/// What was done counts more than what was refused.
fn part(done: usize, refusal: isize) -> isize {
    if done > 0 {
        done as isize
    } else {
        refusal
    }
}

/// An element of such a vector; none if it cannot be read.
fn range_at(at: usize) -> Option<[usize; 2]> {
    let mut range = [0usize; 2];
    let (to, from) = ([range.as_mut_ptr() as usize, 16], [at, 16]);
    let a = args![sys::getpid(), to.as_ptr(), 1, from.as_ptr(), 1, 0];
    // SAFETY: the kernel reads where it can, and writes to `range`.
    let read = unsafe { sys::raw(libc::SYS_process_vm_readv, a) };
    (read == 16).then_some(range)
}

/// process_madvise(2).
#[no_mangle]
pub unsafe extern "C" fn process_madvise(
    pidfd: c_int,
    vec: *const c_void,
    count: usize,
    advice: c_int,
    flags: core::ffi::c_uint,
) -> isize {
    answer(|| advise_by_vector(args![pidfd, vec, count, advice, flags]))
}
