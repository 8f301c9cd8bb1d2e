//! Probes for the image file: a huge one as root, through a user namespace, in a memfd, in a
//! directory; a small one.
//!
//! Each makes the file the way the library does, writes a byte and looks at what came: a 2 MB page
//! shows as 512 resident 4 KB pages after one write, and as a whole mapping in smaps. Runs in a
//! throw-away child (`child`).

use std::ffi::c_void;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{ftruncate, memfd_create, openat, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use rustix::mount::{
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, FsMountFlags, FsOpenFlags,
    MountAttrFlags,
};
use rustix::process::{geteuid, getgid, getuid};
use rustix::thread::UnshareFlags;

use odfork_sys::directory;

use super::{Mark, Seen};
use crate::options::IMAGE_DIR;

const HUGE: usize = 2 << 20;
const SMALL: usize = 4096;

/// The step that failed and how.
struct Failure {
    step: &'static str,
    cause: String,
}

impl From<Failure> for Seen {
    fn from(failure: Failure) -> Seen {
        Seen::no(format!("{}: {}", failure.step, failure.cause))
    }
}

fn at<E: std::fmt::Display>(step: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| Failure { step, cause: error.to_string() }
}

/// Mounts a tmpfs that is attached nowhere and opens an unnamed file in it.
pub fn huge_as_root() -> Seen {
    huge_file().and_then(|file| judge(&file)).unwrap_or_else(Seen::from)
}

/// The same as an ordinary user: in a user namespace and a mount namespace of its own.
pub fn huge_in_user_namespace() -> Seen {
    let entered = enter_namespaces().and_then(|()| huge_file());
    entered.and_then(|file| judge(&file)).unwrap_or_else(Seen::from)
}

/// A memfd, written and read back through a private mapping.
pub fn small() -> Seen {
    small_file().unwrap_or_else(Seen::from)
}

fn huge_file() -> Result<OwnedFd, Failure> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(at("fsopen"))?;
    fsconfig_set_string(context.as_fd(), c"huge", c"always").map_err(at("huge=always"))?;
    fsconfig_create(context.as_fd()).map_err(at("fsconfig"))?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .map_err(at("fsmount"))?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(mount.as_fd(), c".", flags, Mode::RUSR | Mode::WUSR).map_err(at("O_TMPFILE"))
}

fn enter_namespaces() -> Result<(), Failure> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    // SAFETY: no descriptor table is unshared, and the child has one thread, so nobody relies on
    // the old namespaces.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
        .map_err(at("unshare"))?;
    fs::write("/proc/self/setgroups", "deny").map_err(at("setgroups"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).map_err(at("uid_map"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).map_err(at("gid_map"))
}

/// Writes a byte and looks at how much memory came with it, and how it is mapped privately, as the
/// library maps it.
fn judge(file: &OwnedFd) -> Result<Seen, Failure> {
    ftruncate(file, HUGE as u64).map_err(at("ftruncate"))?;
    let shared = aligned_mapping(file, MapFlags::SHARED).map_err(at("mmap"))?;
    // Counts where shmem_enabled is advise.
    // SAFETY: as below; without effect on content.
    unsafe { libc::madvise(shared, HUGE, libc::MADV_HUGEPAGE) };
    // SAFETY: `shared` is a writable mapping of HUGE bytes made just now.
    unsafe { ptr::write_volatile(shared.cast::<u8>(), 1) };
    let resident = resident_pages(shared)?;
    if resident < HUGE / SMALL {
        return Ok(Seen::partly(format!(
            "works, but with 4 KB pages ({resident} came, no free 2 MB page)"
        )));
    }
    let private = aligned_mapping(file, MapFlags::PRIVATE).map_err(at("mmap"))?;
    // SAFETY: `private` is a readable mapping of HUGE bytes made just now.
    let byte = unsafe { ptr::read_volatile(private.cast::<u8>()) };
    match mapped_whole(private as usize) {
        _ if byte != 1 => Ok(Seen::no("the private mapping does not show what was written")),
        Some(false) => Ok(Seen::partly("a 2 MB page came, but is not mapped as one")),
        Some(true) => Ok(Seen::yes("a 2 MB page came, and is mapped as one")),
        None => Ok(Seen::yes("a 2 MB page came")),
    }
}

/// Reserves enough to find a 2 MB boundary, and maps the file there.
fn aligned_mapping(file: &OwnedFd, kind: MapFlags) -> Result<*mut c_void, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh reservation at an address of the kernel's choice, then a mapping placed
    // wholly inside it. Both live until the probe's process ends.
    unsafe {
        let reserved =
            mmap_anonymous(ptr::null_mut(), 2 * HUGE, ProtFlags::empty(), MapFlags::PRIVATE)?;
        let start = (reserved as usize).next_multiple_of(HUGE) as *mut c_void;
        mmap(start, HUGE, access, kind | MapFlags::FIXED, file, 0)
    }
}

fn resident_pages(start: *mut c_void) -> Result<usize, Failure> {
    let mut pages = vec![0u8; HUGE / SMALL];
    // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
    if unsafe { libc::mincore(start, HUGE, pages.as_mut_ptr()) } != 0 {
        return Err(at("mincore")(std::io::Error::last_os_error()));
    }
    Ok(pages.iter().filter(|page| **page & 1 == 1).count())
}

/// Reads smaps for the mapping that starts here: is a huge page mapped by one entry? None when
/// smaps does not tell.
fn mapped_whole(start: usize) -> Option<bool> {
    let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    lines.next()?;
    let own =
        lines.take_while(|line| line.split_once(':').is_some_and(|(name, _)| !name.contains('-')));
    let mut amounts = own
        .filter(|line| line.starts_with("ShmemPmdMapped:") || line.starts_with("FilePmdMapped:"))
        .peekable();
    amounts.peek()?;
    Some(amounts.any(|line| !line.ends_with(" 0 kB")))
}

/// A memfd of huge pages: by the setting alone, or where a mapping asks first.
pub fn huge_memfd() -> Seen {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = fs::read_to_string(SETTING).unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("unknown");
    match chosen {
        "always" | "within_size" | "force" | "advise" => {}
        _ => return Seen::no(format!("shmem_enabled {chosen}")),
    }
    memfd().map_err(at("memfd_create")).and_then(|file| judge(&file)).unwrap_or_else(Seen::from)
}

/// As the library makes one.
fn memfd() -> Result<OwnedFd, Errno> {
    let plain = MemfdFlags::CLOEXEC;
    match memfd_create(c"odfork-check", plain | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(c"odfork-check", plain),
        other => other,
    }
}

/// The directory of `ODFORK_IMAGE_DIR`, judged as the library judges it.
pub fn in_directory() -> Seen {
    match std::env::var_os(IMAGE_DIR).filter(|path| !path.is_empty()) {
        None => Seen::partly(format!("{IMAGE_DIR} is not set")),
        Some(path) => try_directory(path.as_ref()).unwrap_or_else(Seen::from),
    }
}

fn try_directory(path: &Path) -> Result<Seen, Failure> {
    let flags = OFlags::from_bits_retain(directory::DIRECTORY_FLAGS as u32);
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(at("open"))?;
    let (stat, fs) = (
        rustix::fs::fstat(&folder).map_err(at("fstat"))?,
        rustix::fs::fstatvfs(&folder).map_err(at("statvfs"))?,
    );
    let kind = rustix::fs::fstatfs(&folder).map_err(at("statfs"))?.f_type;
    let facts = directory::Facts {
        owner: stat.st_uid,
        mode: stat.st_mode,
        kind,
        flags: fs.f_flag.bits() as i64,
        blocks: fs.f_blocks,
    };
    if let Some(objection) = facts.objection(geteuid().as_raw()) {
        return Ok(Seen::no(objection.words()));
    }
    let flags = OFlags::from_bits_retain(directory::OPEN_FLAGS as u32);
    let file = openat(folder.as_fd(), c".", flags, Mode::RUSR | Mode::WUSR);
    let seen = judge(&file.map_err(at("O_TMPFILE"))?)?;
    Ok(match seen.mark {
        Mark::Yes => seen,
        _ => Seen::no(directory::Objection::SmallPages.words()),
    })
}

fn small_file() -> Result<Seen, Failure> {
    let file = memfd().map_err(at("memfd_create"))?;
    ftruncate(&file, HUGE as u64).map_err(at("ftruncate"))?;
    rustix::io::pwrite(&file, b"image", 0).map_err(at("pwrite"))?;
    let private = aligned_mapping(&file, MapFlags::PRIVATE).map_err(at("mmap"))?;
    // SAFETY: a readable, writable mapping of HUGE bytes; the slice is gone before the write.
    let same = unsafe { std::slice::from_raw_parts(private.cast::<u8>(), 5) } == b"image";
    // SAFETY: as above.
    unsafe { ptr::write_volatile(private.cast::<u8>(), 0) };
    let mut kept = [0u8; 5];
    rustix::io::pread(&file, &mut kept, 0).map_err(at("pread"))?;
    if !same || &kept != b"image" {
        return Ok(Seen::no("a private mapping of it does not keep the image apart"));
    }
    Ok(Seen::yes("written, mapped privately and kept apart"))
}
