//! mremap(2) on frozen memory, in the calling thread: nothing is copied, no helper task is needed.
//!
//! Owns what the kernel would do differently. A mapping of a backing file would grow into the
//! file: anonymous memory is mapped behind it instead. What the program made as one mapping may be
//! several here: they move one after the other. Everything else (a target of the program's choice,
//! `MREMAP_DONTUNMAP`, ranges that are frozen in part) is thawed by the helper task first.

use super::give_up::NOT_HERE;
use super::mapping::{map, replace, Unsettled};
use super::property::note_special;
use super::state::{state, State};
use super::thaw::{call_if_plain, with_thawed};
use super::waiter::hold;
use super::zero;
use crate::args;
use crate::kept;
use crate::step::Step;
use crate::sys::{self, Errno, Kernel, SysResult, HUGE, PAGE};
use crate::thaw::Content;

const FAULT: Errno = Errno(libc::EFAULT);
const NO_ROOM: Errno = Errno(libc::ENOMEM);
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The arguments, lengths in whole pages.
#[derive(Clone, Copy)]
pub struct Remap {
    pub old: usize,
    pub len: usize,
    pub new_len: usize,
    pub flags: i32,
    pub new: usize,
}

impl Remap {
    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Only the end goes.
    fn shrinks_in_place(&self) -> bool {
        self.new_len <= self.len && !self.has(libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP)
    }

    fn only_grows(&self) -> bool {
        self.new_len > self.len && !self.has(libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP)
    }

    /// What the program has named as its new place may be frozen.
    fn is_target_frozen(&self) -> bool {
        let addresses = &state().addresses;
        self.has(libc::MREMAP_FIXED) && addresses.may_be_frozen(self.new, self.new + self.new_len)
    }
}

/// The kernel's answer to such a call. `None`: it takes the helper task.
pub fn remap(r: &Remap, call: impl Fn() -> isize) -> Option<isize> {
    if r.is_target_frozen() {
        return None;
    }
    let to_target = || match r.has(libc::MREMAP_FIXED) {
        true => replace(r.new, r.new_len, &call),
        false => map(r.new_len, &call),
    };
    let st = state();
    let is_special = st.addresses.may_be_special(r.old, r.old + r.len);
    if let Some(answer) = call_if_plain(r.old, r.len, true, to_target) {
        if let (true, Ok(at)) = (is_special, sys::check(answer)) {
            note_special(at, r.new_len);
        }
        return Some(answer);
    }
    let owned = hold();
    if !st.addresses.is_exact() {
        return None;
    }
    let kernel = Kernel::new(&st.trace, st.options().fault);
    kernel.enter(Step::Thaw);
    let _unsettled = Unsettled::begin(st);
    let answer = Call { st, kernel, r: *r }.answer(call);
    drop(owned);
    match answer {
        Ok(at) => Some(at as isize),
        Err(NOT_HERE) => None,
        Err(e) => Some(-(e.0 as isize)),
    }
}

/// The same by the helper task: the range is made anonymous first.
pub fn remap_thawed(r: &Remap, call: impl Fn() -> isize) -> isize {
    let may_move = r.has(libc::MREMAP_MAYMOVE);
    // What lies behind a new end is unmapped first, whatever it is.
    let stays = r.len.min(r.new_len);
    with_thawed(r.old, stays, Content::Join, may_move, |thawed| {
        if thawed.is_err() {
            return by_hand(r);
        }
        let addresses = &state().addresses;
        if r.is_target_frozen() {
            // The kernel may replace a part of it, also where it refuses: it does not say which.
            addresses.doubt();
            return call();
        }
        let is_special = addresses.may_be_special(r.old, r.old + r.len);
        let answer = call();
        if let Ok(at) = sys::check(answer) {
            addresses.forget(r.old, r.old + r.len);
            addresses.forget(at, at + r.new_len);
            if is_special {
                addresses.note_special(at, at + r.new_len);
            }
        }
        answer
    })
}

/// The same where no helper is to be had. Under the lock.
fn by_hand(r: &Remap) -> isize {
    let st = state();
    let kernel = Kernel::new(&st.trace, st.options().fault);
    kernel.enter(Step::Thaw);
    let _unsettled = Unsettled::begin(st);
    match (Call { st, kernel, r: *r }).as_it_is() {
        Ok(at) => at as isize,
        Err(e) => -(e.0 as isize),
    }
}

/// One such call.
struct Call<'a> {
    st: &'a State,
    kernel: Kernel<'a>,
    r: Remap,
}

impl Call<'_> {
    fn answer(&self, call: impl Fn() -> isize) -> SysResult<usize> {
        let r = &self.r;
        let (end, addresses) = (r.old + r.len, &self.st.addresses);
        if r.shrinks_in_place() {
            let answer = sys::check(call())?;
            addresses.forget(r.old + r.new_len, end);
            return Ok(answer);
        }
        if !addresses.may_be_frozen(r.old, end) {
            // Split once, but perhaps one mapping again.
            return match sys::check(call()) {
                Err(FAULT) => Err(NOT_HERE),
                Ok(at) => Ok(self.arrived(at)),
                refused => refused,
            };
        }
        // What else lies in the range may be a file, or a hole: the helper looks. A target of the
        // program's own choice is the kernel's business.
        let whole = addresses.first_frozen(r.old, end) == Some((r.old, end));
        if !whole || !r.only_grows() || addresses.may_be_special(r.old, end) {
            return Err(NOT_HERE);
        }
        let (Some(access), until) = addresses.access(r.old, end) else { return Err(NOT_HERE) };
        if until < end {
            return Err(NOT_HERE);
        }
        if !self.st.is_fenced() && !zero::is_mapped(&self.kernel, (r.old, end)) {
            return Err(NOT_HERE);
        }
        self.grow(access)
    }

    /// Everything is anonymous, at its new place.
    fn arrived(&self, at: usize) -> usize {
        let is_special = self.st.addresses.may_be_special(self.r.old, self.r.old + self.r.len);
        if !self.r.has(libc::MREMAP_DONTUNMAP) && at != self.r.old {
            self.st.addresses.forget(self.r.old, self.r.old + self.r.len);
        }
        self.st.addresses.forget(at, at + self.r.new_len);
        if is_special {
            self.st.addresses.note_special(at, at + self.r.new_len);
        }
        at
    }

    /// It is frozen as a whole and to become larger.
    fn grow(&self, access: i32) -> SysResult<usize> {
        let (r, addresses) = (&self.r, &self.st.addresses);
        let (end, new_end) = (r.old + r.len, r.old + r.new_len);
        let (kept, _) = addresses.kept(end - PAGE, end);
        let in_place = libc::MAP_FIXED_NOREPLACE;
        if let Ok(at) = kept::map(&self.kernel, (end, new_end), access, in_place, kept) {
            if at == end {
                addresses.forget(end, new_end);
                addresses.note_split(r.old, new_end);
                addresses.note_access(end, new_end, Some(access));
                return Ok(r.old);
            }
            // A kernel before 4.17, to which the address was a hint.
            self.unmap(at, at + r.new_len - r.len);
        }
        if !r.has(libc::MREMAP_MAYMOVE) {
            return Err(NO_ROOM);
        }
        match self.reserve() {
            Ok(target) => self.move_to(target, access, kept).map(|()| target),
            Err(_) => self.move_by_kernel(access, kept),
        }
    }

    /// Within the room for what it grows by only, as a tight `RLIMIT_AS` leaves it. What the file
    /// has behind the old end shows until the call is over, at addresses nobody knows yet.
    fn move_by_kernel(&self, access: i32, kept: u32) -> SysResult<usize> {
        let r = &self.r;
        let a = args![r.old, r.len, r.new_len, libc::MREMAP_MAYMOVE];
        // SAFETY: the program's own call. More than one mapping is refused: the helper joins them.
        let at = unsafe { self.kernel.call(libc::SYS_mremap, a) }.map_err(|_| NOT_HERE)?;
        let (behind, new_end) = (at + r.len, at + r.new_len);
        if let Err(e) = kept::map(&self.kernel, (behind, new_end), access, libc::MAP_FIXED, kept) {
            self.unmap(behind, new_end);
            if at != r.old && self.move_parts(at, r.old, r.len).is_err() {
                self.arrive(at, kept);
            }
            return Err(e);
        }
        self.arrive(at, kept);
        self.st.addresses.note_access(at, new_end, Some(access));
        Ok(at)
    }

    /// What was frozen lies at `at` now.
    fn arrive(&self, at: usize, kept: u32) {
        let (r, addresses) = (&self.r, &self.st.addresses);
        addresses.forget(r.old, r.old + r.len);
        addresses.forget(at, at + r.new_len);
        addresses.freeze(at, at + r.len);
        addresses.note_split(at, at + r.new_len);
        addresses.keep(at, at + r.len, kept, 0);
    }

    /// To addresses reserved for it.
    fn move_to(&self, target: usize, access: i32, kept: u32) -> SysResult<()> {
        let (r, addresses) = (&self.r, &self.st.addresses);
        let (behind, new_end) = (target + r.len, target + r.new_len);
        let given = |e| {
            self.unmap(target, new_end);
            e
        };
        addresses.forget(target, new_end);
        kept::map(&self.kernel, (behind, new_end), access, libc::MAP_FIXED, kept).map_err(given)?;
        addresses.freeze(target, behind);
        if let Err((moved, e)) = self.move_parts(r.old, target, r.len) {
            // What cannot be moved back is at its new place only, and stays known there.
            if self.move_parts(target, r.old, moved).is_ok() {
                addresses.forget(target, new_end);
                given(e);
            }
            return Err(e);
        }
        self.arrive(target, kept);
        addresses.note_access(target, new_end, Some(access));
        Ok(())
    }

    /// Everything moves as it is, frozen or not, and zeros are mapped where the kernel would show a
    /// file. What a smaller size leaves goes first, as on stock.
    fn as_it_is(&self) -> SysResult<usize> {
        let r = &self.r;
        let stays = r.len.min(r.new_len);
        let (end, addresses) = (r.old + stays, &self.st.addresses);
        let frozen_end = addresses.first_frozen(end - PAGE, end).is_some();
        let moves = r.has(libc::MREMAP_MAYMOVE);
        if !moves || r.new_len > r.len && !frozen_end {
            return Err(NO_ROOM);
        }
        if r.new_len < r.len {
            self.unmap(end, r.old + r.len);
            addresses.forget(end, r.old + r.len);
        }
        let target = if r.has(libc::MREMAP_FIXED) { r.new } else { self.reserve()? };
        let how = r.flags & libc::MREMAP_DONTUNMAP;
        if let Err((moved, e)) = self.move_all((r.old, target, stays), how) {
            self.transfer((r.old, target, moved), how)?;
            if moved == 0 && !r.has(libc::MREMAP_FIXED) {
                self.unmap(target, target + r.new_len);
            }
            return Err(e);
        }
        self.transfer((r.old, target, stays), how)?;
        let (behind, new_end) = (target + stays, target + r.new_len);
        if behind < new_end {
            let access = addresses.access(behind - PAGE, behind).0.unwrap_or(READ_WRITE);
            let (kept, _) = addresses.kept(behind - PAGE, behind);
            addresses.forget(behind, new_end);
            kept::map(&self.kernel, (behind, new_end), access, libc::MAP_FIXED, kept)?;
            addresses.note_access(behind, new_end, Some(access));
        }
        addresses.note_split(target, new_end);
        Ok(target)
    }

    /// The sets learn of a move; what was to stay behind is empty.
    fn transfer(&self, (from, to, len): (usize, usize, usize), how: i32) -> SysResult<()> {
        let (addresses, end) = (&self.st.addresses, from + len);
        if len == 0 {
            return Ok(());
        }
        let special = addresses.may_be_special(from, end);
        addresses.forget(to, to + len);
        let there = |at: usize| to + (at - from);
        let mut at = from;
        while at < end {
            let (access, until) = addresses.access(at, end);
            addresses.note_access(there(at), there(until), access);
            at = until;
        }
        at = from;
        while at < end {
            let (kept, until) = addresses.kept(at, end);
            addresses.keep(there(at), there(until), kept, !kept);
            at = until;
        }
        let mut next = from;
        while let Some((a, b)) = addresses.first_frozen(next, end) {
            addresses.freeze(there(a), there(b));
            if how != 0 {
                self.empty(a, b)?;
            }
            next = b;
        }
        next = from;
        while let Some((a, b)) = addresses.first_wiped(next, end) {
            addresses.note_wiped(there(a), there(b));
            next = b;
        }
        if special {
            addresses.note_special(to, to + len);
        }
        match how {
            0 => addresses.forget(from, end),
            _ => addresses.uncover(from, end),
        }
        Ok(())
    }

    /// A part that the kernel has left behind shows its file.
    fn empty(&self, start: usize, end: usize) -> SysResult<()> {
        let mut at = start;
        while at < end {
            let (access, until) = self.st.addresses.access(at, end);
            let (kept, _) = self.st.addresses.kept(at, until);
            let access = access.unwrap_or(READ_WRITE);
            kept::map(&self.kernel, (at, until), access, libc::MAP_FIXED, kept)?;
            at = until;
        }
        Ok(())
    }

    /// Moves all mappings of a range; else tells how much was moved. The kernel refuses a part
    /// that is more than one mapping, as kernels before 6.17 do: then half of it is tried.
    fn move_parts(&self, from: usize, to: usize, len: usize) -> Result<(), (usize, Errno)> {
        self.move_all((from, to, len), 0)
    }

    /// The same, leaving mappings behind or not.
    fn move_all(
        &self,
        (from, to, len): (usize, usize, usize),
        how: i32,
    ) -> Result<(), (usize, Errno)> {
        let how = how | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (mut at, mut size) = (0, len);
        while at < len {
            let a = args![from + at, size, size, how, to + at];
            // SAFETY: memory of the program, which asked for the move; the target is free.
            match unsafe { self.kernel.call(libc::SYS_mremap, a) } {
                Ok(_) => {
                    at += size;
                    size = len - at;
                }
                Err(FAULT) if size > PAGE => size = (size / PAGE).div_ceil(2) * PAGE,
                // A newer one has moved some of the mappings before it met one it refused.
                Err(FAULT) if !zero::is_mapped(&self.kernel, (from + at, from + at + PAGE)) => {
                    at += PAGE;
                    size = len - at;
                }
                Err(e) => return Err((at, e)),
            }
        }
        Ok(())
    }

    /// New addresses, where huge pages lie as they do now.
    fn reserve(&self) -> SysResult<usize> {
        let len = self.r.new_len;
        let spare = if self.r.len >= HUGE { HUGE } else { 0 };
        let at = kept::map(&self.kernel, (0, len + spare), libc::PROT_NONE, 0, kept::NORESERVE)?;
        let begin = at + (self.r.old.wrapping_sub(at) & spare.saturating_sub(1));
        self.unmap(at, begin);
        self.unmap(begin + len, at + len + spare);
        Ok(begin)
    }

    fn unmap(&self, start: usize, end: usize) {
        if start < end {
            // SAFETY: reserved above, or given up by the program's call.
            unsafe { sys::munmap(start, end - start) };
        }
    }
}
