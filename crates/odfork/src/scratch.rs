//! The scratch memory of a job: what it works with and what it leaves behind.
//!
//! Owns the shared mapping and who may reach which part of it, when:
//!
//! ```text
//! part        caller, before      helper task, while       caller, after the
//!             it starts a task    the caller sleeps        task has ended
//! ---------   -----------------   ----------------------   ------------------
//! Results     &, reset            &, written               &, read
//! Work        nothing             the only &mut (`Work`)   nothing
//! stack       nothing             the task's own           nothing
//! ```
//! [`Results`] are atomics: the task may be killed between any two instructions, and what it had
//! stored by then counts. Nothing else passes from the task to the caller.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use crate::args;
use crate::code::{Code, MAX_OBJECTS};
use crate::course::Course;
use crate::held;
use crate::pagemap;
use crate::reason::{Done, Reason, Stop};
use crate::results::Results;
use crate::step::Step;
use crate::sys::{self, Kernel, PAGE};
use crate::vma::Vma;

/// Mappings of interest a job can look at; more are left alone.
pub const MAX_VMAS: usize = 16384;
/// Threads whose stacks are watched at most; with more, fork stays plain.
pub const MAX_STACKS: usize = held::MOST;
/// Bytes of text read at once.
pub const TEXT: usize = 1 << 16;
const STACK: usize = 512 << 10;
const TOTAL: usize = (size_of::<Memory>() + STACK).next_multiple_of(PAGE);

/// What a job works with. Nobody but the helper task touches it; all zeros is valid, and so is
/// whatever an earlier task left that was killed.
pub struct Work {
    /// Backing files the registry still has room for.
    pub files_left: usize,
    /// New mappings of the process are locked.
    pub locks: bool,
    /// Bytes that a thaw may copy before it asks again what is free.
    pub may_copy: usize,
    /// The machine has swap space.
    pub swap: bool,
    /// Threads run, so quiesced pages carry markers in the page tables.
    pub marked: bool,
    /// This is a slice: a thread that cannot be interrupted is not waited for.
    pub is_brief: bool,
    vmas: [Vma; MAX_VMAS],
    vma_count: usize,
    /// Mappings of code, none of which is frozen.
    code: [Code; MAX_OBJECTS],
    code_count: usize,
    /// Stack pointers of other threads, while they are quiesced.
    stacks: [usize; MAX_STACKS],
    stack_count: usize,
    /// How far a pass in slices has come.
    pub course: Course,
    /// The threads that a quiesce knows.
    pub threads: Noted,
    /// Those that are held by ptrace.
    pub held: held::Table,
    pub pagemap: pagemap::Buffers,
    pub text: [u8; TEXT],
}

impl Work {
    /// As new, for the next job.
    pub fn begin(&mut self) {
        self.go_on();
        self.course.end();
        (self.vma_count, self.code_count) = (0, 0);
    }

    /// For the next slice: what the look before it has found stays.
    pub fn go_on(&mut self) {
        (self.stack_count, self.files_left) = (0, 0);
        self.threads.clear();
        self.pagemap.forget();
        (self.locks, self.swap, self.marked, self.is_brief) = (false, false, false, false);
        self.may_copy = 0;
    }
}

/// One thread of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    pub tid: i32,
    /// Where its list of robust locks is.
    pub list: usize,
}

/// The threads noted so far.
pub struct Noted {
    threads: [Thread; MAX_STACKS],
    count: usize,
}

impl Noted {
    pub fn noted(&self) -> &[Thread] {
        &self.threads[..self.count.min(MAX_STACKS)]
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Keeps one more, or what is new of one; false when there is no room.
    pub fn keep(&mut self, thread: Thread) -> bool {
        let known = self.noted().iter().position(|t| t.tid == thread.tid);
        let Some(slot) = self.threads.get_mut(known.unwrap_or(self.count)) else { return false };
        *slot = thread;
        self.count += usize::from(known.is_none());
        true
    }
}

/// The mappings and stacks a scan kept.
pub struct Kept<'a> {
    vmas: &'a mut [Vma; MAX_VMAS],
    count: &'a mut usize,
    code: &'a mut [Code; MAX_OBJECTS],
    code_count: &'a mut usize,
}

impl Kept<'_> {
    /// Keeps one more, while there is room.
    pub fn push(&mut self, v: Vma) {
        if let Some(slot) = self.vmas.get_mut(*self.count) {
            *slot = v;
            *self.count += 1;
        }
    }

    /// Keeps a mapping of code, while there is room.
    pub fn push_code(&mut self, v: &Vma) {
        if let Some(slot) = self.code.get_mut(*self.code_count) {
            *slot = Code { start: v.start, end: v.end, inode: v.inode };
            *self.code_count += 1;
        }
    }
}

/// A job's view of all this. Lives on the task's own stack.
pub struct Scratch<'a> {
    pub kernel: Kernel<'a>,
    pub results: &'a Results,
    pub work: &'a mut Work,
}

impl Scratch<'_> {
    /// The mappings the scan kept.
    pub fn vmas(&self) -> &[Vma] {
        &self.work.vmas[..self.vma_count()]
    }

    /// One of them.
    pub fn vma(&self, i: usize) -> Vma {
        self.vmas().get(i).copied().unwrap_or_default()
    }

    /// The same, to change what counts as dirty.
    pub fn vmas_mut(&mut self) -> &mut [Vma] {
        let count = self.vma_count();
        &mut self.work.vmas[..count]
    }

    /// One more, joined with the latest where it goes on from there.
    pub fn keep_vma(&mut self, v: Vma) {
        let count = self.vma_count();
        if let Some(last) = self.work.vmas[..count].last_mut() {
            let goes_on = (last.end, last.offset + last.len() as u64) == (v.start, v.offset);
            let (start, offset, anon) = (last.start, last.offset, last.anon);
            if goes_on && (Vma { start, offset, anon, ..v }) == (Vma { end: v.end, ..*last }) {
                last.end = v.end;
                return;
            }
        }
        if let Some(slot) = self.work.vmas.get_mut(count) {
            *slot = v;
            self.work.vma_count = count + 1;
        }
    }

    pub fn vma_count(&self) -> usize {
        self.work.vma_count.min(MAX_VMAS)
    }

    /// The place for the next scan's mappings, and the buffer it reads text into.
    /// And the stack pointers noted.
    pub fn restart_vmas(&mut self) -> (Kept<'_>, &mut [u8; TEXT], &[usize]) {
        let Work { vmas, vma_count, code, code_count, text, stacks, stack_count, .. } =
            &mut *self.work;
        (*vma_count, *code_count) = (0, 0);
        let kept = Kept { vmas, count: vma_count, code, code_count };
        (kept, text, &stacks[..(*stack_count).min(MAX_STACKS)])
    }

    /// The place for code that is found anew, and the buffer for text.
    pub fn restart_code(&mut self) -> (Kept<'_>, &mut [u8; TEXT]) {
        let Work { vmas, vma_count, code, code_count, text, .. } = &mut *self.work;
        *code_count = 0;
        (Kept { vmas, count: vma_count, code, code_count }, text)
    }

    /// The code the scan found.
    pub fn code(&self) -> &[Code] {
        &self.work.code[..self.work.code_count.min(MAX_OBJECTS)]
    }

    /// The mappings kept, while text is being read.
    pub fn vmas_and_text(&mut self) -> (&[Vma], &mut [u8; TEXT]) {
        let Work { vmas, vma_count, text, .. } = &mut *self.work;
        (&vmas[..(*vma_count).min(MAX_VMAS)], text)
    }

    /// Stack pointers of the threads that rest.
    pub fn stacks(&self) -> &[usize] {
        &self.work.stacks[..self.work.stack_count.min(MAX_STACKS)]
    }

    pub fn forget_stacks(&mut self) {
        self.work.stack_count = 0;
    }

    /// Notes one; false when there is no room.
    pub fn note_stack(&mut self, pointer: usize) -> bool {
        let Some(slot) = self.work.stacks.get_mut(self.work.stack_count) else { return false };
        *slot = pointer;
        self.work.stack_count += 1;
        true
    }
}

/// The mapping as it lies in memory; the task's stack follows.
#[repr(C)]
pub struct Memory {
    pub results: Results,
    work: UnsafeCell<Work>,
}

impl Memory {
    /// Where the task's buffers are. Only the task itself makes a reference of it.
    pub fn work(&self) -> *mut Work {
        self.work.get()
    }

    /// The end of the task's stack, in a mapping of [`ScratchMapping`].
    pub fn stack_top(at: NonNull<Memory>) -> usize {
        (at.as_ptr() as usize + TOTAL) & !63
    }
}

/// The scratch memory of a process. Kept once mapped, so that thawing needs no
/// new mapping when limits are reached; not inherited by children.
pub struct ScratchMapping {
    at: Option<NonNull<Memory>>,
}

// SAFETY: the address of a mapping that any thread of the process may use; who has this value
// mutably holds the runtime's lock.
unsafe impl Send for ScratchMapping {}

impl ScratchMapping {
    /// Not mapped yet.
    pub const fn new() -> Self {
        ScratchMapping { at: None }
    }

    /// After a job whose results were read: gives the memory back where it is scarce.
    pub fn clear(&mut self) {
        let Some(at) = self.at else { return };
        // Told by the helper: asking is a system call that a filter may forbid.
        // SAFETY: our own mapping, which lives until it is unmapped here.
        if unsafe { at.as_ref() }.results.report.space_limited.flag() {
            // SAFETY: our own mapping; no helper runs, and results borrow `self`.
            unsafe { sys::munmap(at.as_ptr() as usize, TOTAL) };
            self.at = None;
        }
    }

    /// In a child: the parent's was not inherited.
    pub fn forget(&mut self) {
        self.at = None;
    }

    /// The memory, mapped now if need be at the hint `zone`.
    pub fn map(&mut self, kernel: &Kernel, zone: &mut usize) -> Done<NonNull<Memory>> {
        if let Some(at) = self.at {
            return Ok(at);
        }
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let fail = |e| Stop::failed(Reason::Limit, Step::Helper, e);
        // SAFETY: a new mapping.
        let at = unsafe {
            let a = args![*zone, TOTAL, prot, flags, -1isize, 0];
            let at = kernel.call(libc::SYS_mmap, a).map_err(fail)?;
            let a = args![at, TOTAL, libc::MADV_DONTFORK];
            if let Err(e) = kernel.call(libc::SYS_madvise, a) {
                sys::munmap(at, TOTAL);
                return Err(fail(e));
            }
            at
        };
        *zone += TOTAL.next_multiple_of(sys::HUGE);
        self.at = NonNull::new(at as *mut Memory);
        self.at.ok_or(Stop::of(Reason::Limit))
    }
}

impl Default for ScratchMapping {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Trace;

    fn results() -> Box<Results> {
        // SAFETY: all zeros is valid (atomics only), as in the mapping.
        unsafe { Box::<Results>::new_zeroed().assume_init() }
    }

    #[test]
    fn kept_mappings_stop_where_the_room_ends() {
        // SAFETY: all zeros is valid, as in the mapping.
        let mut work = unsafe { Box::<Work>::new_zeroed().assume_init() };
        let (results, trace) = (results(), Trace::new());
        let kernel = Kernel::new(&trace, crate::sys::Fault::None);
        let mut s = Scratch { kernel, results: &results, work: &mut work };
        let (mut kept, ..) = s.restart_vmas();
        (0..MAX_VMAS + 3).for_each(|i| kept.push(Vma { start: i, ..Vma::default() }));
        assert_eq!((s.vma_count(), s.vma(7).start, s.vma(MAX_VMAS).start), (MAX_VMAS, 7, 0));
        assert!((0..MAX_STACKS).all(|i| s.note_stack(i)) && !s.note_stack(0));
        s.forget_stacks();
        assert!(s.stacks().is_empty());
    }
}
