//! What kind of file a descriptor is of, as the kernel says it without opening the file or asking a
//! server.
//!
//! Owns the question, and which devices and file systems behave how. Runs in the helper, and in the
//! program's threads.

use core::ffi::CStr;

use crate::args;
use crate::sys::{self, Errno, Fault, Kernel, Trace};

/// What the kernel says of a file without opening it, or asking a server.
pub struct File {
    pub kind: u32,
    device: u32,
    minor: u32,
    /// Its file system can keep a file from being changed: it is one of this machine's, of pages.
    is_local: bool,
    /// The device of its file system.
    on: (u32, u32),
    pub inode: u64,
}

/// `None` where there is no such file.
pub fn file(kernel: &Kernel, folder: i32, name: &CStr) -> Option<File> {
    let how = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let wanted = libc::STATX_TYPE | libc::STATX_INO;
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    let (answer, st) = unsafe {
        let mut st: libc::statx = core::mem::zeroed();
        let a = args![folder, name.as_ptr(), how, wanted, &mut st];
        (kernel.call(libc::SYS_statx, a), st)
    };
    if !matches!(answer, Err(Errno(libc::ENOSYS | libc::EPERM))) {
        let kind = u32::from(st.stx_mode) & libc::S_IFMT;
        let (device, minor) = (st.stx_rdev_major, st.stx_rdev_minor);
        let is_local = st.stx_attributes_mask & libc::STATX_ATTR_IMMUTABLE as u64 != 0;
        let on = (st.stx_dev_major, st.stx_dev_minor);
        let file = File { kind, device, minor, is_local, on, inode: st.stx_ino };
        return answer.is_ok().then_some(file);
    }
    // A filter forbids it. SAFETY: as above.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        let a = args![folder, name.as_ptr(), &mut st, libc::AT_EMPTY_PATH];
        let found = sys::raw(libc::SYS_newfstatat, a) == 0;
        let (device, minor) = (libc::major(st.st_rdev), libc::minor(st.st_rdev));
        let kind = st.st_mode & libc::S_IFMT;
        let on = (libc::major(st.st_dev), libc::minor(st.st_dev));
        found.then_some(File { kind, device, minor, is_local: false, on, inode: st.st_ino })
    }
}

/// Memory devices (`/dev/random`, `/dev/zero`).
const MEMORY: u32 = 1;
/// Of these, the ones that give and take as much as they are asked for: `zero`, `full`, `random`,
/// `urandom`. Not `kmsg`, which gives a line.
const ENDLESS: [u32; 4] = [5, 7, 8, 9];
/// Devices of many kinds, by their numbers; of these `net/tun` and `fuse`.
const OTHERS: u32 = 10;
const CALM: [u32; 2] = [200, 229];
const INPUT: u32 = 13;

/// What reads from that descriptor may reach memory behind the page tables, though nobody asked for
/// it. What cannot be told may.
pub fn is_served(fd: i32) -> bool {
    let file = file(&Kernel::new(&Trace::new(), Fault::None), fd, c"");
    file.is_none_or(|file| file.is_served() && !(file.is_of(libc::S_IFREG) && is_of_kernel(fd)))
}

/// The file is made of what the kernel knows. This asks its server, if it has one: not for the
/// helper.
fn is_of_kernel(fd: i32) -> bool {
    const KINDS: [i64; 6] = [
        libc::PROC_SUPER_MAGIC,
        libc::SYSFS_MAGIC,
        libc::CGROUP_SUPER_MAGIC,
        libc::CGROUP2_SUPER_MAGIC,
        libc::DEBUGFS_MAGIC,
        libc::TRACEFS_MAGIC,
    ];
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    unsafe {
        let mut about: libc::statfs = core::mem::zeroed();
        sys::raw(libc::SYS_fstatfs, args![fd, &mut about]) == 0 && KINDS.contains(&about.f_type)
    }
}

impl File {
    /// A memory device or a terminal.
    pub fn only_copies(&self) -> bool {
        matches!(self.device, 1 | 4 | 5 | 136..=143)
    }

    pub fn is_served(&self) -> bool {
        match self.kind {
            libc::S_IFREG => !self.is_local,
            libc::S_IFCHR => !self.only_copies(),
            _ => false,
        }
    }

    /// In the same file system.
    pub fn is_beside(&self, other: &File) -> bool {
        self.on == other.on
    }

    pub fn is_of(&self, kind: u32) -> bool {
        self.kind == kind
    }

    /// A terminal, or a device whose driver may answer as terminals do. Those that do not: memory,
    /// tunnels, `/dev/fuse`, input. Serial lines have many numbers, some not fixed.
    pub fn is_like_terminal(&self) -> bool {
        let is_calm = match self.device {
            MEMORY | INPUT => true,
            OTHERS => CALM.contains(&self.minor),
            _ => false,
        };
        self.is_of(libc::S_IFCHR) && !is_calm
    }

    pub fn is_endless(&self) -> bool {
        self.is_of(libc::S_IFCHR) && self.device == MEMORY && ENDLESS.contains(&self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: u32, device: u32, minor: u32) -> File {
        File { kind, device, minor, is_local: true, on: (0, 0), inode: 0 }
    }

    #[test]
    fn serial_lines_are_like_terminals() {
        let like = |device| file(libc::S_IFCHR, device, 0).is_like_terminal();
        // Consoles, pseudo terminals, USB modems and adapters, serial ports of boards, hypervisors.
        assert!([4, 5, 10, 136, 166, 188, 204, 229].into_iter().all(like));
        assert!(![1, 13].into_iter().any(like));
        assert!(!file(libc::S_IFCHR, 10, 229).is_like_terminal());
        assert!(!file(libc::S_IFSOCK, 4, 0).is_like_terminal());
    }

    #[test]
    fn a_log_has_lines_and_zeros_have_no_end() {
        let ends = |minor| !file(libc::S_IFCHR, 1, minor).is_endless();
        assert!([1, 3, 11].into_iter().all(ends) && ![5, 9].into_iter().any(ends));
    }

    #[test]
    #[cfg(not(miri))]
    fn devices_and_files_of_servers_are_served() {
        use std::os::fd::AsRawFd;
        let is = |path| is_served(std::fs::File::open(path).unwrap().as_raw_fd());
        assert!(!is("/dev/null") && !is("/dev/zero") && !is("/dev/shm"));
        assert!(!is("/proc/self/maps") && is_served(-1));
        let of = |is_local| File { is_local, ..file(libc::S_IFREG, 0, 0) };
        assert!(of(false).is_served() && !of(true).is_served());
        assert!(
            file(libc::S_IFCHR, 10, 232).is_served() && !file(libc::S_IFSOCK, 0, 0).is_served()
        );
    }
}
