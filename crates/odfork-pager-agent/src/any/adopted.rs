//! A program that was running already when the pager came (`page adopt`).
//!
//! The thread that runs this was stopped anywhere, perhaps in malloc or in the loader. So nothing
//! of either is called: of the C library only what copies bytes. Nor does it sleep: the kernel
//! would forget the sleep that the thread was stopped in.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use odfork_pager_protocol::adoption::Adoption;
use odfork_sys::Errno;

use super::{filters, group, made, protected, raw_forks, start, uffd, untold, why};
use super::{Failure, ORDER};
use crate::{close, fork_wrappers};

static IS_ADOPTED: AtomicBool = AtomicBool::new(false);

/// No handler of fork is there: to have one the C library may call malloc, in which the thread may
/// have been stopped. So the wrapper of fork does what it would.
pub fn is_adopted() -> bool {
    IS_ADOPTED.load(Relaxed)
}

/// Makes this program a paged one.
pub fn begin(adoption: &mut Adoption) -> Result<(), Failure> {
    if IS_ADOPTED.load(Relaxed) {
        return Err(why("the pager was here already")(Errno(libc::EBUSY)));
    }
    // What fails most, before anything stays.
    let tried = uffd().map_err(why("it needs userfaultfd, that is CAP_SYS_PTRACE, and Linux 6.11"));
    close(tried?.0);
    if untold::is_on() {
        return Err(why("it needs CAP_SYS_PTRACE, or the kernel does not tell of forks")(Errno(
            libc::EPERM,
        )));
    }
    // SAFETY: only this thread knows of this library.
    unsafe {
        *ORDER.paths.get() = adoption.paths;
        protected::set_data(adoption.data);
    }
    filters::PRCTL.set(adoption.prctl as usize);
    fork_wrappers::FORK.set(adoption.fork as usize);
    raw_forks::FORK.set(adoption.plain_fork as usize);
    ORDER.pool.store(adoption.pool as usize, Relaxed);
    let limit = adoption.limit / odfork_pager_protocol::PAGE as u64;
    made::begin();
    let done = join_and_start(limit);
    adoption.is_kept = u32::from(done.is_ok() || !made::undo());
    done?;
    IS_ADOPTED.store(true, Relaxed);
    Ok(())
}

fn join_and_start(limit: u64) -> Result<(), Failure> {
    let joined = group::join_file(ORDER.path(2), limit)
        .map_err(why("it cannot open the file of its limit, or is of another user"))?;
    ORDER.group.store(joined, Relaxed);
    start()
}
