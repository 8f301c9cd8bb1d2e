//! Going into a place: namespaces, filters and privileges of this process, before it executes.
//!
//! Owns: the order of the steps. Filters come before privileges go, because who has given up
//! privileges may not filter without no-new-privileges. `enter` makes plain system calls only: it
//! runs between fork and exec.

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;
use std::sync::Arc;

use seccompiler::BpfProgram;

use crate::filters::{compile, Numbers};
use crate::host::SharedMemory;
use crate::mode::UNPRIVILEGED;
use crate::places::{Device, Place, PASSED_IN};

/// A place that can be gone into.
#[derive(Clone)]
pub struct Confinement {
    pub place: &'static Place,
    filters: Vec<BpfProgram>,
    passed_in: CString,
    /// What the host has set as long as somebody may be there.
    _host: Arc<SharedMemory>,
}

/// Capabilities that any kernel has.
const CAPABILITIES: u64 = 64;

impl Confinement {
    /// Makes everything that needs memory.
    pub fn prepare(place: &'static Place) -> Result<Confinement, String> {
        let mut filters = Vec::new();
        if !place.filters.is_empty() {
            let numbers = Numbers::read()?;
            for filter in place.filters {
                filters.push(compile(filter, &numbers)?);
            }
        }
        let host = SharedMemory::set(if place.advise { "advise" } else { "never" })?;
        let passed_in = CString::new(PASSED_IN).map_err(|error| error.to_string())?;
        Ok(Confinement { place, filters, passed_in, _host: Arc::new(host) })
    }

    /// Puts the calling process there, for good.
    ///
    /// CHILD: straight-line system calls, no heap, no locks.
    pub fn enter(&self) -> io::Result<()> {
        let place = self.place;
        if place.directory || place.device == Device::User {
            enter_mount_namespace()?;
        }
        if place.directory {
            let options = c"huge=always,size=0,mode=1777";
            mount_tmpfs(&self.passed_in, options)?;
        }
        if place.device == Device::User {
            give_device(place.user)?;
        }
        if place.user_namespace {
            become_user(UNPRIVILEGED)?;
            enter_user_namespace()?;
        }
        if place.device == Device::Nobody {
            hide_devices(place.user_namespace)?;
        }
        if place.no_new_privileges {
            // SAFETY: takes no pointers.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        }
        for filter in &self.filters {
            install(filter)?;
        }
        bound(place.capabilities);
        if place.user != 0 && !place.user_namespace {
            become_user(place.user)?;
        }
        limit(place.capabilities)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: no pointers but null.
    unsafe {
        check(libc::setgroups(0, ptr::null()))?;
        check(libc::setresgid(id, id, id))?;
        check(libc::setresuid(id, id, id))
    }
}

/// A user namespace in which this user, the unprivileged one, is root, and a mount namespace.
fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers. Who changes users loses its own files of /proc without the first.
    unsafe {
        check(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0))?;
        check(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS))?;
    }
    write(c"/proc/self/setgroups", b"deny")?;
    const { assert!(UNPRIVILEGED == 65534) };
    write(c"/proc/self/uid_map", b"0 65534 1")?;
    write(c"/proc/self/gid_map", b"0 65534 1")
}

fn write(path: &CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: a path and a buffer of the length told; the descriptor is closed.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(fd)?;
        let written = libc::write(fd, text.as_ptr().cast(), text.len());
        let error = io::Error::last_os_error();
        libc::close(fd);
        if written < 0 {
            return Err(error);
        }
    }
    Ok(())
}

fn enter_mount_namespace() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    make_private()
}

/// No mount made from here on is seen elsewhere.
fn make_private() -> io::Result<()> {
    let none = ptr::null();
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: static strings and null pointers.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, private, none.cast()) })
}

fn mount_tmpfs(at: &CStr, options: &CStr) -> io::Result<()> {
    let kind = c"tmpfs".as_ptr();
    // SAFETY: strings that live on.
    check(unsafe { libc::mount(kind, at.as_ptr(), kind, 0, options.as_ptr().cast()) })
}

/// As a rule of udev does: a node of the device for this group, in place of the kernel's.
fn give_device(group: u32) -> io::Result<()> {
    let (device, node, none) = (c"/dev/userfaultfd", c"/mnt/userfaultfd", ptr::null());
    mount_tmpfs(c"/mnt", c"mode=0755")?;
    // SAFETY: static strings, null pointers, plain data for the kernel to fill.
    unsafe {
        let mut kernels: libc::stat = std::mem::zeroed();
        check(libc::stat(device.as_ptr(), &mut kernels))?;
        check(libc::mknod(node.as_ptr(), libc::S_IFCHR, kernels.st_rdev))?;
        check(libc::chown(node.as_ptr(), 0, group))?;
        check(libc::chmod(node.as_ptr(), 0o660))?;
        check(libc::mount(node.as_ptr(), device.as_ptr(), none, libc::MS_BIND, none.cast()))
    }
}

/// Where there is no device of userfaultfd: `/dev/null` is in its place.
fn hide_devices(in_namespace: bool) -> io::Result<()> {
    let (device, null) = (c"/dev/userfaultfd", c"/dev/null");
    let none = ptr::null();
    // SAFETY: static strings and null pointers.
    unsafe {
        if libc::access(device.as_ptr(), libc::F_OK) != 0 {
            return Ok(());
        }
        if !in_namespace {
            check(libc::unshare(libc::CLONE_NEWNS))?;
        }
        make_private()?;
        check(libc::mount(null.as_ptr(), device.as_ptr(), none, libc::MS_BIND, none.cast()))
    }
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: a filter that lives on; by prctl, because few lists allow seccomp(2).
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) })
}

/// Who executes as root gets these and no more.
fn bound(capabilities: u64) {
    for bit in (0..CAPABILITIES).filter(|bit| capabilities >> bit & 1 == 0) {
        // SAFETY: takes no pointers. The kernel refuses bits it does not know.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, bit, 0, 0, 0) };
    }
}

/// `capset`, with the layout of its version 3.
fn limit(capabilities: u64) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let (header, mut data) = ([VERSION_3, 0u32], [[0u32; 3]; 2]);
    // SAFETY: arrays of the sizes that version 3 has.
    unsafe {
        check(libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) as i32)?;
        for (half, [effective, permitted, inheritable]) in data.iter_mut().enumerate() {
            let keep = (capabilities >> (32 * half)) as u32;
            *permitted &= keep;
            *effective &= keep;
            *inheritable = 0;
        }
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) as i32)
    }
}
