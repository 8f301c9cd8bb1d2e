//! Sharing: clean private mappings of backing files that nobody else shows become shared ones.
//!
//! Owns what may be shared, and the switch (`live.rs` has the way back). Runs in the helper task,
//! with everybody held: what is dirty goes into the file first, by the page tables. One call then
//! moves a shared view over the piece, all of it or nothing.
//!
//! A piece is shared only where nothing can tell it from private memory:
//!
//! | not shared | because |
//! | --- | --- |
//! | files of 4 KB pages | mapping them again costs more than a fork saves |
//! | what the C library has mapped | it unmaps unseen |
//! | a mapping below 2 MB, or with a property | no gain; the switch would lose it |
//! | with advice about huge pages | memory given up must have it again |
//! | stacks and descriptors of threads | the end of a thread wakes by the address of a word |
//! | beside devices, files with `O_DIRECT`, of servers | a read goes on into what a child sees |
//! | below limits of address space or data | the way back must not fail |
//! | where core files leave out shared memory | frozen memory would be missing |

use odfork_model::Trial;

use crate::args;
use crate::backing;
use crate::kept::{HUGEPAGE, NOHUGEPAGE};
use crate::live;
use crate::open_files::Found;
use crate::plan::Kind;
use crate::quiesce;
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::BackingFile;
use crate::results::View;
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{self, Kernel, HUGE};
use crate::vma::{hex, Vma, READ, WRITE};

/// Bits of the core filter: private and shared memory without a name.
const CORE_PRIVATE: u64 = 1;
const CORE_SHARED: u64 = 2;

/// Some file that may be shared is shown by nobody else: it is worth going on.
pub fn is_any_alone(s: &mut Scratch, subject: &Subject, pagemap: i32) -> bool {
    for (_, file) in subject.registry.live().filter(|(_, file)| file.kind() == Kind::Huge) {
        if refreeze::in_place(s, subject, pagemap, file) {
            return true;
        }
    }
    false
}

/// Shares again what an earlier look has found. Each range is asked of the kernel before it is
/// moved, properties are known to the wrappers; code alone may be new unseen.
pub fn look_again(s: &mut Scratch) -> Done<()> {
    let fail = |e| Stop::failed(Reason::NoProc, Step::Scan, e);
    s.kernel.enter(Step::Scan);
    let maps = scan::open(&s.kernel, c"/proc/self/maps").map_err(fail)?;
    let (kernel, mut pins) = (s.kernel, false);
    let (mut kept, text) = s.restart_code();
    let read = quiesce::each_map_line(&kernel, maps, text, &mut |_, v| {
        pins |= v.pins;
        if v.code {
            kept.push_code(&v);
        }
    });
    scan::close(maps);
    read.map_err(fail)?;
    if pins {
        return Err(Stop::of(Reason::Pinned));
    }
    Ok(())
}

/// Shares what can be. The first failure ends it: what is shared by then is whole.
pub fn share_all(s: &mut Scratch, subject: &Subject, pagemap: i32, found: Found) -> Done<()> {
    s.kernel.enter(Step::Switch);
    if !is_allowed(s, &found) {
        return Ok(());
    }
    for (slot, file) in subject.registry.live() {
        if s.results.is_gone(slot) {
            continue;
        }
        let mut at = file.start;
        while let Some(v) = next_mapping(s, file, at) {
            at = v.end;
            if !fits(s, subject, file, &v) || !s.results.may_share(subject.registry.shared().len())
            {
                continue;
            }
            if !refreeze::in_place(s, subject, pagemap, file) {
                s.results.report.waits.set(1);
                break;
            }
            share_part(s, pagemap, (slot, file), (v.start, v.end), Trial::UNLIMITED)?;
        }
    }
    Ok(())
}

/// Memory of this process may be shared now. The way back takes address space for a moment, and
/// data that shared memory is not counted as.
pub fn is_allowed(s: &mut Scratch, found: &Found) -> bool {
    !found.direct
        && !found.served
        && !s.results.report.unfit.flag()
        && !sys::is_space_limited()
        && is_in_cores(s)
}

/// The first mapping of a file, at or after that address, that shows it where it was made for.
pub fn next_mapping(s: &Scratch, file: &BackingFile, at: usize) -> Option<Vma> {
    let here = |v: &&Vma| {
        v.shows(file.dev, file.inode)
            && v.end > at
            && (file.start..file.end).contains(&v.start)
            && v.offset as usize == live::place(file) + (v.start - file.start)
    };
    s.vmas().iter().filter(here).min_by_key(|v| v.start).copied()
}

/// That mapping of the file may be shared.
pub fn fits(s: &Scratch, subject: &Subject, file: &BackingFile, v: &Vma) -> bool {
    let threads = s.work.threads.noted();
    file.kind() == Kind::Huge
        && (v.len() >= HUGE || follows_shared(subject, v.start))
        && file.kept & (HUGEPAGE | NOHUGEPAGE) == 0
        && is_unadvised(subject, v)
        && v.perms == READ | WRITE
        && v.end <= file.end
        && refreeze::is_replaceable(s, v)
        && quiesce::excluded_range(s, v, v.start).is_none()
        && !threads.iter().any(|thread| (v.start..v.end).contains(&thread.list))
        && !subject.addresses.may_be_special(v.start, v.end)
        && subject.mapped.holds(v.start, v.end)
}

/// It is the rest of a mapping of which the beginning is shared.
fn follows_shared(subject: &Subject, at: usize) -> bool {
    subject.registry.shared().iter().any(|part| part.end == at)
}

/// No part of it is to have advice about huge pages.
fn is_unadvised(subject: &Subject, v: &Vma) -> bool {
    let mut at = v.start;
    while at < v.end {
        let (kept, until) = subject.addresses.kept(at, v.end);
        if kept & (HUGEPAGE | NOHUGEPAGE) != 0 {
            return false;
        }
        at = until.max(at + 1);
    }
    true
}

/// What the page tables have of its own goes into the file: zero pages that memory given up shows
/// do not count as dirty. Then one shared mapping takes its place. Until then nothing else does:
/// another process that writes here waits for the protection of this very mapping. Returns where it
/// stopped.
pub fn share_part(
    s: &mut Scratch,
    pagemap: i32,
    (slot, file): (usize, &BackingFile),
    (start, end): (usize, usize),
    trial: Trial,
) -> Done<usize> {
    s.kernel.enter(Step::Switch);
    let fail = |e| Stop::failed(Reason::Step, Step::Switch, e);
    let view = backing::shared_view(&s.kernel, s.results.zone(), file).map_err(fail)?;
    s.results.note_view(View::Shared, view, file.span);
    let from = view + live::place(file) + (start - file.start);
    let copied = refreeze::copy_windows(s, pagemap, (start, end), from, trial);
    let done = copied.and_then(|(reached, bytes)| {
        s.results.report.written_back.add(bytes);
        s.kernel.enter(Step::Switch);
        // Before it is done: should this task be killed, the kernel is asked which it is.
        s.results.note_shared(slot, (start, reached));
        replace(&s.kernel, from, (start, reached)).map_err(fail)?;
        Ok(reached)
    });
    s.results.drop_view(View::Shared);
    done
}

/// The way back where the program's own limits forbid it to its threads.
pub fn unshare_all(s: &mut Scratch, subject: &Subject) -> Done<()> {
    // A copy on the task's own stack, as for all jobs.
    let registry = subject.registry;
    s.kernel.enter(Step::Switch);
    for part in registry.shared() {
        let Some(file) = registry.get(part.slot) else { continue };
        live::make_private(&s.kernel, s.results.zone(), file, part.range())
            .map_err(|e| Stop::failed(Reason::Step, Step::Switch, e))?;
    }
    Ok(())
}

fn replace(k: &Kernel, from: usize, (start, end): (usize, usize)) -> sys::SysResult<()> {
    let (len, how) = (end - start, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: the target shows the same bytes of the same file, and has no copies of its own.
    unsafe { k.call(libc::SYS_mremap, args![from, len, len, how, start]) }.map(|_| ())
}

/// Core files have shared memory wherever they have private memory. The file has no name, so that
/// it counts as memory without a file.
fn is_in_cores(s: &mut Scratch) -> bool {
    let mut text = [0u8; 32];
    let filter = scan::slurp(&s.kernel, c"/proc/self/coredump_filter", &mut text);
    let filter = filter.ok().and_then(|text| hex(text.trim_ascii()));
    filter.is_some_and(|bits| bits & CORE_PRIVATE == 0 || bits & CORE_SHARED != 0)
}
