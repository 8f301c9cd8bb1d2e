//! A program that was running already when the pager came (`page adopt`).
//!
//! The thread that runs this was stopped anywhere, perhaps in malloc or in the loader. So nothing
//! of either is called: of the C library only what copies bytes, and what registers a handler of
//! fork. Nor does it sleep: the kernel would forget the sleep that the thread was stopped in.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use odfork_pager_protocol::adoption::{Adoption, Range, MOST};
use odfork_sys::Errno;

use super::{filters, group, in_child, made, raw_forks, start, uffd, why, Failure, ORDER, REGISTERED};
use crate::{close, fork_handlers};

struct Data {
    is_set: AtomicBool,
    ranges: UnsafeCell<[Range; MOST]>,
}

// SAFETY: the ranges are written once, before `is_set`.
unsafe impl Sync for Data {}

static DATA: Data =
    Data { is_set: AtomicBool::new(false), ranges: UnsafeCell::new([(0, 0); MOST]) };

/// What the serving task itself uses of the library and of the C library, if the loader cannot be
/// asked: it does not know this library.
pub fn data() -> Option<impl Iterator<Item = Range>> {
    // SAFETY: once it is set nobody writes any more.
    DATA.is_set.load(Acquire).then(|| unsafe { *DATA.ranges.get() }.into_iter())
}

/// Makes this program a paged one.
pub fn begin(adoption: &mut Adoption) -> Result<(), Failure> {
    if REGISTERED.load(Relaxed) {
        return Err(why("the pager was here already")(Errno(libc::EBUSY)));
    }
    // What fails most, before anything stays.
    let tried = uffd().map_err(why("it needs userfaultfd, that is CAP_SYS_PTRACE, and Linux 6.11"));
    close(tried?.0);
    // SAFETY: only this thread knows of this library.
    unsafe {
        *ORDER.paths.get() = adoption.paths;
        *DATA.ranges.get() = adoption.data;
    }
    DATA.is_set.store(true, Release);
    filters::PRCTL.set(adoption.prctl as usize);
    raw_forks::FORK.set(adoption.fork as usize);
    ORDER.pool.store(adoption.pool as usize, Relaxed);
    let limit = adoption.limit / odfork_pager_protocol::PAGE as u64;
    made::begin();
    let done = join_and_start(limit);
    adoption.is_kept = u32::from(done.is_ok() || !made::undo());
    done?;
    // Last: if another thread, or the one that is borrowed, holds the C library's list, the
    // launcher does not wait for ever.
    fork_handlers::set_register(adoption.register as usize);
    fork_handlers::register_for_child(in_child);
    REGISTERED.store(true, Relaxed);
    Ok(())
}

fn join_and_start(limit: u64) -> Result<(), Failure> {
    let joined = group::join_file(ORDER.path(2), limit)
        .map_err(why("it cannot open the file of its limit, or is of another user"))?;
    ORDER.group.store(joined, Relaxed);
    start()
}
