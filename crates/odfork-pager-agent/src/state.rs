//! The agent's state: what any thread may read at any time, and the regions behind a lock.
//!
//! Owns the one static and its guard. Atomics are read without the lock; the region list is reached
//! only through [`Locked`]. Connecting is in `connection` and `setup`.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};

use odfork_pager_protocol::control::{Control, Doorbell};
use odfork_sys::{block_signals, getpid, restore_signals, ProcessLock};

use crate::descriptors::KeptFd;
use crate::regions::Regions;

/// How far this process has come.
pub mod mode {
    /// Not connected yet.
    pub const FRESH: u32 = 0;
    pub const CONNECTED: u32 = 1;
    /// Left to the kernel: no daemon was named or could be had, or this is a child that lost its
    /// memory.
    pub const OFF: u32 = 2;
}

pub struct State {
    lock: ProcessLock,
    pub mode: AtomicU32,
    /// The process that `mode` speaks of: a child of a fork that went past the handlers is another
    /// one.
    pub pid: AtomicI32,
    pub id: AtomicU32,
    pub uffd: KeptFd,
    pub backing: KeptFd,
    pub pagemap: KeptFd,
    pub maps: KeptFd,
    pub socket: KeptFd,
    pub control: AtomicPtr<Control>,
    pub doorbell: AtomicPtr<Doorbell>,
    regions: UnsafeCell<Regions>,
    /// Number of regions, readable without the lock.
    pub count: AtomicUsize,
    /// Bytes from which on a mapping is taken over.
    pub threshold: AtomicUsize,
}

// SAFETY: `regions` is used under `lock` only.
unsafe impl Sync for State {}

pub static STATE: State = State {
    lock: ProcessLock::new(),
    mode: AtomicU32::new(mode::OFF),
    pid: AtomicI32::new(0),
    id: AtomicU32::new(0),
    uffd: KeptFd::none(),
    backing: KeptFd::none(),
    pagemap: KeptFd::none(),
    maps: KeptFd::none(),
    socket: KeptFd::none(),
    control: AtomicPtr::new(core::ptr::null_mut()),
    doorbell: AtomicPtr::new(core::ptr::null_mut()),
    regions: UnsafeCell::new(Regions::new()),
    count: AtomicUsize::new(0),
    threshold: AtomicUsize::new(256 << 10),
};

/// The lock, and with it the regions. Signals are blocked meanwhile: a handler must find the lock
/// free or wait for another thread, never for itself.
pub struct Locked {
    mask: u64,
}

impl Locked {
    pub fn take() -> Locked {
        let mask = block_signals();
        STATE.lock.take();
        Locked { mask }
    }

    /// Takes it without touching signals: for the worker, which has them blocked for ever.
    pub fn take_by_worker<T>(work: impl FnOnce(&Regions) -> T) -> T {
        STATE.lock.take();
        // SAFETY: under the lock.
        let answer = work(unsafe { &*STATE.regions.get() });
        STATE.lock.give();
        answer
    }

    pub fn regions(&mut self) -> &mut Regions {
        // SAFETY: the lock is held, and the borrow ends with that of self.
        unsafe { &mut *STATE.regions.get() }
    }

    /// Ends without giving back what a child inherited: see `fork`.
    pub fn into_mask(self) -> u64 {
        let mask = self.mask;
        core::mem::forget(self);
        mask
    }

    /// The other half of `into_mask`.
    pub fn from_mask(mask: u64) -> Locked {
        Locked { mask }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        STATE.count.store(self.regions().list().len(), Relaxed);
        STATE.lock.give();
        restore_signals(self.mask);
    }
}

/// Paged memory exists in this very process.
pub fn is_active() -> bool {
    STATE.count.load(Relaxed) > 0 && is_own()
}

/// This process is the one the state speaks of. A child of a raw fork has none of the regions: they
/// are not inherited, and it must not use its parent's connection.
pub fn is_own() -> bool {
    STATE.pid.load(Relaxed) == getpid()
}

pub fn control() -> Option<&'static Control> {
    // SAFETY: null or the mapping of the control file, which stays until a forked child replaces
    // it.
    unsafe { STATE.control.load(Acquire).as_ref() }
}

/// Closes the parent's descriptors in a forked child.
pub fn close_inherited() {
    let all = [&STATE.uffd, &STATE.backing, &STATE.pagemap, &STATE.maps, &STATE.socket];
    all.into_iter().for_each(KeptFd::close);
}
