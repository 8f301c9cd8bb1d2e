//! Several reads at once: threads that wait for pages of a file at the same moment wait for one
//! read, not one after the other.
//!
//! By the kernel's asynchronous I/O (io_submit), which reads past the page cache while its caller
//! goes on. Where it cannot be had, each page is read by itself.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, call, Errno};

use super::made;
use super::room::Room;
use crate::kernel_madvise;

/// Most pages at once.
pub const MOST: usize = 32;

/// What the kernel is asked: `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Request {
    data: u64,
    key: u32,
    flags: u32,
    /// 0: a read.
    code: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: u64,
    reserved: u64,
    more: [u32; 2],
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Done {
    data: u64,
    request: u64,
    len: i64,
    error: i64,
}

/// Slots that were read, until others are.
pub struct Together {
    /// Of the kernel; 0: none can be had.
    context: u64,
    buffer: *mut u8,
    /// Whose content is at that place of the buffer; NONE: nobody's.
    slots: [u64; MOST],
}

const NONE: u64 = u64::MAX;

impl Together {
    pub fn new(room: &mut Room) -> Option<Together> {
        let buffer = room.take(MOST * PAGE)?;
        let mut context = 0u64;
        // SAFETY: room for a number.
        let made = match made::is_noted() {
            // Of a program that is adopted nothing may be left behind if that fails.
            true => Err(Errno(libc::ENOSYS)),
            false => unsafe { call(libc::SYS_io_setup, args![MOST, &mut context]) },
        };
        match made {
            Ok(_) => keep_from_children(context as usize),
            Err(_) => context = 0,
        }
        Some(Together { context, buffer, slots: [NONE; MOST] })
    }

    pub fn forget(&mut self) {
        self.slots = [NONE; MOST];
    }

    pub fn content(&self, slot: u64) -> Option<&'static [u8]> {
        let at = self.slots.iter().position(|&one| one == slot)?;
        // SAFETY: a page of the buffer, which changes only by `read`.
        Some(unsafe { core::slice::from_raw_parts(self.buffer.add(at * PAGE), PAGE) })
    }

    /// Reads these slots, at most MOST; which ones came is seen by `content`.
    pub fn read(&mut self, fd: c_int, slots: &[u64]) {
        self.forget();
        if self.context == 0 {
            return;
        }
        let (mut requests, mut list) = ([Request::default(); MOST], [0usize; MOST]);
        for (at, &slot) in slots.iter().enumerate() {
            requests[at] = Request {
                data: at as u64,
                fd: fd as u32,
                buffer: self.buffer as u64 + (at * PAGE) as u64,
                len: PAGE as u64,
                offset: slot * PAGE as u64,
                ..Request::default()
            };
            list[at] = &raw const requests[at] as usize;
        }
        let submit = args![self.context, slots.len(), list.as_ptr()];
        // SAFETY: as many requests as said, each into a page of the buffer.
        let begun = unsafe { call(libc::SYS_io_submit, submit) }.unwrap_or(0);
        let (mut done, mut ended) = ([Done::default(); MOST], 0);
        while ended < begun {
            let left = begun - ended;
            let wait = args![self.context, left, left, done.as_mut_ptr().wrapping_add(ended), 0];
            // SAFETY: room for so many.
            match unsafe { call(libc::SYS_io_getevents, wait) } {
                Ok(more @ 1..) => ended += more,
                // What is read still may come at any time: nothing else is read so.
                _ => {
                    self.context = 0;
                    return;
                }
            }
        }
        for one in &done[..ended] {
            let at = one.data as usize;
            if at < slots.len() && one.len == PAGE as i64 {
                self.slots[at] = slots[at];
            }
        }
    }
}

/// The kernel maps a list of what is done: a child would have as many as there were forks.
fn keep_from_children(list: usize) {
    const HEAD: usize = 32;
    // SAFETY: the kernel's own list begins with two numbers: the second one is of its places.
    let places = unsafe { ((list + 4) as *const u32).read_volatile() } as usize;
    let len = HEAD + places * size_of::<Done>();
    let _ = kernel_madvise(list, len.next_multiple_of(PAGE), libc::MADV_DONTFORK);
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::any::store::file_in;

    #[test]
    fn each_slot_comes_to_its_place() {
        const PAGES: u64 = 40;
        let mut room = Room::new(1 << 20).unwrap();
        let fd = file_in(c"/tmp").unwrap();
        let page = room.take::<u8>(PAGE).unwrap();
        for slot in 0..PAGES {
            // SAFETY: a page of ours, and a file of ours.
            unsafe {
                page.write_bytes(slot as u8 + 1, PAGE);
                call(libc::SYS_pwrite64, args![fd, page, PAGE, slot as usize * PAGE]).unwrap();
            }
        }
        let mut together = Together::new(&mut room).unwrap();
        if together.context == 0 {
            return std::println!("skipped: no asynchronous reads here");
        }
        // The last one is behind the end.
        together.read(fd, &[7, 39, 3, PAGES]);
        for slot in [7u64, 39, 3] {
            let content = together.content(slot).unwrap();
            assert!(content.iter().all(|&byte| byte == slot as u8 + 1));
        }
        assert!(together.content(PAGES).is_none() && together.content(8).is_none());
        together.read(fd, &[8]);
        assert!(together.content(7).is_none() && together.content(8).is_some());
        crate::close(fd);
    }
}
