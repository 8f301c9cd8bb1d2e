//! What the limit does not hold, told once in a line: small blocks in large numbers, more mappings
//! than there is room for, robust mutexes in paged memory.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, call, raw};

use crate::line::Line;
use crate::next_symbol::NextSymbol;
use crate::state::{self, Locked};
use crate::{close, options};

/// In bytes; set where `page run` was given one.
const LIMIT: &CStr = c"ODFORK_PAGE_LIMIT";

static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The last megabyte that was looked at.
static LOOKED: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicBool = AtomicBool::new(false);
static TOLD_MANY: AtomicBool = AtomicBool::new(false);

pub fn read_options() {
    LIMIT_BYTES.store(options::number(LIMIT).unwrap_or(0), Relaxed);
}

/// A block of the C library's was given. When it is the first one of a megabyte, memory may have
/// grown: what is not paged of it is looked at.
pub fn look(block: usize) {
    let (part, page) = (block >> 20, (block >> 12) & 0xff);
    let limit = LIMIT_BYTES.load(Relaxed);
    if page == 0 && limit != 0 && LOOKED.swap(part, Relaxed) != part && !TOLD.load(Relaxed) {
        tell_small(limit);
    }
}

fn tell_small(limit: usize) {
    let small = anonymous_bytes();
    if small <= limit + limit / 10 || TOLD.swap(true, Relaxed) {
        return;
    }
    let mut line = Line::new();
    line.text(b"odfork page: ").number(small as u64 >> 20);
    line.text(b" MB of this program are small blocks, which are NOT paged, above the limit of ");
    line.number(limit as u64 >> 20).text(b" MB: --memory any pages all\n");
    say(line.bytes());
}

/// Private memory in frames: what is paged is shared memory.
fn anonymous_bytes() -> usize {
    let mut text = [0u8; 128];
    let open =
        args![libc::AT_FDCWD, c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC];
    // SAFETY: a constant path; as much room as said; a descriptor of ours.
    let got = unsafe {
        let Ok(fd) = call(libc::SYS_openat, open) else { return 0 };
        let got = call(libc::SYS_read, args![fd, text.as_mut_ptr(), text.len()]);
        close(fd as c_int);
        got.unwrap_or(0)
    };
    let mut words = text[..got].split(|&byte| byte == b' ').skip(1).map(|word| {
        core::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(0usize)
    });
    let (all, files) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    all.saturating_sub(files) * PAGE
}

/// The list of regions has no room.
pub fn tell_many() {
    if !TOLD_MANY.swap(true, Relaxed) {
        say(
            b"odfork page: more than 4,000 large mappings: further ones are NOT paged and have no \
              limit (--memory any has no such bound)\n",
        );
    }
}

fn say(line: &[u8]) {
    // SAFETY: valid bytes.
    unsafe { raw(libc::SYS_write, args![2, line.as_ptr(), line.len()]) };
}

/// pthread_mutex_init(3). A robust mutex in paged memory is refused: the kernel hands it on when
/// its owner ends, and does not wait for a page that is out.
///
/// # Safety
/// As for pthread_mutex_init(3).
#[no_mangle]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    kind: *const libc::pthread_mutexattr_t,
) -> c_int {
    type Init =
        unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;
    static NEXT: NextSymbol = NextSymbol::named(c"pthread_mutex_init");
    let mut robust = libc::PTHREAD_MUTEX_STALLED;
    // SAFETY: the caller's attributes.
    let is_robust = !kind.is_null()
        && unsafe { libc::pthread_mutexattr_getrobust(kind, &mut robust) } == 0
        && robust == libc::PTHREAD_MUTEX_ROBUST;
    let len = size_of::<libc::pthread_mutex_t>() as u64;
    if is_robust && state::is_active() && Locked::take().regions().overlaps(mutex as u64, len) {
        say(b"odfork page: a robust mutex in paged memory is refused (ENOTSUP): --memory any has \
              them\n");
        return libc::ENOTSUP;
    }
    // SAFETY: the C library's function of this type; the arguments are the caller's.
    unsafe { core::mem::transmute::<usize, Init>(NEXT.get())(mutex, kind) }
}
