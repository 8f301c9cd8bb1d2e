//! `MADV_DONTNEED` and its kin on frozen memory: the program gives content up, zeros are there.
//!
//! Owns the way from the advice to the parts of its range, and the choice of zeros for each part.
//! Everything is done in the calling thread: no helper task, no descriptor another thread could
//! see, no `/proc`. The sets of addresses say which parts show a backing file. One question to the
//! kernel finds out whether they do still: `MADV_FREE` is refused where a file is shown, and does
//! no harm where content is given up.

use core::sync::atomic::Ordering::Relaxed;

use super::live;
use super::objects;
use super::state::{state, Owned, State};
use super::waiter::hold;
use super::zero;
use crate::step::Step;
use crate::sys::abi::advice::MADV_GUARD_INSTALL;
use crate::sys::{self, Errno, Kernel, SysResult, PAGE};

/// From here on a mapping of its own costs less than anything else, while there are few.
const LARGE: usize = 64 << 10;

/// From here on a mapping of its own is always had: there cannot be many of them.
const VAST: usize = 1 << 20;

/// Frozen parts at most that small and large mappings of their own may make: each is two mappings
/// more, and each takes fork its time.
const SMALL_PARTS: usize = 1024;
const LARGE_PARTS: usize = 4096;

/// The same where zero pages can be had, which take longer the more mappings there are.
const LARGE_PARTS_ALONE: usize = 16;

/// Mappings of the process at most beside which small and large parts get one of their own,
/// whatever has made them: parts that were thawed leave theirs. Far from `vm.max_map_count`.
const SMALL_AMONG: u32 = 4096;
const LARGE_AMONG: u32 = 16384;

/// Up to here zeros in place are the cheapest.
const FEW: usize = 2 * PAGE;

/// Why a part could not be given up here.
pub const NOT_HERE: Errno = Errno(libc::EAGAIN);

/// The kernel's answer to the advice. `None`: it takes the helper task.
pub fn give_up(start: usize, len: usize, advice: i32) -> Option<isize> {
    let st = state();
    let began_ns = sys::now_ns();
    let mut owned = hold();
    if !st.addresses.is_exact() {
        return None;
    }
    let kernel = Kernel::new(&st.trace, st.options().fault);
    kernel.enter(Step::Thaw);
    let answer = Call { st, owned: &mut owned, kernel, advice }.range(start, start + len);
    st.given_up.note_retained(owned.retained.total());
    st.given_up.cost(sys::now_ns().saturating_sub(began_ns));
    match answer {
        Ok(()) => Some(0),
        Err(NOT_HERE) => None,
        Err(e) => Some(-(e.0 as isize)),
    }
}

/// One such call.
struct Call<'a> {
    st: &'a State,
    owned: &'a mut Owned,
    kernel: Kernel<'a>,
    advice: i32,
}

impl Call<'_> {
    /// Part by part, as the kernel does mapping by mapping: over holes, to the first refusal.
    fn range(&mut self, start: usize, end: usize) -> SysResult<()> {
        let (mut at, mut hole) = (start, false);
        while at < end {
            let (a, b) = self.st.addresses.first_frozen(at, end).unwrap_or((end, end));
            hole |= past_holes(self.by_kernel(at, a, self.advice))?;
            hole |= past_holes(self.frozen(a, b))?;
            at = b;
        }
        if hole {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(())
    }

    fn by_kernel(&self, start: usize, end: usize, advice: i32) -> SysResult<()> {
        if start >= end {
            return Ok(());
        }
        // SAFETY: the program's own advice, or one that gives up what that gives up.
        unsafe { sys::call(libc::SYS_madvise, crate::args![start, end - start, advice]) }
            .map(|_| ())
    }

    /// A part that was frozen, live or not.
    fn frozen(&mut self, start: usize, end: usize) -> SysResult<()> {
        let (mut at, mut hole) = (start, false);
        while let Some((part, _)) = self.owned.registry.first_shared((at, end)) {
            let (a, b) = (part.start.max(at), part.end.min(end));
            let zeroed = live::give_up(self.st, self.owned, (a, b)).map_err(|_| NOT_HERE)?;
            if zeroed {
                hole |= past_holes(self.still(at, a))?;
                at = b;
            }
        }
        hole |= past_holes(self.still(at, end))?;
        if hole {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(())
    }

    /// One that is not. The C library may have unmapped it since, and mapped other memory.
    fn still(&mut self, start: usize, end: usize) -> SysResult<()> {
        if start >= end {
            return Ok(());
        }
        let shows_file = self.by_kernel(start, end, libc::MADV_FREE) == Err(Errno(libc::EINVAL));
        if !shows_file {
            self.st.addresses.uncover(start, end);
            return self.by_kernel(start, end, self.advice);
        }
        if objects::touches(start, end) {
            // Frozen memory of a library's, or the file of one that was loaded there since.
            return Err(NOT_HERE);
        }
        let asks = matches!(self.advice, libc::MADV_DONTNEED | libc::MADV_FREE);
        if asks && self.is_special(start, end) && zero::is_locked((start, end)) {
            return Err(Errno(libc::EINVAL));
        }
        self.mapped(start, end)
    }

    fn is_special(&self, start: usize, end: usize) -> bool {
        self.st.addresses.may_be_special(start, end)
    }

    /// Halves the part until each is mapped or not: where nothing is, nothing must come.
    fn mapped(&mut self, start: usize, end: usize) -> SysResult<()> {
        // A filter may kill for the question.
        if self.st.is_fenced() || zero::is_mapped(&self.kernel, (start, end)) {
            return self.by_access(start, end);
        }
        if end - start == PAGE {
            self.st.addresses.forget(start, end);
            return Err(Errno(libc::ENOMEM));
        }
        let middle = start + (end - start) / PAGE / 2 * PAGE;
        let holes = [self.mapped(start, middle), self.mapped(middle, end)].map(past_holes);
        if holes[0]? | holes[1]? {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(())
    }

    fn by_access(&mut self, start: usize, end: usize) -> SysResult<()> {
        let mut at = start;
        while at < end {
            let (access, until) = self.st.addresses.access(at, end);
            self.zeros((at, until), access)?;
            at = until;
        }
        Ok(())
    }

    /// Memory of equal access. A property (a lock, a key) would be lost with its mapping.
    fn zeros(&mut self, range: (usize, usize), access: Option<i32>) -> SysResult<()> {
        let cuttable = access.filter(|_| !self.is_special(range.0, range.1));
        let len = range.1 - range.0;
        if self.advice == MADV_GUARD_INSTALL {
            // Nothing else guards.
            let cut = self.cut(range, cuttable, None);
            return if cut { self.after_cut(range) } else { Err(NOT_HERE) };
        }
        let always = len >= VAST;
        let is_alone = !always && self.is_alone();
        let most = match len {
            VAST.. => None,
            LARGE.. if is_alone => Some(LARGE_PARTS_ALONE),
            LARGE.. => Some(LARGE_PARTS),
            _ if is_alone => Some(0),
            _ => Some(SMALL_PARTS),
        };
        if self.cut(range, cuttable, most) {
            return self.after_cut(range);
        }
        if is_alone && self.zero_pages(range) {
            self.owned.retained.add(range.0, len);
            return Ok(());
        }
        if self.few_zeros(range, access) {
            return Ok(());
        }
        if is_alone && self.cut(range, cuttable, Some(LARGE_PARTS)) {
            return self.after_cut(range);
        }
        self.write(range, access.ok_or(NOT_HERE)?)
    }

    /// Beside the pages that the file retains these are as many more.
    fn write(&mut self, range: (usize, usize), access: i32) -> SysResult<()> {
        self.owned.retained.add(range.0, 2 * (range.1 - range.0));
        zero::write(&self.kernel, range, access).map_err(|_| NOT_HERE)
    }

    /// Not asked under a filter: it may kill for the question.
    fn is_alone(&self) -> bool {
        !self.st.is_fenced() && zero::is_alone(&self.kernel)
    }

    /// A page or two take memory of their own, which is bounded, and the least time.
    fn few_zeros(&mut self, range: (usize, usize), access: Option<i32>) -> bool {
        let (len, most) = (range.1 - range.0, self.owned.account.shown as usize / 8);
        if len > FEW || self.owned.zeroed + len > most {
            return false;
        }
        self.owned.zeroed += len;
        access.is_some_and(|access| self.write(range, access).is_ok())
    }

    /// The kernel looks at whole mappings: the one around the range is told to it as it is.
    fn zero_pages(&self, range: (usize, usize)) -> bool {
        let (a, b) = self.st.addresses.frozen_around(range.0).unwrap_or(range);
        let (from, to) = self.owned.registry.mapping_around(range.0).unwrap_or(range);
        let mapping = (a.max(from).min(range.0), b.min(to).max(range.1));
        zero::zero_pages(&self.kernel, range, mapping).is_ok()
    }

    /// A mapping of its own, if that does not make too many of them. Beside memory that is not
    /// frozen it makes none: the kernel joins the two.
    fn cut(&mut self, range: (usize, usize), access: Option<i32>, most: Option<usize>) -> bool {
        let addresses = &self.st.addresses;
        let shows = |at: usize| addresses.may_be_frozen(at, at + 1);
        let splits = shows(range.0.wrapping_sub(1)) && shows(range.1);
        let among = if range.1 - range.0 < LARGE { SMALL_AMONG } else { LARGE_AMONG };
        let mappings = self.st.mappings.load(Relaxed);
        let are_many = |most| addresses.frozen_parts() >= most || mappings >= among;
        if splits && most.is_some_and(are_many) {
            return false;
        }
        let map = |access| zero::map(&self.kernel, addresses, range, access).is_ok();
        let done = access.is_some_and(map);
        if done && splits {
            self.st.mappings.store(mappings + 2, Relaxed);
        }
        done
    }

    fn after_cut(&mut self, (start, end): (usize, usize)) -> SysResult<()> {
        self.st.addresses.uncover(start, end);
        match self.advice {
            MADV_GUARD_INSTALL => self.by_kernel(start, end, self.advice),
            _ => Ok(()),
        }
    }
}

/// The kernel goes on behind a hole, and tells of it at the end: whether there was one.
fn past_holes(answer: SysResult<()>) -> SysResult<bool> {
    match answer {
        Ok(()) => Ok(false),
        Err(Errno(libc::ENOMEM)) => Ok(true),
        Err(e) => Err(e),
    }
}
