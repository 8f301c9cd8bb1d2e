//! What the pager says: lines on the program's standard error, and counts in a file.

use core::ffi::{c_int, CStr};

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::pagemap;
use odfork_sys::{args, call, raw};

use super::pager::Pager;
use crate::descriptors::high;
use crate::line::Line;
use crate::proc_lines::{number, Lines};
use crate::saying::say;

/// The number in a line of such a file; 0 without that line. Sizes are in KB.
pub fn status_number(path: &CStr, name: &[u8]) -> u64 {
    let Ok(mut lines) = Lines::open(path) else { return 0 };
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix(name) {
            return number(rest.trim_ascii_start());
        }
    }
    0
}

/// Where others find the counts of this task: a memory file among its descriptors. -1: nowhere.
pub fn status_file() -> c_int {
    let name = c"odfork-page-status".as_ptr();
    // SAFETY: a constant name.
    let made = unsafe { call(libc::SYS_memfd_create, args![name, libc::MFD_CLOEXEC]) };
    made.map_or(-1, |fd| high(fd as c_int))
}

const SECOND: u64 = 1_000_000_000;
/// Time above the limit, before it is told.
const PATIENCE: u64 = SECOND / 5;
const LONGEST_PAUSE: u64 = 3_600 * SECOND;

/// When standing above the limit is told: once, and again when it is more than twice as much, or
/// when the program was below in between. Then a pause is kept, each twice as long as the last.
#[derive(Default)]
pub struct Tellings {
    /// Above since then; 0: it is not.
    above: u64,
    /// The last time, and how many pages it was.
    told: (u64, u64),
    pause: u64,
    /// The least so far of a program that was above it from the beginning; 0 once it was below.
    least: u64,
}

impl Tellings {
    /// Of a program that may have had more before it had a limit: that it comes down takes time.
    pub fn from_above() -> Tellings {
        Tellings { least: u64::MAX, ..Tellings::default() }
    }

    /// So many pages are above it at that time; whether others have just told is asked last.
    pub fn is_due(&mut self, time: u64, excess: u64, may_tell: impl FnOnce() -> bool) -> bool {
        if excess == 0 {
            (self.above, self.least) = (0, 0);
            return false;
        }
        if self.above == 0 || excess < self.least {
            self.least = self.least.min(excess);
            self.above = time;
        }
        let (at, pages) = self.told;
        let is_anew = self.above > at && time >= at + self.pause;
        let is_due = time > self.above + PATIENCE && (is_anew || excess > 2 * pages) && may_tell();
        if is_due {
            self.told = (time, excess);
            self.pause = (2 * self.pause).clamp(SECOND, LONGEST_PAUSE);
        }
        is_due
    }
}

/// What stays in memory above the limit, in pages.
struct Excess {
    /// Shared with children, or pinned: the kernel refused.
    refused: u64,
    locked: u64,
    /// Stacks, data of libraries.
    other: u64,
}

impl Pager {
    fn excess(&self) -> Excess {
        let mut other = 0;
        let mut at = 0;
        while let Some((start, end, fits)) = self.mapping(at) {
            at = end;
            if !fits && !self.is_own(start, end) {
                other += self.count_present(start, end);
            }
        }
        let refused = self.state.refused.pages();
        let locked = status_number(c"/proc/self/status", b"VmLck:") / 4;
        Excess { refused, locked, other }
    }

    fn count_present(&self, start: u64, end: u64) -> u64 {
        let (mut at, mut sum) = (start, 0);
        while at < end {
            let mut found = [pagemap::Region::default(); 64];
            let (count, reached) = self.present(at, end, &mut found);
            sum +=
                found[..count].iter().map(|one| (one.end - one.start) / PAGE as u64).sum::<u64>();
            at = reached;
        }
        sum
    }

    /// So many pages are above the limit: why they stay.
    pub fn tell_excess(&mut self, pages: u64) {
        let excess = self.excess();
        let limit = self.group.limit();
        let mut line = Line::new();
        line.text(b"odfork page: ").number(pages.div_ceil(256));
        line.text(b" MB above the limit of ").number(limit >> 8).text(b" MB: ");
        if self.store.is_full {
            line.text(b"the store is full; ");
        }
        line.number(excess.refused.div_ceil(256)).text(b" MB shared with children or pinned, ");
        line.number(self.state.shared_memory.div_ceil(256)).text(b" MB of shared memory, ");
        line.number(excess.locked.div_ceil(256)).text(b" MB locked, ");
        line.number(excess.other.div_ceil(256)).text(b" MB of stacks and libraries\n");
        say(self.program, line.bytes());
    }

    /// One line of JSON.
    fn counts(&self) -> Line {
        let counts = &self.counts;
        let mut line = Line::new();
        line.text(b"{\"pid\":").number(self.program as u64);
        for (name, value) in [
            (b",\"limit\":".as_slice(), self.group.limit()),
            (b",\"share\":", self.limit),
            (b",\"peak\":", counts.peak),
            (b",\"resident\":", self.state.resident),
            (b",\"faults\":", counts.faults),
            (b",\"reclaims\":", counts.reclaims),
            (b",\"page_ins\":", counts.page_ins),
            (b",\"together\":", counts.together),
            (b",\"ahead\":", counts.ahead),
            (b",\"page_outs\":", counts.page_outs),
            (b",\"clean\":", counts.clean),
            (b",\"zeros\":", counts.zeros),
            (b",\"filled\":", counts.filled),
            (b",\"taken\":", counts.taken),
            (b",\"spared\":", counts.spared),
            (b",\"busy\":", counts.busy),
            (b",\"uncounted\":", self.pool.uncounted),
            (b",\"unshared\":", counts.unshared),
            (b",\"forks\":", counts.forks),
            (b",\"outs\":", counts.outs),
            (b",\"stored\":", self.store.taken),
        ] {
            line.text(name).number(value);
        }
        line
    }

    pub fn write_counts(&self, to: c_int) {
        let mut line = self.counts();
        line.text(b"}\n");
        // SAFETY: valid bytes; a descriptor of ours, or -1.
        unsafe { raw(libc::SYS_write, args![to, line.bytes().as_ptr(), line.bytes().len()]) };
    }

    /// For `page status`: the counts, and why there is more in memory than the limit.
    pub fn publish(&self, to: c_int) {
        let mut line = self.counts();
        let above = self.above_limit();
        if above > 0 {
            let excess = self.excess();
            for (name, value) in [
                (b",\"above\":".as_slice(), above),
                (b",\"refused\":", excess.refused),
                (b",\"shared_memory\":", self.state.shared_memory),
                (b",\"locked\":", excess.locked),
                (b",\"other\":", excess.other),
                (b",\"store_full\":", u64::from(self.store.is_full)),
            ] {
                line.text(name).number(value);
            }
        }
        line.text(b"}\n");
        // One write: a reader sees the old line or the new one, and what is behind its end.
        // SAFETY: valid bytes; a descriptor of ours, or -1.
        unsafe {
            raw(libc::SYS_pwrite64, args![to, line.bytes().as_ptr(), line.bytes().len(), 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coming_down_is_not_told() {
        let mut tellings = Tellings::from_above();
        let mut told = |tenths: u64, excess| tellings.is_due(tenths * SECOND / 10, excess, || true);
        assert!((10..40).all(|tenths| !told(tenths, 100 - tenths)));
        // It stands still.
        assert!(!told(41, 61) && told(43, 61));
        assert!(!told(44, 0) && !told(90, 50) && told(93, 40));
    }

    #[test]
    fn an_excess_is_told_again_when_it_is_another_one() {
        let mut tellings = Tellings::default();
        // Seconds, pages, whether it is told.
        for (time, excess, is_due) in [
            (10.0, 5, false),
            (10.1, 0, false),
            (10.2, 5, false),
            (10.3, 5, false),
            (10.5, 5, true),
            (50.0, 10, false),
            (50.1, 11, true),
            (90.0, 11, false),
            (90.1, 0, false),
            (90.2, 4, false),
            (90.5, 4, true),
            (90.6, 0, false),
            (90.7, 4, false),
            (92.0, 4, false),
            (94.6, 4, true),
        ] {
            let time = (time * SECOND as f64) as u64;
            assert_eq!(tellings.is_due(time, excess, || true), is_due, "{time} {excess}");
        }
    }
}
