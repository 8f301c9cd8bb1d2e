//! userfaultfd(2): one function for each request, the kernel's errors as they are.
//!
//! Owns passing the right structure to each request. It does not own the descriptor, which the
//! caller keeps open, nor what an error means. Errors (Linux 6.18): EEXIST the page is mapped
//! already; ENOENT no such registered range; ESRCH the memory is gone; EFAULT (CONTINUE) nothing in
//! the file at that place; EAGAIN an event has to be read first, or the map is about to change.

use crate::abi::userfaultfd::{
    self as abi, Api, CopyPages, Fill, Message, MovePages, Range, Register, WriteProtect,
};
use crate::{args, call, Errno, SysResult};

/// A userfaultfd by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Userfaultfd(pub i32);

const DEVICE: &core::ffi::CStr = c"/dev/userfaultfd";

/// A new descriptor by the system call. `flags`: O_CLOEXEC, O_NONBLOCK, `USER_MODE_ONLY`.
///
/// # Errors
/// EPERM without privilege, where `vm.unprivileged_userfaultfd` is 0; ENOSYS.
pub fn create(flags: i32) -> SysResult<Userfaultfd> {
    // SAFETY: flags only.
    unsafe { call(libc::SYS_userfaultfd, args![flags]) }.map(|fd| Userfaultfd(fd as i32))
}

/// A new descriptor from the device file (Linux 6.1): allowed to whoever may open it.
///
/// # Errors
/// Those of openat(2), or of the request.
pub fn create_from_device(flags: i32) -> SysResult<Userfaultfd> {
    let open = args![libc::AT_FDCWD, DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0];
    // SAFETY: a constant path; the device's descriptor is ours, used and closed once.
    unsafe {
        let device = call(libc::SYS_openat, open)? as i32;
        let made = create_from(device, flags);
        let _ = call(libc::SYS_close, args![device]);
        made
    }
}

/// The same from a device file that is open already.
///
/// # Errors
/// Those of the request.
pub fn create_from(device: i32, flags: i32) -> SysResult<Userfaultfd> {
    // SAFETY: the argument is flags.
    let made = unsafe { call(libc::SYS_ioctl, args![device, abi::NEW, flags]) };
    made.map(|fd| Userfaultfd(fd as i32))
}

impl Userfaultfd {
    fn request<T>(self, number: u64, argument: &mut T) -> SysResult<()> {
        // SAFETY: every caller passes the structure that belongs to the number.
        unsafe { call(libc::SYS_ioctl, args![self.0, number, argument]) }.map(drop)
    }

    /// Agrees with the kernel on features; the first request, made once.
    ///
    /// # Errors
    /// EINVAL when the kernel lacks one of them.
    pub fn enable(self, features: u64) -> SysResult<()> {
        self.request(abi::API, &mut Api { api: abi::VERSION, features, ioctls: 0 })
    }

    /// Faults in a range of this kind (`REGISTER_MODE_`) are reported.
    ///
    /// # Errors
    /// EINVAL for memory of a kind that cannot be; EBUSY when it is watched by another one.
    pub fn register(self, start: u64, len: u64, mode: u64) -> SysResult<()> {
        let mut register = Register { range: Range { start, len }, mode, ioctls: 0 };
        self.request(abi::REGISTER, &mut register)
    }

    /// Faults in a range are the kernel's again.
    ///
    /// # Errors
    /// EINVAL for memory of a kind that cannot be registered.
    pub fn unregister(self, start: u64, len: u64) -> SysResult<()> {
        self.request(abi::UNREGISTER, &mut Range { start, len })
    }

    /// Moves pages of this very memory without a copy, and wakes who waits for them; the bytes
    /// done, and how it ended. By a task that has the memory. After an error more may have been
    /// moved, which Linux 6.18 neither counts nor wakes anybody for.
    ///
    /// # Errors
    /// EBUSY a page is pinned or shared with a child; ENOENT nothing is there; EEXIST the place is
    /// taken; EINVAL the two mappings differ in kind; EAGAIN with nothing done: an event waits.
    pub fn move_pages(self, dst: u64, src: u64, len: u64) -> (u64, SysResult<()>) {
        let mut pages = MovePages { dst, src, len, mode: 0, moved: 0 };
        let answer = self.request(abi::MOVE, &mut pages);
        (u64::try_from(pages.moved).unwrap_or(0).min(len), answer)
    }

    /// Whoever writes to the range waits (`on`), or goes on.
    ///
    /// # Errors
    /// EAGAIN while the map changes; ENOENT no such registered range.
    pub fn write_protect(self, start: u64, len: u64, on: bool) -> SysResult<()> {
        let mode = if on { abi::WRITEPROTECT_MODE_WP } else { 0 };
        let range = Range { start, len };
        self.request(abi::WRITEPROTECT, &mut WriteProtect { range, mode })
    }

    /// Puts content in place and wakes who waits for it; the bytes done, and how it ended.
    pub fn copy(self, dst: u64, content: &[u8], mode: u64) -> (usize, SysResult<()>) {
        let (src, len) = (content.as_ptr() as u64, content.len() as u64);
        let mut copy = CopyPages { dst, src, len, mode, copied: 0 };
        let answer = self.request(abi::COPY, &mut copy);
        (usize::try_from(copy.copied).unwrap_or(0).min(content.len()), answer)
    }

    /// The same with zeros.
    pub fn zero(self, start: u64, len: u64) -> (u64, SysResult<()>) {
        self.fill(abi::ZEROPAGE, start, len, 0)
    }

    /// Maps the pages of the file that are there and wakes who waits for them.
    pub fn map(self, start: u64, len: u64, mode: u64) -> (u64, SysResult<()>) {
        self.fill(abi::CONTINUE, start, len, mode)
    }

    /// Touching the range is a SIGBUS from now on (Linux 6.6).
    pub fn poison(self, start: u64, len: u64) -> (u64, SysResult<()>) {
        self.fill(abi::POISON, start, len, 0)
    }

    fn fill(self, number: u64, start: u64, len: u64, mode: u64) -> (u64, SysResult<()>) {
        let mut fill = Fill { range: Range { start, len }, mode, done: 0 };
        let answer = self.request(number, &mut fill);
        (u64::try_from(fill.done).unwrap_or(0).min(len), answer)
    }

    /// Lets faults in the range come again.
    ///
    /// # Errors
    /// EINVAL for a descriptor whose features are not agreed on yet.
    pub fn wake(self, start: u64, len: u64) -> SysResult<()> {
        self.request(abi::WAKE, &mut Range { start, len })
    }

    /// Up to `room.len()` messages; 0 when none is there. Never waits, even when the program, which
    /// shares the description, has cleared O_NONBLOCK (Linux 6.10; before that, RWF_NOWAIT is not
    /// known here and a program could make us wait).
    ///
    /// # Errors
    /// The descriptor is none, or its features are not agreed on yet.
    pub fn read(self, room: &mut [Message]) -> SysResult<usize> {
        let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: size_of_val(room) };
        // The position, -1 in two halves: as the file is read.
        let anywhere = [usize::MAX, usize::MAX];
        let by_vector = args![self.0, &part, 1, anywhere[0], anywhere[1], libc::RWF_NOWAIT];
        // SAFETY: messages are plain data of the kernel's layout.
        let mut got = unsafe { call(libc::SYS_preadv2, by_vector) };
        if got == Err(Errno(libc::EOPNOTSUPP)) {
            // SAFETY: as above.
            got = unsafe { call(libc::SYS_read, args![self.0, part.iov_base, part.iov_len]) };
        }
        match got {
            Ok(bytes) => Ok(bytes / size_of::<Message>()),
            Err(Errno(libc::EAGAIN)) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::abi::userfaultfd::{EVENT_PAGEFAULT, REGISTER_MODE_MISSING, USER_MODE_ONLY};

    #[test]
    fn a_missing_page_is_reported_and_filled() {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        let uffd = match create(flags) {
            Ok(uffd) => uffd,
            Err(error) => return std::println!("skipped: userfaultfd: {error:?}"),
        };
        assert_eq!(uffd.read(&mut [Message::default()]), Err(Errno(libc::EINVAL)));
        uffd.enable(0).unwrap();
        // SAFETY: a fresh mapping of one page; unmapped once, at the end.
        let page = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            call(libc::SYS_mmap, args![0, 4096, prot, flags, -1, 0]).unwrap()
        };
        uffd.register(page as u64, 4096, REGISTER_MODE_MISSING).unwrap();
        // SAFETY: the page stays mapped until the thread has ended.
        let toucher = std::thread::spawn(move || unsafe { (page as *const u8).read_volatile() });
        let mut message = [Message::default()];
        while uffd.read(&mut message).unwrap() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(message[0].event, EVENT_PAGEFAULT);
        assert_eq!(message[0].address & !4095, page as u64);
        assert_eq!(uffd.copy(page as u64, &[7; 4096], 0), (4096, Ok(())));
        assert_eq!(toucher.join().unwrap(), 7);
        assert_eq!(uffd.zero(page as u64, 4096).1, Err(Errno(libc::EEXIST)));
        // SAFETY: both are ours and not used any more.
        unsafe {
            call(libc::SYS_close, args![uffd.0]).unwrap();
            call(libc::SYS_munmap, args![page, 4096]).unwrap();
        }
    }
}
