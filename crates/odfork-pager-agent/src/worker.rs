//! The agent's thread: unmaps pages when the daemon asks, and says which of them were not written.
//!
//! A raw thread without thread-local storage of its own: it makes system calls and touches the
//! control pages, nothing else. Unmapping is MADV_DONTNEED, which keeps the page in the file.
//! Whether it was written is read right behind that: a page that was mapped with the mark and not
//! written leaves a marker in its page table entry; only that counts as clean. Whatever else is
//! found (nothing, or the page mapped again) counts as written. It runs under the agent's lock, and
//! only for ranges that are in the region list at the same place, and mapped so: what took a
//! region's address must not be touched.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use odfork_pager_protocol::control::{Control, Span, ZAP_PAGES, ZAP_RANGES, ZAP_RANGE_PAGES};
use odfork_pager_protocol::PAGE;
use odfork_sys::abi::pagemap;
use odfork_sys::{
    args, block_signals, call, clone_vfork, getpid, raw, restore_signals, ProcessLock, SysResult,
};

use crate::calls;
use crate::mappings::Known;
use crate::messages::die;
use crate::regions::Regions;
use crate::state::{Locked, STATE};
use crate::{
    futex_wait, futex_wait_briefly, futex_wake, ioctl, kernel_madvise, kernel_mmap, kernel_munmap,
};

const STACK: usize = 64 << 10;

/// The process that has one, told before it is there: whoever changes its user waits for it.
static WORKER_PROCESS: AtomicI32 = AtomicI32::new(0);

/// Starts it for the control pages there are now.
pub fn start() -> SysResult<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let stack = odfork_sys::check(kernel_mmap(0, STACK, prot, flags, -1, 0))?;
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let control = STATE.control.load(Acquire) as usize;
    // It inherits the mask: no signal of the program is ever delivered to it.
    let mask = block_signals();
    WORKER_PROCESS.store(getpid(), SeqCst);
    // SAFETY: a new stack; `work` never returns, uses no thread-local storage and cannot unwind.
    // Without CLONE_VFORK the call returns at once.
    let started = unsafe { clone_vfork(flags as usize, stack + STACK, work, control) };
    restore_signals(mask);
    if started.is_err() {
        WORKER_PROCESS.store(0, SeqCst);
        kernel_munmap(stack, STACK);
    }
    started.map(drop)
}

extern "C" fn work(control: usize) -> i32 {
    // SAFETY: the control pages stay mapped while this thread lives: only a forked child unmaps
    // them, which does not have it.
    let zap = unsafe { &(*(control as *const Control)).zap };
    loop {
        let asked = zap.asked.load(Acquire);
        apply_credentials();
        if asked == zap.answered.load(Relaxed) {
            futex_wait(&zap.asked, asked);
            continue;
        }
        let ranges = (zap.ranges.load(Acquire) as usize).min(ZAP_RANGES);
        zap.clean.iter().chain(&zap.failed).for_each(|word| word.store(0, Relaxed));
        Locked::take_by_worker(|regions| {
            let (mut first, mut known) = (0, Known::default());
            for at in 0..ranges {
                // SAFETY: inside the array; the daemon writes it before `asked` and leaves it until
                // `answered`.
                let span = unsafe { zap.spans.as_ptr().add(at).read_volatile() };
                let pages = (span.len as usize / PAGE).min(ZAP_RANGE_PAGES as usize);
                if first + pages > ZAP_PAGES {
                    break;
                }
                if unmap(regions, &mut known, &span, pages) {
                    mark_clean(&span, pages, first, &zap.clean);
                } else {
                    (first..first + pages).for_each(|page| set(&zap.failed, page));
                }
                first += pages;
            }
        });
        zap.answered.store(asked, Release);
        calls::ring();
    }
}

/// Users, groups and rights that a thread of the program has, and room for the worker's own.
#[repr(C)]
struct Credentials {
    users: [u32; 3],
    groups: [u32; 3],
    capabilities: Capabilities,
    count: usize,
    list: [u32; MOST_GROUPS],
    own: [u32; MOST_GROUPS],
}

const MOST_GROUPS: usize = 65536;

/// Capabilities as capget(2) gives them: effective, permitted, inheritable, twice.
type Capabilities = [[u32; 3]; 2];
/// Version 3 of that interface, of the calling thread.
const OWN_CAPABILITIES: [u32; 2] = [0x2008_0522, 0];

struct Follow {
    lock: ProcessLock,
    /// Address of the credentials.
    credentials: AtomicUsize,
    done: AtomicU32,
}

static FOLLOW: Follow =
    Follow { lock: ProcessLock::new(), credentials: AtomicUsize::new(0), done: AtomicU32::new(0) };

/// Gives the worker the caller's users and groups and no more than its capabilities, and waits
/// until it has them.
pub fn follow_credentials() {
    let me = getpid();
    if WORKER_PROCESS.load(SeqCst) != me {
        return;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mask = block_signals();
    FOLLOW.lock.take();
    let room = odfork_sys::check(kernel_mmap(0, size_of::<Credentials>(), prot, flags, -1, 0));
    let Ok(room) = room else {
        die(b"odfork page: no memory to tell the agent's thread of a change of user: ending\n")
    };
    // SAFETY: new memory of that size, all zeros, a valid value.
    let credentials = unsafe { &mut *(room as *mut Credentials) };
    [credentials.users, credentials.groups] = identity();
    credentials.capabilities = capabilities();
    credentials.count = own_groups(&mut credentials.list);
    FOLLOW.done.store(0, Relaxed);
    FOLLOW.credentials.store(room, Release);
    while FOLLOW.done.load(Acquire) == 0 && WORKER_PROCESS.load(SeqCst) == me {
        // Again and again: it may have been about to sleep.
        if let Some(control) = crate::state::control() {
            futex_wake(&control.zap.asked);
        }
        futex_wait_briefly(&FOLLOW.done, 0);
    }
    FOLLOW.credentials.store(0, Relaxed);
    kernel_munmap(room, size_of::<Credentials>());
    FOLLOW.lock.give();
    restore_signals(mask);
}

/// Real, effective and saved users and groups of the calling thread.
fn identity() -> [[u32; 3]; 2] {
    let mut found = [[0u32; 3]; 2];
    let numbers = [libc::SYS_getresuid, libc::SYS_getresgid];
    for (number, [real, effective, saved]) in numbers.into_iter().zip(&mut found) {
        // SAFETY: three valid words.
        unsafe { raw(number, args![real, effective, saved]) };
    }
    found
}

fn capabilities() -> Capabilities {
    let mut found = [[0; 3]; 2];
    let mut header = OWN_CAPABILITIES;
    // SAFETY: a header and room for two sets.
    unsafe { raw(libc::SYS_capget, args![header.as_mut_ptr(), found.as_mut_ptr()]) };
    found
}

/// Drops the capabilities that the program does not have; whether none is left.
fn drop_capabilities(wanted: &Capabilities) -> bool {
    let own = capabilities();
    let kept = [0, 1].map(|half| [0, 1, 2].map(|kind| own[half][kind] & wanted[half][kind]));
    let mut header = OWN_CAPABILITIES;
    if kept != own {
        // SAFETY: a header and two sets.
        unsafe { raw(libc::SYS_capset, args![header.as_mut_ptr(), kept.as_ptr()]) };
    }
    capabilities() == kept
}

fn own_groups(list: &mut [u32; MOST_GROUPS]) -> usize {
    // SAFETY: room for as many as said.
    unsafe { call(libc::SYS_getgroups, args![MOST_GROUPS, list.as_mut_ptr()]) }.unwrap_or(0)
}

/// Takes over the program's credentials. A failure ends the process, as when the C library's
/// threads get different answers.
fn apply_credentials() {
    let room = FOLLOW.credentials.swap(0, AcqRel);
    if room == 0 {
        return;
    }
    // SAFETY: the caller of `follow_credentials` waits, and keeps it, until `done`.
    let credentials = unsafe { &mut *(room as *mut Credentials) };
    let same = |credentials: &mut Credentials| {
        let count = own_groups(&mut credentials.own);
        credentials.own[..count] == credentials.list[..credentials.count]
    };
    // Groups before users: the right to change them goes with those.
    if !same(credentials) {
        // SAFETY: a list of that length.
        unsafe { raw(libc::SYS_setgroups, args![credentials.count, credentials.list.as_ptr()]) };
    }
    let [users, groups] = identity();
    for (number, own, wanted) in [
        (libc::SYS_setresgid, groups, credentials.groups),
        (libc::SYS_setresuid, users, credentials.users),
    ] {
        if own != wanted {
            // SAFETY: plain numbers.
            unsafe { raw(number, args![wanted[0], wanted[1], wanted[2]]) };
        }
    }
    let lost = drop_capabilities(&credentials.capabilities);
    if identity() != [credentials.users, credentials.groups] || !same(credentials) || !lost {
        die(b"odfork page: the agent's thread cannot follow a change of user: ending\n");
    }
    FOLLOW.done.store(1, Release);
    futex_wake(&FOLLOW.done);
}

fn set(words: &[AtomicU64], page: usize) {
    words[page / 64].fetch_or(1 << (page % 64), Relaxed);
}

fn unmap(regions: &Regions, known: &mut Known, span: &Span, pages: usize) -> bool {
    let len = (pages * PAGE) as u64;
    let same = regions
        .holding(span.address, len)
        .is_some_and(|region| region.offset + (span.address - region.address) == span.offset);
    same && known.is_ours(span, len)
        && kernel_madvise(span.address as usize, len as usize, libc::MADV_DONTNEED_LOCKED) == 0
}

/// Sets the bits of pages whose marker is there.
fn mark_clean(span: &Span, pages: usize, first: usize, clean: &[AtomicU64]) {
    let mut found = [pagemap::Region::default(); ZAP_RANGE_PAGES as usize];
    let mut scan = pagemap::ScanArg {
        size: size_of::<pagemap::ScanArg>() as u64,
        start: span.address,
        end: span.address + (pages * PAGE) as u64,
        vec: found.as_mut_ptr() as u64,
        vec_len: found.len() as u64,
        // A marker is a swap entry that is not "written".
        category_mask: pagemap::IS_SWAPPED | pagemap::IS_WRITTEN,
        category_inverted: pagemap::IS_WRITTEN,
        return_mask: pagemap::IS_SWAPPED,
        ..pagemap::ScanArg::default()
    };
    let Ok(count) = ioctl(STATE.pagemap.number(), pagemap::SCAN, &mut scan) else {
        return;
    };
    for region in &found[..count.min(found.len())] {
        let from = region.start.max(span.address) - span.address;
        let to = region.end.min(scan.end).saturating_sub(span.address);
        for page in from as usize / PAGE..to as usize / PAGE {
            set(clean, first + page);
        }
    }
}
