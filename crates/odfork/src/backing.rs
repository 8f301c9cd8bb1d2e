//! What is made of a backing file: its anchor mappings, its sharing probe, views of it.
//!
//! Runs in the helper task (its rules apply). Views of live memory are made by the program's thread
//! too (`live.rs`). Where files come from: `source`.

use crate::args;
use crate::registry::BackingFile;
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{Errno, Kernel, SysResult, HUGE, PAGE};

/// Content begins here in the file; page 0 is the anchors'.
pub const DATA: usize = HUGE;

/// Writes a line to a file of `/proc`.
pub fn write_file(k: &Kernel, path: &core::ffi::CStr, text: &[u8]) -> SysResult<()> {
    // SAFETY: valid path and text; the descriptor is the helper's.
    unsafe {
        let a = args![libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0];
        let fd = k.call(libc::SYS_openat, a)?;
        let wrote = k.call(libc::SYS_write, args![fd, text.as_ptr(), text.len()]);
        let _ = k.call(libc::SYS_close, args![fd]);
        wrote.map(|_| ())
    }
}

/// Device and inode of an open file, in the form of the process map.
pub fn identity(k: &Kernel, fd: i32) -> SysResult<(u64, u64)> {
    // SAFETY: stat is plain data for the kernel to fill.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        k.call(libc::SYS_fstat, args![fd, &mut st])?;
        let dev = st.st_dev;
        Ok((((libc::major(dev) as u64) << 32) | libc::minor(dev) as u64, st.st_ino))
    }
}

/// Maps the two anchor mappings of a new backing file; neither goes to children.
pub fn map_anchors(s: &mut Scratch, fd: i32, file: &mut BackingFile) -> SysResult<()> {
    s.kernel.enter(Step::Anchor);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    for (flag, anchor) in
        [(libc::MAP_PRIVATE, &mut file.anchor_private), (libc::MAP_SHARED, &mut file.anchor_shared)]
    {
        let hint = s.results.place(PAGE);
        // SAFETY: new one-page mappings.
        unsafe {
            let at = s.kernel.call(libc::SYS_mmap, args![hint, PAGE, prot, flag, fd, 0])?;
            *anchor = at;
            s.kernel.call(libc::SYS_madvise, args![at, PAGE, libc::MADV_DONTFORK])?;
        }
    }
    Ok(())
}

/// Removes the anchor mappings of a backing file: the file lives on only in mappings.
pub fn unmap_anchors(file: &BackingFile) {
    for anchor in [file.anchor_private, file.anchor_shared] {
        if anchor != 0 {
            // SAFETY: our own one-page mapping.
            unsafe { crate::sys::munmap(anchor, PAGE) };
        }
    }
}

/// A sharing probe: two pages. The kernel moves pages to other places (compaction, memory nodes),
/// one after the other, and maps each again in one process before the next: meanwhile a page that
/// many share seems exclusive. The other one does not, at that moment.
pub const PROBE: usize = 2 * PAGE;

/// Makes a sharing probe: private pages that every descendant inherits by fork and nobody ever
/// writes. While both are mapped exclusively, no descendant that could show a backing file of their
/// time is alive. Nor does anybody read them: back from swap space in one process they would be
/// exclusive there, whoever else has them in swap space still.
pub fn make_probe(s: &mut Scratch) -> SysResult<usize> {
    s.kernel.enter(Step::Probe);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let hint = s.results.place(PROBE);
    // SAFETY: a new mapping, written once before it is protected.
    unsafe {
        let at = s.kernel.call(libc::SYS_mmap, args![hint, PROBE, prot, flags, -1isize, 0])?;
        for page in [at, at + PAGE] {
            (page as *mut u64).write_volatile(0x6f64_666f_726b);
        }
        if let Err(e) = s.kernel.call(libc::SYS_mprotect, args![at, PROBE, libc::PROT_NONE]) {
            crate::sys::munmap(at, PROBE);
            return Err(e);
        }
        Ok(at)
    }
}

/// Maps the file's pages where it is shown, as the memory was before: what counts as resident is
/// what the kernel chooses a victim by when memory runs out. Fork does not copy these entries, and
/// those of huge pages are few. Failing costs that only.
pub fn populate(k: &Kernel, (start, end): (usize, usize)) {
    // SAFETY: without effect on content.
    let _ =
        unsafe { k.call(libc::SYS_madvise, args![start, end - start, libc::MADV_POPULATE_READ]) };
}

/// Reserves addresses for a view, so that 2 MB pages of the file can be mapped as such.
fn reserve(k: &Kernel, zone: usize, span: usize) -> SysResult<usize> {
    let room = span.next_multiple_of(HUGE) + HUGE;
    let hint = zone.next_multiple_of(HUGE) + HUGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let a = args![hint, room, libc::PROT_NONE, flags, -1isize, 0];
    // SAFETY: new addresses, of which an aligned part is kept.
    unsafe {
        let at = k.call(libc::SYS_mmap, a)?;
        let begin = at.next_multiple_of(HUGE);
        let end = begin + span.next_multiple_of(PAGE);
        crate::sys::munmap(at, begin - at);
        crate::sys::munmap(end, at + room - end);
        Ok(begin)
    }
}

/// A view of the whole backing file to write into: the shared anchor, duplicated
/// (`mremap` with old size 0). The caller notes and unmaps it.
pub fn shared_view(k: &Kernel, zone: usize, file: &BackingFile) -> SysResult<usize> {
    if file.anchor_shared == 0 {
        return Err(Errno(libc::ENOENT));
    }
    let at = reserve(k, zone, file.span)?;
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the target was reserved above.
    unsafe {
        k.call(libc::SYS_mremap, args![file.anchor_shared, 0, file.span, how, at])
            .inspect_err(|_| crate::sys::munmap(at, file.span))
    }
}

/// A fresh private mapping of the whole backing file, without an `anon_vma`: the
/// private anchor, doubled (`MREMAP_DONTUNMAP`, Linux 5.13 for files) and grown. It grows in
/// one call: other threads may map memory meanwhile, and would find addresses made free for it.
pub fn private_view(k: &Kernel, zone: usize, file: &BackingFile) -> SysResult<usize> {
    if file.anchor_private == 0 {
        return Err(Errno(libc::ENOENT));
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the anchor is ours and stays. New addresses take its twin.
    unsafe {
        let a = args![zone, PAGE, libc::PROT_NONE, flags, -1isize, 0];
        let at = k.call(libc::SYS_mmap, a)?;
        let view = k
            .call(libc::SYS_mremap, args![file.anchor_private, PAGE, PAGE, how, at])
            .and_then(|_| {
                k.call(libc::SYS_mremap, args![at, PAGE, file.span, libc::MREMAP_MAYMOVE])
            })
            .inspect_err(|_| crate::sys::munmap(at, PAGE))?;
        k.call(libc::SYS_madvise, args![view, file.span, libc::MADV_DOFORK])
            .inspect_err(|_| crate::sys::munmap(view, file.span))?;
        Ok(view)
    }
}
