//! Probes for kernel calls that make freezing and refreezing faster or possible with threads.
//!
//! Each probe checks the effect of the call, not only its return value. Runs in a throw-away child
//! (`child`).

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};

use odfork_pager_protocol::MOVING_FEATURES;
use odfork_sys::abi::pagemap::{self, ScanArg};
use odfork_sys::abi::procmap::{self, Query};
use odfork_sys::abi::userfaultfd::{self as abi, Message};
use odfork_sys::userfaultfd::{self, Userfaultfd};
use odfork_sys::Errno;

use super::Seen;
use crate::page::probe;

const PAGE: usize = 4096;

fn ioctl<T>(fd: RawFd, request: libc::Ioctl, argument: &mut T) -> Result<c_int, Error> {
    // SAFETY: every request below encodes the size of T, and T holds no pointers but to live memory
    // of this function's callers, so the kernel reads and writes only what is ours.
    match unsafe { libc::ioctl(fd, request, ptr::from_mut(argument)) } {
        -1 => Err(Error::last_os_error()),
        result => Ok(result),
    }
}

fn anonymous(pages: usize) -> Result<*mut c_void, Error> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping where the kernel likes; it lives until the probe's process ends.
    Ok(unsafe { mmap_anonymous(ptr::null_mut(), pages * PAGE, access, MapFlags::PRIVATE) }?)
}

fn failed(step: &str, error: &Error) -> Seen {
    Seen::no(format!("{step}: {error}"))
}

/// Writes one page of four and asks which are present.
pub fn pagemap_scan() -> Seen {
    let (start, file) = match (anonymous(4), File::open("/proc/self/pagemap")) {
        (Ok(start), Ok(file)) => (start as usize, file),
        (Err(error), _) => return failed("mmap", &error),
        (_, Err(error)) => return failed("/proc/self/pagemap", &error),
    };
    // SAFETY: the second of four writable pages.
    unsafe { ptr::write_volatile((start + PAGE) as *mut u8, 1) };
    let mut regions = [pagemap::Region::default(); 4];
    let mut argument = ScanArg {
        size: size_of::<ScanArg>() as u64,
        start: start as u64,
        end: (start + 4 * PAGE) as u64,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        category_mask: pagemap::IS_PRESENT,
        return_mask: pagemap::IS_PRESENT,
        ..ScanArg::default()
    };
    let second = ((start + PAGE) as u64, (start + 2 * PAGE) as u64);
    match ioctl(file.as_raw_fd(), pagemap::SCAN, &mut argument) {
        Err(error) => failed("ioctl", &error),
        Ok(1) if (regions[0].start, regions[0].end) == second => {
            Seen::yes("found the one page written of four")
        }
        Ok(count) => Seen::no(format!("gave {count} regions where one was expected")),
    }
}

/// Asks for the mapping around an address known to be mapped.
pub fn procmap_query() -> Seen {
    let (start, maps) = match (anonymous(4), File::open("/proc/self/maps")) {
        (Ok(start), Ok(maps)) => (start as u64, maps),
        (Err(error), _) => return failed("mmap", &error),
        (_, Err(error)) => return failed("/proc/self/maps", &error),
    };
    let mut query =
        Query { size: size_of::<Query>() as u64, address: start + 1, ..Query::default() };
    match ioctl(maps.as_raw_fd(), procmap::QUERY, &mut query) {
        Err(error) => failed("ioctl", &error),
        Ok(_) if query.start <= start && query.end >= start + 4 * PAGE as u64 => {
            Seen::yes("found the mapping around an address")
        }
        Ok(_) => Seen::no("answered with another mapping"),
    }
}

/// Moves a dirty page out of a private file mapping; the old place must then show the file again.
pub fn mremap_dontunmap() -> Seen {
    match moved_page() {
        Ok(seen) => seen,
        Err(error) => failed("mremap", &error),
    }
}

fn moved_page() -> Result<Seen, Error> {
    let file = memfd_create(c"odfork-check", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, PAGE as u64)?;
    rustix::io::pwrite(&file, b"f", 0)?;
    // SAFETY: a fresh private mapping of one page of our file, written, and moved by the kernel to
    // a place it chooses; both stay mapped until the probe's process ends.
    let (before, after) = unsafe {
        let old = mmap(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
            &file,
            0,
        )?;
        ptr::write_volatile(old.cast::<u8>(), b'd');
        // The fifth argument counts with DONTUNMAP alone too (a hint that must be aligned, seen on
        // 6.18); a caller who leaves it out passes what the register happens to hold.
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let new = libc::mremap(old, PAGE, PAGE, flags, ptr::null_mut::<c_void>());
        if new == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        (ptr::read_volatile(old.cast::<u8>()), ptr::read_volatile(new.cast::<u8>()))
    };
    Ok(match (before, after) {
        (b'f', b'd') => Seen::yes("the dirty page moved, the file shows again"),
        _ => Seen::no("moved, but with other content than expected"),
    })
}

/// Protects a page, lets the kernel write into it for a second thread (`read(2)`), and expects the
/// fault to be told. The descriptor lives until the probe's process ends.
pub fn userfaultfd() -> Seen {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    match userfaultfd::create(flags).or_else(|_| userfaultfd::create_from_device(flags)) {
        Ok(handle) => {
            held_back_write(handle).unwrap_or_else(|error| failed("write-protect", &error))
        }
        Err(refused) => match userfaultfd::create(flags | abi::USER_MODE_ONLY) {
            Ok(_) => Seen::partly("only for writes of the program itself"),
            Err(_) => failed("userfaultfd", &io_error(refused)),
        },
    }
}

/// Moves a page as the pager does, and asks to be told of forks.
pub fn moves() -> Seen {
    let told = match probe::moves() {
        Ok(told) => told,
        Err(why) => return Seen::no(why.split(';').next().unwrap_or_default()),
    };
    match moved_by_userfaultfd() {
        Ok(true) if told => Seen::yes("moved a page; the kernel tells of forks"),
        Ok(true) => Seen::partly("moved a page; the kernel does not tell of forks"),
        Ok(false) => Seen::no("moved a page, with other content than expected"),
        Err(error) => failed("UFFDIO_MOVE", &error),
    }
}

fn moved_by_userfaultfd() -> Result<bool, Error> {
    let (from, to) = (anonymous(1)?, anonymous(1)?);
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let handle = probe::own(flags).map_err(io_error)?;
    handle.enable(MOVING_FEATURES).map_err(io_error)?;
    handle.register(to as u64, PAGE as u64, abi::REGISTER_MODE_MISSING).map_err(io_error)?;
    // SAFETY: one writable page.
    unsafe { ptr::write_volatile(from.cast::<u8>(), b'm') };
    handle.move_pages(to as u64, from as u64, PAGE as u64).1.map_err(io_error)?;
    // SAFETY: it was just moved there.
    Ok(unsafe { ptr::read_volatile(to.cast::<u8>()) } == b'm')
}

/// As the helper task does: a child traces this process, which names it where Yama asks for that.
pub fn ptrace() -> Seen {
    // SAFETY: numbers only; the child makes one more call and leaves by _exit.
    let status = unsafe {
        let this = libc::getpid();
        libc::prctl(libc::PR_SET_PTRACER, this, 0, 0, 0);
        match libc::fork() {
            -1 => return failed("fork", &Error::last_os_error()),
            0 => {
                let seized = libc::ptrace(libc::PTRACE_SEIZE, this, 0, 0);
                libc::_exit(if seized == 0 { 0 } else { *libc::__errno_location() })
            }
            child => {
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                status
            }
        }
    };
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Seen::yes("a child may trace its parent"),
        (true, errno) => refused(&Error::from_raw_os_error(errno)),
        _ => Seen::no("killed by a seccomp filter"),
    }
}

fn refused(error: &Error) -> Seen {
    match odfork_proc::process::ptrace_scope() {
        Some(scope) => Seen::no(format!("{error}; kernel.yama.ptrace_scope is {scope}")),
        None => failed("ptrace", error),
    }
}

fn io_error(error: Errno) -> Error {
    Error::from_raw_os_error(error.0)
}

fn held_back_write(handle: Userfaultfd) -> Result<Seen, Error> {
    let page = anonymous(1)?;
    // SAFETY: one writable page; populated, so that there is an entry to protect.
    unsafe { ptr::write_volatile(page.cast::<u8>(), b'o') };
    let (address, len) = (page as u64, PAGE as u64);
    handle.enable(abi::FEATURE_PAGEFAULT_FLAG_WP).map_err(io_error)?;
    handle.register(address, len, abi::REGISTER_MODE_WP).map_err(io_error)?;
    let protect = |on| handle.write_protect(address, len, on).map_err(io_error);
    protect(true)?;
    let (reader, writer) = rustix::pipe::pipe()?;
    rustix::io::write(&writer, b"n")?;
    let place = address as usize;
    let kernel_write = std::thread::spawn(move || {
        // SAFETY: one byte into a page that stays mapped; no reference to it exists anywhere.
        unsafe { libc::read(reader.as_raw_fd(), place as *mut c_void, 1) }
    });
    let told = told_of_write(handle, address)?;
    // SAFETY: the page stays mapped; read as volatile because the kernel writes it.
    let held = unsafe { ptr::read_volatile(page.cast::<u8>()) } == b'o';
    protect(false)?;
    let arrived = kernel_write.join().is_ok_and(|count| count == 1);
    Ok(match (told, held, arrived) {
        (true, true, true) => Seen::yes("held back a write made by the kernel"),
        (false, _, _) => Seen::no("a write to a protected page was not told"),
        _ => Seen::no("a write to a protected page was not held back"),
    })
}

/// Waits for the message about this page: a page fault, by a write to what is protected.
fn told_of_write(handle: Userfaultfd, address: u64) -> Result<bool, Error> {
    // SAFETY: the descriptor stays open until the probe's process ends.
    let descriptor = unsafe { BorrowedFd::borrow_raw(handle.0) };
    let mut waiting = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    if poll(&mut waiting, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))? == 0 {
        return Ok(false);
    }
    let mut message = [Message::default()];
    if handle.read(&mut message).map_err(io_error)? == 0 {
        return Ok(false);
    }
    let [message] = message;
    let write = message.flags & abi::PAGEFAULT_FLAG_WP != 0;
    let page = message.address & !(PAGE as u64 - 1);
    Ok(message.event == abi::EVENT_PAGEFAULT && write && page == address)
}
