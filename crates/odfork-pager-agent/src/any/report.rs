//! What the pager says: lines on the program's standard error, and counts in a file at the end.

use core::ffi::c_int;

use odfork_sys::{args, call, raw};

use super::pager::Pager;
use crate::close;
use crate::line::Line;

/// One line on the program's standard error. We hold none of its descriptors: whoever waits for the
/// end of a pipe must not wait for us.
pub fn say(program: c_int, line: &[u8]) {
    let mut path = Line::new();
    path.text(b"/proc/").number(program as u64).text(b"/fd/2\0");
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let open = args![libc::AT_FDCWD, path.bytes().as_ptr(), flags | libc::O_NOCTTY, 0];
    // SAFETY: a path that ends with zero; a descriptor of ours.
    unsafe {
        if let Ok(fd) = call(libc::SYS_openat, open) {
            raw(libc::SYS_write, args![fd, line.as_ptr(), line.len()]);
            close(fd as c_int);
        }
    }
}

impl Pager {
    /// Pages above the limit, and why they stay.
    pub fn tell_excess(&mut self) {
        let mut line = Line::new();
        line.text(b"odfork page: ").number((self.state.resident - self.limit) >> 8);
        line.text(b" MB above the limit of ").number(self.limit >> 8);
        line.text(if self.store.is_full {
            b" MB: the store is full\n".as_slice()
        } else {
            b" MB: shared with children, pinned, locked, or in use faster than they can leave\n"
        });
        say(self.program, line.bytes());
    }

    /// One line of JSON.
    pub fn write_counts(&self, to: c_int) {
        let counts = &self.counts;
        let mut line = Line::new();
        line.text(b"{\"pid\":").number(self.program as u64);
        for (name, value) in [
            (b",\"limit\":".as_slice(), self.limit),
            (b",\"peak\":", counts.peak),
            (b",\"resident\":", self.state.resident),
            (b",\"faults\":", counts.faults),
            (b",\"reclaims\":", counts.reclaims),
            (b",\"page_ins\":", counts.page_ins),
            (b",\"page_outs\":", counts.page_outs),
            (b",\"clean\":", counts.clean),
            (b",\"zeros\":", counts.zeros),
            (b",\"filled\":", counts.filled),
            (b",\"taken\":", counts.taken),
            (b",\"busy\":", counts.busy),
            (b",\"forks\":", counts.forks),
            (b",\"stored\":", self.store.taken),
        ] {
            line.text(name).number(value);
        }
        line.text(b"}\n");
        // SAFETY: valid bytes; a descriptor of ours, or -1.
        unsafe { raw(libc::SYS_write, args![to, line.bytes().as_ptr(), line.bytes().len()]) };
    }
}
