//! The faulted form: threads, forks, and programs that drop and move their memory, close
//! descriptors and end.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{can_fault, expect, expect_page, image, in_child, open, options, page, Folder};
use odfork_image::{Codec, Form, Image, MapOptions, Mapped, Status, PAGE};

fn faulted(image: &Image, prefetch: usize) -> Mapped {
    let wish =
        MapOptions { form: Form::Faulted, prefetch, fall_back: false, ..MapOptions::default() };
    image.map(None, &wish).unwrap()
}

fn touch(at: *const u8, n: usize) {
    // SAFETY: mapped by the caller.
    unsafe { at.add(n * PAGE).read_volatile() };
}

/// The thread counts after it has let the toucher go on.
fn settled(mapped: &Mapped, pages: u64) -> Status {
    for _ in 0..1000 {
        let status = mapped.status().unwrap();
        if status.pages + status.zero_pages >= pages {
            return status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    mapped.status().unwrap()
}

#[test]
fn pages_come_when_touched_and_a_cluster_at_a_time() {
    if !can_fault("pages_come_when_touched_and_a_cluster_at_a_time") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 1000, 1, options(Codec::Lz4, 16));
    let image = open(&path);
    for (prefetch, most) in [(1, 1), (16, 16), (64, 64)] {
        let mapped = faulted(&image, prefetch);
        let at = mapped.address("state").unwrap();
        assert_eq!(mapped.status().unwrap().pages, 0);
        touch(at, 500);
        let status = settled(&mapped, most);
        assert_eq!((status.faults, status.pages + status.zero_pages), (1, most), "{status:?}");
        touch(at, 500 & !(prefetch - 1));
        assert_eq!(mapped.status().unwrap().faults, 1);
        expect(at, 1000, 1);
        let status = settled(&mapped, 1000);
        assert_eq!(status.faults as usize, 1000usize.div_ceil(prefetch));
        assert_eq!((status.pages + status.zero_pages, status.lost_pages), (1000, 0));
    }
}

#[test]
fn threads_may_touch_at_once() {
    if !can_fault("threads_may_touch_at_once") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 4000, 5, options(Codec::Lz4, 16));
    let image = open(&path);
    for prefetch in [1, 16] {
        let mapped = faulted(&image, prefetch);
        let at = mapped.address("state").unwrap() as usize;
        std::thread::scope(|scope| {
            for thread in 0..8usize {
                scope.spawn(move || {
                    for n in 0..4000 {
                        let n = (n * 37 + thread * 500) % 4000;
                        expect_page(at as *const u8, n, &page(5 + n as u64));
                    }
                });
            }
        });
        assert_eq!(mapped.status().unwrap().lost_pages, 0);
    }
}

#[test]
fn a_child_sees_everything_and_never_zeros() {
    if !can_fault("a_child_sees_everything_and_never_zeros") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 2000, 5, options(Codec::Zstd, 16));
    let mapped = faulted(&open(&path), 4);
    let at = mapped.address("state").unwrap();
    touch(at, 3);
    // What forks past the C library finds nothing.
    // SAFETY: mapped here; the child is to be killed by it.
    let raw = in_child(true, || unsafe { at.add(1500 * PAGE).read_volatile() == 0 });
    assert!(libc::WIFSIGNALED(raw) && libc::WTERMSIG(raw) == libc::SIGSEGV, "{raw:#x}");
    assert!(!mapped.status().unwrap().complete);
    let pages: Vec<Vec<u8>> = (0..2000).map(|n| page(5 + n)).collect();
    let equal = || {
        pages.iter().enumerate().all(|(n, page)| {
            // SAFETY: mapped.
            let found = unsafe { std::slice::from_raw_parts(at.add(n * PAGE), PAGE) };
            found == &page[..]
        })
    };
    assert_eq!(in_child(false, equal), 0);
    assert!(mapped.status().unwrap().complete);
    assert!(equal());
    // Now it is plain memory, and a raw fork has it too.
    assert_eq!(in_child(true, equal), 0);
}

#[test]
fn dropped_content_is_zeros_and_moved_content_is_there() {
    if !can_fault("dropped_content_is_zeros_and_moved_content_is_there") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 600, 1, options(Codec::None, 16));
    let mapped = faulted(&open(&path), 16);
    let at = mapped.address("state").unwrap();
    touch(at, 100);
    // SAFETY: our own mappings; sizes and addresses are whole pages of them.
    unsafe {
        // Page 100 is there, page 200 is not.
        for n in [100, 200] {
            assert_eq!(libc::madvise(at.add(n * PAGE).cast(), 8 * PAGE, libc::MADV_DONTNEED), 0);
            (n..n + 8).for_each(|n| expect_page(at, n, &[0; PAGE]));
            expect_page(at, n + 8, &page(1 + n as u64 + 8));
        }
        // Pages 300 to 349 move away, with some that were not touched, and grow.
        touch(at, 305);
        let to =
            libc::mremap(at.add(300 * PAGE).cast(), 50 * PAGE, 60 * PAGE, libc::MREMAP_MAYMOVE);
        assert_ne!(to, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        assert_ne!(to.cast(), at.add(300 * PAGE));
        expect(to.cast(), 50, 301);
        (50..60).for_each(|n| expect_page(to.cast(), n, &[0; PAGE]));
        expect(at.add(350 * PAGE), 250, 351);
        expect(at, 100, 1);
        // A moved part, only half of it touched, moves again.
        let again = libc::mremap(
            at.add(500 * PAGE).cast(),
            100 * PAGE,
            100 * PAGE,
            libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP,
            std::ptr::null_mut::<u8>(),
        );
        assert_ne!(again, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        expect(again.cast(), 100, 501);
        expect_page(at, 550, &[0; PAGE]);
        libc::munmap(again, 100 * PAGE);
        libc::munmap(to, 60 * PAGE);
    }
}

/// Clusters that lie in several mappings, some of them protected, unmapped or mapped over.
#[test]
fn split_mappings_lose_nothing() {
    if !can_fault("split_mappings_lose_nothing") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 600, 1, options(Codec::Lz4, 16));
    for populate in [false, true] {
        let mapped = faulted(&open(&path), 256);
        let at = mapped.address("state").unwrap();
        // SAFETY: our own mapping; whole pages of it.
        unsafe {
            for n in (3..400).step_by(10) {
                assert_eq!(libc::mprotect(at.add(n * PAGE).cast(), PAGE, libc::PROT_READ), 0);
            }
            assert_eq!(libc::mprotect(at.add(105 * PAGE).cast(), 2 * PAGE, libc::PROT_NONE), 0);
            assert_eq!(libc::munmap(at.add(207 * PAGE).cast(), 5 * PAGE), 0);
            let (prot, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            );
            let over = libc::mmap(at.add(307 * PAGE).cast(), 3 * PAGE, prot, flags, -1, 0);
            assert_ne!(over, libc::MAP_FAILED);
            if populate {
                mapped.populate();
                assert!(mapped.status().unwrap().complete);
            }
            expect_page(at, 308, &[0; PAGE]);
            assert_eq!(libc::mprotect(at.add(105 * PAGE).cast(), 2 * PAGE, libc::PROT_READ), 0);
        }
        for n in (0..600).filter(|n| !(207..212).contains(n) && !(307..310).contains(n)) {
            expect_page(at, n, &page(1 + n as u64));
        }
        assert_eq!(
            in_child(false, || (0..200)
                .all(|n| n % 5 == 0 || zeros(at, n) == (page_is_zeros(1 + n as u64)))),
            0
        );
    }
}

fn zeros(at: *const u8, n: usize) -> bool {
    // SAFETY: mapped by the caller.
    unsafe { std::slice::from_raw_parts(at.add(n * PAGE), PAGE) }.iter().all(|&byte| byte == 0)
}

fn page_is_zeros(seed: u64) -> bool {
    seed % 5 == 0
}

/// Threads that touch while another drops: what they see is the image's or zeros, and after the
/// drop zeros.
#[test]
fn touching_and_dropping_at_once() {
    if !can_fault("touching_and_dropping_at_once") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 2000, 1, options(Codec::None, 16));
    let image = open(&path);
    for round in 0..5 {
        let mapped = faulted(&image, 16);
        let at = mapped.address("state").unwrap() as usize;
        let dropped = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let dropped = &dropped;
                scope.spawn(move || {
                    for step in 0..4000 {
                        let n = (step * 7 + thread * 311 + round) % 2000;
                        let zeros = n < dropped.load(Ordering::Acquire);
                        // SAFETY: mapped while the scope lasts.
                        let word = unsafe { (at as *const u64).add(n * PAGE / 8).read_volatile() };
                        let saved = u64::from_le_bytes(page(1 + n as u64)[..8].try_into().unwrap());
                        assert!(word == 0 || word == saved && !zeros, "page {n}: {word:#x}");
                    }
                });
            }
            for n in (0..2000).step_by(10) {
                let part = (at + n * PAGE) as *mut libc::c_void;
                // SAFETY: mapped.
                assert_eq!(unsafe { libc::madvise(part, 10 * PAGE, libc::MADV_DONTNEED) }, 0);
                dropped.store(n + 10, Ordering::Release);
            }
        });
    }
}

#[test]
fn programs_may_close_every_descriptor() {
    if !can_fault("programs_may_close_every_descriptor") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 500, 1, options(Codec::Zstd, 16));
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mapped = faulted(&open(&path), 16);
    // The image is closed again: nothing is left to be closed by mistake. (Other tests of this
    // program open files.)
    let ours = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names: Vec<_> = ours.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    assert!(!names.iter().any(|name| name == &path), "{before} {names:?}");
    std::fs::remove_file(&path).unwrap();
    expect(mapped.address("state").unwrap(), 500, 1);
}

/// The thread must not keep the program's pipes open.
#[test]
fn the_thread_holds_no_descriptor_of_the_program() {
    if !can_fault("the_thread_holds_no_descriptor_of_the_program") {
        return;
    }
    use std::io::Read;
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 100, 1, options(Codec::None, 16));
    let (mut end, start) = std::io::pipe().unwrap();
    let mapped = faulted(&open(&path), 16);
    drop(start);
    // Not 0 at once: another test may just have forked. But it must come.
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
    drop(mapped);
}

#[test]
fn everything_at_once_and_the_end() {
    if !can_fault("everything_at_once_and_the_end") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    let region = image(&path, 3000, 1, options(Codec::Lz4, 16));
    let image = open(&path);
    let mapped = faulted(&image, 16);
    mapped.populate();
    let status = mapped.status().unwrap();
    assert!(
        status.complete && status.faults == 0 && status.pages + status.zero_pages == 3000,
        "{status:?}"
    );
    expect(mapped.address("state").unwrap(), 3000, 1);
    drop(mapped);
    // Twenty times: threads end, places are free again.
    for _ in 0..20 {
        let mapped = faulted(&image, 16);
        touch(mapped.address("state").unwrap(), 7);
    }
    let kept = faulted(&image, 16).keep();
    assert_eq!(kept[0].address, region.address);
    expect(region.address as *const u8, 3000, 1);
    // SAFETY: kept for the process; this test has done with it.
    unsafe { libc::munmap(region.address as *mut libc::c_void, region.bytes as usize) };
}

/// What was unmapped is zeros when memory grows there again, and what is moved over pages that have
/// not come is there instead of them.
#[test]
fn unmapped_content_never_comes_back() {
    if !can_fault("unmapped_content_never_comes_back") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 600, 1, options(Codec::None, 16));
    let image = open(&path);
    for populate in [false, true] {
        let mapped = faulted(&image, 16);
        let at = mapped.address("state").unwrap();
        // SAFETY: our own mappings; sizes and addresses are whole pages of them.
        unsafe {
            let whole = 600 * PAGE;
            assert_eq!(libc::mremap(at.cast(), whole, 300 * PAGE, 0).cast(), at);
            assert_eq!(libc::mremap(at.cast(), 300 * PAGE, whole, 0).cast(), at);
            let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let onto = |page, count, left, target| {
                let to = at.add(target * PAGE);
                assert_eq!(
                    libc::mremap(at.add(page * PAGE).cast(), count, left, fixed, to),
                    to.cast()
                );
            };
            onto(10, PAGE, PAGE, 250);
            // It is shortened as well: pages 22 and 23 are nowhere.
            onto(20, 4 * PAGE, 2 * PAGE, 100);
            if populate {
                mapped.populate();
            }
            expect_page(at, 250, &page(11));
            expect(at.add(100 * PAGE), 2, 21);
            expect(at.add(102 * PAGE), 148, 103);
            expect(at.add(251 * PAGE), 49, 252);
            (300..600).for_each(|n| expect_page(at, n, &[0; PAGE]));
        }
        mapped.populate();
        assert!(mapped.status().unwrap().complete);
    }
}

/// Another image where one was unmapped: the thread of the first puts nothing there.
#[test]
fn two_images_at_one_address() {
    if !can_fault("two_images_at_one_address") {
        return;
    }
    let folder = Folder::new();
    let (first, second) = (folder.file("first"), folder.file("second"));
    let region = image(&first, 100, 1, options(Codec::None, 16));
    assert_eq!(image(&second, 100, 1001, options(Codec::None, 16)).address, region.address);
    let (first, second) = (open(&first), open(&second));
    for _ in 0..20 {
        let old = faulted(&first, 16);
        let at = old.address("state").unwrap();
        touch(at, 50);
        // SAFETY: a mapping of ours that nobody looks into any more.
        assert_eq!(unsafe { libc::munmap(at.cast(), 100 * PAGE) }, 0);
        let new = faulted(&second, 16);
        assert_eq!(new.address("state").unwrap(), at);
        old.populate();
        new.populate();
        expect(at, 100, 1001);
        // Its own memory is gone, and what is there is not its business.
        let _ = old.keep();
    }
}

/// Memory that has grown before all was in: a child has all of it.
#[test]
fn grown_memory_is_there_in_a_child() {
    if !can_fault("grown_memory_is_there_in_a_child") {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 100, 1, options(Codec::None, 16));
    let mapped = faulted(&open(&path), 16);
    let at = mapped.address("state").unwrap();
    // SAFETY: our own mapping; the new one is ours, too.
    unsafe {
        let to = libc::mremap(at.cast(), 100 * PAGE, 200 * PAGE, libc::MREMAP_MAYMOVE);
        assert_ne!(to, libc::MAP_FAILED);
        let last = to.cast::<u8>().add(199 * PAGE);
        last.write_volatile(7);
        assert_eq!(in_child(false, || last.read_volatile() == 7), 0);
        libc::munmap(to, 200 * PAGE);
    }
    let _ = mapped.keep();
}
