//! Filters of system calls that the program puts on itself. They may kill for the calls that a
//! pager is started by, so children that are forked behind one have none.
//!
//! A filter set by prctl is known at once, one set by seccomp(2) when the task looks.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::report::status_number;
use crate::line::Line;
use crate::next_symbol::NextSymbol;
use crate::saying::say;

/// In this process or in one that it is a copy of.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

pub static PRCTL: NextSymbol = NextSymbol::named(c"prctl");

/// For the constructor: later, the loader's lock may be held.
pub fn init() {
    PRCTL.get();
}

pub fn is_filtered() -> bool {
    IS_FILTERED.load(Relaxed)
}

/// prctl(2).
///
/// # Safety
/// As for prctl(2).
#[no_mangle]
pub unsafe extern "C" fn prctl(op: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if op == libc::PR_SET_SECCOMP {
        IS_FILTERED.store(true, Relaxed);
    }
    type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
    // SAFETY: the C library's function; all of its operations take five arguments or fewer.
    unsafe { core::mem::transmute::<usize, Prctl>(PRCTL.get())(op, a, b, c, d) }
}

/// Of the task: how many filters the program had when the pager began; it started behind those.
pub struct Filters {
    program: c_int,
    first: u64,
    is_told: bool,
}

impl Filters {
    pub fn of(program: c_int) -> Filters {
        Filters { program, first: count(program), is_told: false }
    }

    /// Notes new ones, and tells of them once.
    pub fn look(&mut self) {
        if self.is_told || count(self.program) <= self.first {
            return;
        }
        self.is_told = true;
        IS_FILTERED.store(true, Relaxed);
        say(
            self.program,
            b"odfork page: this program filters its system calls: children that it forks from now \
              on have no limit\n",
        );
    }
}

fn count(program: c_int) -> u64 {
    let mut path = Line::new();
    path.text(b"/proc/").number(program as u64).text(b"/status\0");
    let path = CStr::from_bytes_until_nul(path.bytes()).unwrap_or_default();
    status_number(path, b"Seccomp_filters:")
}
