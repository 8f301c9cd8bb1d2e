//! Probes for kernel calls that make freezing and folding faster or possible with threads.
//!
//! The numbers and structures are those of the kernel's user interface (linux/fs.h, linux/userfaultfd.h); each probe
//! checks the effect of the call, not only its return value. Runs in a throw-away child (`child`).

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};

use super::Seen;

const PAGE: usize = 4096;

/// The kernel's encoding of an ioctl that reads and writes a structure of `size` bytes.
const fn iowr(kind: u8, number: u8, size: usize) -> libc::Ioctl {
    ((3 << 30) | ((size as u64) << 16) | ((kind as u64) << 8) | number as u64) as libc::Ioctl
}

fn ioctl<T>(fd: RawFd, request: libc::Ioctl, argument: &mut T) -> Result<c_int, Error> {
    // SAFETY: every request below encodes the size of T, and T holds no pointers but to live memory of this function's
    // callers, so the kernel reads and writes only what is ours.
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

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Writes one page of four and asks which are present.
pub fn pagemap_scan() -> Seen {
    const PAGE_IS_PRESENT: u64 = 1 << 3;
    let (start, pagemap) = match (anonymous(4), File::open("/proc/self/pagemap")) {
        (Ok(start), Ok(pagemap)) => (start as usize, pagemap),
        (Err(error), _) => return failed("mmap", &error),
        (_, Err(error)) => return failed("/proc/self/pagemap", &error),
    };
    // SAFETY: the second of four writable pages.
    unsafe { ptr::write_volatile((start + PAGE) as *mut u8, 1) };
    let mut regions = [[0u64; 3]; 4];
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        start: start as u64,
        end: (start + 4 * PAGE) as u64,
        regions: regions.as_mut_ptr() as u64,
        region_count: regions.len() as u64,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..ScanArgument::default()
    };
    match ioctl(pagemap.as_raw_fd(), iowr(b'f', 16, size_of::<ScanArgument>()), &mut argument) {
        Err(error) => failed("ioctl", &error),
        Ok(1) if regions[0][..2] == [(start + PAGE) as u64, (start + 2 * PAGE) as u64] => {
            Seen::yes("found the one page written of four")
        }
        Ok(count) => Seen::no(format!("gave {count} regions where one was expected")),
    }
}

/// `struct procmap_query`; the last 32 bytes (device, name, build id) stay zero.
#[repr(C)]
#[derive(Default)]
struct MapQuery {
    size: u64,
    flags: u64,
    address: u64,
    vma_start: u64,
    vma_end: u64,
    rest: [u64; 8],
}

/// Asks for the mapping around an address known to be mapped.
pub fn procmap_query() -> Seen {
    let (start, maps) = match (anonymous(4), File::open("/proc/self/maps")) {
        (Ok(start), Ok(maps)) => (start as u64, maps),
        (Err(error), _) => return failed("mmap", &error),
        (_, Err(error)) => return failed("/proc/self/maps", &error),
    };
    let mut query =
        MapQuery { size: size_of::<MapQuery>() as u64, address: start + 1, ..MapQuery::default() };
    match ioctl(maps.as_raw_fd(), iowr(b'f', 17, size_of::<MapQuery>()), &mut query) {
        Err(error) => failed("ioctl", &error),
        Ok(_) if query.vma_start <= start && query.vma_end >= start + 4 * PAGE as u64 => {
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
    // SAFETY: a fresh private mapping of one page of our file, written, and moved by the kernel to a place it chooses;
    // both stay mapped until the probe's process ends.
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
        // The fifth argument counts with DONTUNMAP alone too (a hint that must be aligned, seen on 6.18); a caller who
        // leaves it out passes what the register happens to hold.
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

const UFFD: u8 = 0xAA;
const USER_MODE_ONLY: c_int = 1;
/// UFFDIO_API, _REGISTER and _WRITEPROTECT with their structures as words.
type ApiWords = [u64; 3];
type RegisterWords = [u64; 4];
type ProtectWords = [u64; 3];
const WRITE_PROTECT_FAULTS: u64 = 1;
const MODE_WRITE_PROTECT: u64 = 2;

/// Protects a page, lets the kernel write into it for a second thread (`read(2)`), and expects the fault to be told.
pub fn userfaultfd() -> Seen {
    match open_userfaultfd(0).or_else(|_| from_device()) {
        Ok(handle) => {
            held_back_write(&handle).unwrap_or_else(|error| failed("write-protect", &error))
        }
        Err(refused) => match open_userfaultfd(USER_MODE_ONLY) {
            Ok(_) => Seen::partly("only for writes of the program itself"),
            Err(_) => failed("userfaultfd", &refused),
        },
    }
}

fn open_userfaultfd(extra: c_int) -> Result<OwnedFd, Error> {
    // SAFETY: a call with one flag word; the descriptor it returns is ours alone.
    match unsafe {
        libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | extra)
    } {
        -1 => Err(Error::last_os_error()),
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
    }
}

/// The device node hands out the full kind to whoever may open it.
fn from_device() -> Result<OwnedFd, Error> {
    let device = File::options().read(true).write(true).open("/dev/userfaultfd")?;
    const NEW: libc::Ioctl = (UFFD as libc::Ioctl) << 8;
    // SAFETY: the argument is a flag word; the descriptor it returns is ours alone.
    match unsafe { libc::ioctl(device.as_raw_fd(), NEW, libc::O_CLOEXEC | libc::O_NONBLOCK) } {
        -1 => Err(Error::last_os_error()),
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

fn held_back_write(handle: &OwnedFd) -> Result<Seen, Error> {
    let fd = handle.as_raw_fd();
    let page = anonymous(1)?;
    // SAFETY: one writable page; populated, so that there is an entry to protect.
    unsafe { ptr::write_volatile(page.cast::<u8>(), b'o') };
    let (address, length) = (page as u64, PAGE as u64);
    ioctl::<ApiWords>(
        fd,
        iowr(UFFD, 0x3F, size_of::<ApiWords>()),
        &mut [u64::from(UFFD), WRITE_PROTECT_FAULTS, 0],
    )?;
    ioctl::<RegisterWords>(
        fd,
        iowr(UFFD, 0, size_of::<RegisterWords>()),
        &mut [address, length, MODE_WRITE_PROTECT, 0],
    )?;
    let protect = |mode| {
        ioctl::<ProtectWords>(
            fd,
            iowr(UFFD, 6, size_of::<ProtectWords>()),
            &mut [address, length, mode],
        )
    };
    protect(1)?;
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
    protect(0)?;
    let arrived = kernel_write.join().is_ok_and(|count| count == 1);
    Ok(match (told, held, arrived) {
        (true, true, true) => Seen::yes("held back a write made by the kernel"),
        (false, _, _) => Seen::no("a write to a protected page was not told"),
        _ => Seen::no("a write to a protected page was not held back"),
    })
}

/// Waits for the message about this page: event 0x12 (page fault), flags with bit 1 (write-protect), its address.
fn told_of_write(handle: &OwnedFd, address: u64) -> Result<bool, Error> {
    let mut waiting = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    if poll(&mut waiting, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))? == 0 {
        return Ok(false);
    }
    let mut message = [0u8; 32];
    File::from(handle.try_clone()?).read_exact(&mut message)?;
    let word = |at: usize| {
        message[at..at + 8].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
    };
    Ok(message[0] == 0x12 && word(8) & 2 != 0 && word(16) & !(PAGE as u64 - 1) == address)
}
