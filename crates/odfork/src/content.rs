//! Filling a fresh anonymous mapping with the content of other memory.
//!
//! Owns how: pages of zeros stay untouched, as they would be on stock. The others are put in place
//! by userfaultfd where that is to be had, which spares zeroing them first and a fault for each:
//! 0.48 ms for 2 MB, where touching takes 0.80. Runs in the helper task.

use crate::args;
use crate::sys::abi::userfaultfd as abi;
use crate::sys::userfaultfd::Userfaultfd;
use crate::sys::{self, Kernel, PAGE};

/// A mapping that nobody has touched, while it is filled.
pub struct Filling {
    /// Its pages are put in place by that descriptor.
    uffd: Option<Userfaultfd>,
}

impl Filling {
    /// Of a fresh anonymous mapping of so many bytes.
    pub fn of(k: &Kernel, fresh: usize, len: usize) -> Self {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | abi::USER_MODE_ONLY;
        // SAFETY: flags only.
        let made = unsafe { k.call(libc::SYS_userfaultfd, args![flags]) };
        let mut filling = Filling { uffd: made.ok().map(|fd| Userfaultfd(fd as i32)) };
        let register = |uffd: Userfaultfd| {
            uffd.enable(0)?;
            uffd.register(fresh as u64, len as u64, abi::REGISTER_MODE_MISSING)
        };
        if filling.uffd.is_some_and(|uffd| register(uffd).is_err()) {
            filling.close();
        }
        filling
    }

    /// Copies whole pages.
    ///
    /// # Safety
    /// `from` is readable; `to` is its place in the mapping, and untouched.
    pub unsafe fn copy(&mut self, from: usize, to: usize, len: usize) {
        let mut at = 0;
        while at < len {
            // SAFETY: readable, says the caller.
            let run = |zero: bool| {
                let ends = |page: &usize| unsafe { is_zero(from + page) } != zero;
                (at..len).step_by(PAGE).find(ends).unwrap_or(len)
            };
            let next = run(true);
            if next > at {
                at = next;
                continue;
            }
            let end = run(false);
            // SAFETY: as the caller says of all of it.
            unsafe { self.put(from + at, to + at, end - at) };
            at = end;
        }
    }

    unsafe fn put(&mut self, from: usize, to: usize, len: usize) {
        let mut done = 0;
        if let Some(uffd) = self.uffd {
            // SAFETY: readable, says the caller; the kernel reads it.
            let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, len) };
            done = uffd.copy(to as u64, bytes, 0).0;
        }
        if done < len {
            // Touching it would wait for ever while it is watched.
            self.close();
            // SAFETY: says the caller.
            unsafe { sys::copy(from + done, to + done, len - done) };
        }
    }

    fn close(&mut self) {
        if let Some(uffd) = self.uffd.take() {
            crate::scan::close(uffd.0);
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.close();
    }
}

/// # Safety
/// A readable page.
unsafe fn is_zero(page: usize) -> bool {
    // SAFETY: aligned, and readable, says the caller.
    let words = unsafe { core::slice::from_raw_parts(page as *const u64, PAGE / 8) };
    words.chunks(8).all(|part| part.iter().fold(0, |all, word| all | word) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Fault, Trace};

    #[test]
    fn content_is_whole_and_zeros_take_no_memory() {
        let (trace, flags) = (Trace::new(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let fails = Fault::Nth { nth: 1, onward: true, errno: libc::ENOSYS };
        for fault in [Fault::None, fails] {
            let kernel = Kernel::new(&trace, fault);
            // SAFETY: two fresh mappings of six pages, which nobody else knows.
            unsafe {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                let from = sys::mmap(0, 6 * PAGE, prot, flags).unwrap();
                let to = sys::mmap(0, 6 * PAGE, prot, flags).unwrap();
                for page in [1, 2, 5] {
                    *((from + page * PAGE + 4088) as *mut u8) = page as u8;
                }
                Filling::of(&kernel, to, 6 * PAGE).copy(from, to, 6 * PAGE);
                let mut there = [0u8; 6];
                let asked = libc::mincore(to as *mut _, 6 * PAGE, there.as_mut_ptr());
                assert_eq!((asked, there.map(|page| page & 1)), (0, [0, 1, 1, 0, 0, 1]));
                for at in (0..6 * PAGE).step_by(8) {
                    assert_eq!(*((from + at) as *const u64), *((to + at) as *const u64));
                }
                sys::munmap(from, 6 * PAGE);
                sys::munmap(to, 6 * PAGE);
            }
        }
    }
}
