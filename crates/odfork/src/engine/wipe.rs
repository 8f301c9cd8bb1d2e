//! `MADV_WIPEONFORK` on frozen memory that cannot be made anonymous: no helper task is to be had,
//! or threads cannot be held.
//!
//! Owns what takes its place. The kernel refuses the advice for a file's mapping, so it keeps the
//! range out of children instead (`MADV_DONTFORK`): no old byte shows there, whoever forks. What a
//! child finds out first is that it is one (`child.rs`), and then the range is mapped, empty, with
//! the advice. Below a limit of address space only the latter.

use core::sync::atomic::Ordering::Relaxed;

use super::state::{state, State};
use super::zero;
use crate::addresses::Addresses;
use crate::args;
use crate::kept;
use crate::sys::{self, Errno, Kernel, SysResult, PAGE};

/// The advice for a range that is frozen, at least in part. Under the lock.
pub fn wipe(start: usize, end: usize) -> SysResult<()> {
    let addresses = &state().addresses;
    let (mut at, mut hole) = (start, false);
    while at < end {
        let (a, b) = addresses.first_frozen(at, end).unwrap_or((end, end));
        for (from, to, frozen) in [(at, a, false), (a, b, true)] {
            let done = match advise((from, to), libc::MADV_WIPEONFORK) {
                Err(Errno(libc::EINVAL)) if frozen => keep_away(addresses, (from, to)),
                other => other,
            };
            match done {
                Err(Errno(libc::ENOMEM)) => hole = true,
                other => other?,
            }
        }
        at = b;
    }
    if hole {
        return Err(Errno(libc::ENOMEM));
    }
    Ok(())
}

fn keep_away(addresses: &Addresses, range: (usize, usize)) -> SysResult<()> {
    if !addresses.note_wiped(range.0, range.1) {
        return Err(Errno(libc::EAGAIN));
    }
    addresses.keep(range.0, range.1, kept::WIPEONFORK, 0);
    state().wipes.store(1, Relaxed);
    // What is kept out of a child might find no room there.
    match sys::is_space_limited() {
        true => Ok(()),
        false => advise(range, libc::MADV_DONTFORK),
    }
}

/// After `MADV_KEEPONFORK` by the kernel: children have it again. Under the lock.
pub fn keep(start: usize, end: usize) {
    let (addresses, mut at) = (&state().addresses, start);
    while let Some((a, b)) = addresses.first_wiped(at, end) {
        let _ = advise((a, b), libc::MADV_DOFORK);
        addresses.keep_wiped(a, b);
        at = b;
    }
}

/// A child of this process has something to do.
pub fn is_any() -> bool {
    state().wipes.load(Relaxed) != 0
}

/// In a child that is one, alone: the ranges are there, and empty.
pub fn in_child(st: &State) {
    let (addresses, mut at) = (&st.addresses, 0);
    if !is_any() {
        return;
    }
    while let Some((start, end)) = addresses.first_wiped(at, usize::MAX) {
        at = start;
        while at < end {
            let (a, b) = addresses.first_frozen(at, end).unwrap_or((end, end));
            // Thawed since: it has the advice, and the kernel has emptied it.
            if at < a {
                addresses.keep_wiped(at, a);
            }
            at = a;
            while at < b {
                let (access, until) = addresses.access(at, b);
                empty(st, (at, until), access.unwrap_or(libc::PROT_READ | libc::PROT_WRITE));
                at = until;
            }
        }
    }
}

/// Where nothing can be mapped zeros are written, and again in its own children.
fn empty(st: &State, range: (usize, usize), access: i32) {
    let (addresses, kernel) = (&st.addresses, Kernel::new(&st.trace, st.options().fault));
    // Anonymous, at least in part: other memory by now, or the kernel has emptied it.
    if advise(range, libc::MADV_REMOVE) == Err(Errno(libc::EINVAL)) {
        if addresses.is_exact() || range.1 - range.0 == PAGE {
            return addresses.keep_wiped(range.0, range.1);
        }
        let middle = range.0 + (range.1 - range.0) / PAGE / 2 * PAGE;
        empty(st, (range.0, middle), access);
        return empty(st, (middle, range.1), access);
    }
    let (kept, _) = addresses.kept(range.0, range.1);
    if kept::map(&kernel, range, access, libc::MAP_FIXED, kept).is_ok() {
        let _ = advise(range, libc::MADV_WIPEONFORK);
        addresses.uncover(range.0, range.1);
        addresses.keep_wiped(range.0, range.1);
    } else if zero::is_mapped(&kernel, range) {
        let _ = zero::write(&kernel, range, access);
    }
}

fn advise((start, end): (usize, usize), advice: i32) -> SysResult<()> {
    if start >= end {
        return Ok(());
    }
    // SAFETY: advice of the program's, or what takes its place.
    unsafe { sys::call(libc::SYS_madvise, args![start, end - start, advice]) }.map(|_| ())
}
