//! fork: the child gets the memory as it was, of its own.
//!
//! By handlers, so that every way through the C library that runs them is covered (fork, forkpty,
//! daemon). Ours are the first that are registered (this library's `__register_atfork` sees to
//! that), so before the fork ours runs last and in the child first: no other handler misses the
//! memory.
//!
//! ```text
//!   parent   1 HELLO for the child: its control pages and backing memfd
//!            2 FREEZE: no fault of this process is served
//!            3 unmap all paged memory, so that nothing changes
//!            4 SNAPSHOT: what is only in memory goes to the store, the child's table names the
//!              same slots
//!   kernel     fork; paged mappings are not inherited (MADV_DONTFORK)
//!   child    5 map the child's backing memfd at the same addresses, a userfaultfd of its own,
//!              ATTACH, worker, REGIONS
//! ```
//!
//! A child that cannot be given its memory ends at once: it must not run without it (see `forks`).
//! vfork, posix_spawn and clone with CLONE_VM share the memory and need nothing. `_Fork` and raw
//! system calls pass by: their children do not have the paged mappings at all, and touching one is
//! SIGSEGV.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::Release,
};

use odfork_pager_protocol::control::{op, Span, REGION_DONTFORK};
use odfork_pager_protocol::PAGE;
use odfork_sys::{args, block_signals, call, raw, restore_signals, SysResult};

use crate::any::{self, untold};
use crate::connection::{self, Welcome};
use crate::heap;
use crate::messages::die;
use crate::proc_lines::Lines;
use crate::state::{self, mode, Locked, STATE};
use crate::{
    calls, kernel_madvise, kernel_mmap, kernel_munmap, mappings, pending_forks, setup, stack,
};

/// `Control::state` while a fork is under way.
const FORKING: u32 = 1;
const LISTED: usize = 8192;

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

static REGISTERED: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// One fork at a time: between prepare and the other two the agent's lock is held.
struct Fork {
    child: UnsafeCell<Option<Welcome>>,
    mask: UnsafeCell<u64>,
    /// What had to be done could not be: the child must not go on.
    broken: AtomicBool,
    /// The caller of fork gets an error: the child exits silently.
    reported: AtomicBool,
    /// Protection of the paged mappings, from /proc/self/maps; mapped while it is needed.
    list: AtomicUsize,
    listed: AtomicU32,
}

// SAFETY: the cells are used under the agent's lock only.
unsafe impl Sync for Fork {}

static FORK: Fork = Fork {
    child: UnsafeCell::new(None),
    mask: UnsafeCell::new(0),
    broken: AtomicBool::new(false),
    reported: AtomicBool::new(false),
    list: AtomicUsize::new(0),
    listed: AtomicU32::new(0),
};

#[derive(Clone, Copy)]
struct Protected {
    start: u64,
    end: u64,
    prot: c_int,
}

fn next_register() -> Option<Register> {
    let mut at = NEXT.load(Relaxed);
    if at == 0 {
        // SAFETY: a valid name; dlsym is callable once libraries are relocated.
        at = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__register_atfork".as_ptr()) } as usize;
        NEXT.store(at, Relaxed);
    }
    // SAFETY: the C library's function of this very type, or null.
    unsafe { core::mem::transmute::<usize, Option<Register>>(at) }
}

/// Ours come first.
pub fn register_handlers() {
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    let ours: [Handler; 3] = match any::is_meant() {
        true => [Some(untold::before), Some(untold::after), Some(any::in_child)],
        false => [Some(prepare), Some(parent), Some(child)],
    };
    if let Some(register) = next_register() {
        let [before, in_parent, in_child] = ours;
        // SAFETY: handlers that stay for ever (the library is never unloaded).
        unsafe { register(before, in_parent, in_child, core::ptr::null_mut()) };
    }
}

/// What pthread_atfork calls, in every library.
///
/// # Safety
/// As for pthread_atfork(3).
#[no_mangle]
pub unsafe extern "C" fn __register_atfork(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    library: *mut c_void,
) -> c_int {
    register_handlers();
    match next_register() {
        // SAFETY: passed on to the caller.
        Some(register) => unsafe { register(before, in_parent, in_child, library) },
        None => libc::ENOMEM,
    }
}

/// Steps 1 to 4. Leaves the lock held.
unsafe extern "C" fn prepare() {
    let mask = block_signals();
    heap::lock();
    let mut locked = Locked::take();
    FORK.broken.store(false, Relaxed);
    if state::is_own() && !locked.regions().is_empty() {
        // On a paged stack nothing can be unmapped, and the child would not have it.
        let is_paged = locked.regions().overlaps(odfork_sys::stack_pointer() as u64, 1);
        if is_paged || give_to_child(&mut locked).is_err() {
            FORK.broken.store(true, Relaxed);
            FORK.reported.store(pending_forks::mark_broken(), Relaxed);
        }
    }
    locked.into_mask();
    // SAFETY: the lock is held.
    unsafe { *FORK.mask.get() = mask };
}

fn give_to_child(locked: &mut Locked) -> SysResult<()> {
    mappings::forget_foreign(locked);
    let welcome = connection::hello_for_child()?;
    let id = u64::from(welcome.id);
    // SAFETY: the lock is held.
    unsafe { *FORK.child.get() = Some(welcome) };
    list_protection(locked)?;
    let Some(control) = state::control() else { return Err(odfork_sys::Errno(libc::ENOTCONN)) };
    control.state.store(FORKING, Release);
    let mut result = calls::ask(locked, op::FREEZE, [0; 2]);
    if result == 0 {
        for span in locked.regions().list() {
            let gone = kernel_madvise(
                span.address as usize,
                span.len as usize,
                libc::MADV_DONTNEED_LOCKED,
            );
            result = result.min(gone as i32);
        }
    }
    if result == 0 {
        result = calls::ask(locked, op::SNAPSHOT, [id, 0]);
    }
    control.state.store(0, Release);
    if result != 0 {
        calls::ask(locked, op::THAW, [0; 2]);
        return Err(odfork_sys::Errno(-result));
    }
    Ok(())
}

unsafe extern "C" fn parent() {
    // SAFETY: prepare left the lock held and the cells filled.
    unsafe {
        if let Some(welcome) = (*FORK.child.get()).take() {
            welcome.close_all();
        }
        drop_list();
        let mask = *FORK.mask.get();
        drop(Locked::from_mask(u64::MAX));
        heap::unlock();
        restore_signals(mask);
    }
}

/// Step 5. The lock belongs to the parent's process, so here it is free; nobody else runs.
unsafe extern "C" fn child() {
    // SAFETY: prepare filled the cells; this is the only thread.
    let (welcome, mask) = unsafe { ((*FORK.child.get()).take(), *FORK.mask.get()) };
    stack::release_others();
    if FORK.broken.load(Relaxed) {
        if FORK.reported.load(Relaxed) {
            // SAFETY: ends this process; whoever forked it waits for it.
            unsafe { raw(libc::SYS_exit_group, args![1]) };
        }
        die(
            b"odfork page: the child of a fork could not be given its paged memory (store full?): \
              it ends here\n",
        );
    }
    state::close_inherited();
    let mut locked = Locked::take();
    match welcome {
        Some(welcome) if restore(&mut locked, &welcome).is_err() => {
            die(b"odfork page: the child of a fork could not map its paged memory: it ends here\n")
        }
        Some(_) => {}
        None => start_fresh(&mut locked),
    }
    drop_list();
    drop(locked);
    // As the agent's: it names the parent's process. Given back all the same, for a number that
    // comes again.
    heap::unlock();
    restore_signals(mask);
}

/// The parent had nothing paged: the child connects when it needs to.
fn start_fresh(locked: &mut Locked) {
    locked.regions().clear();
    if STATE.mode.load(Relaxed) == mode::CONNECTED {
        STATE.mode.store(mode::FRESH, Relaxed);
    }
    STATE.pid.store(odfork_sys::getpid(), Relaxed);
}

fn restore(locked: &mut Locked, welcome: &Welcome) -> SysResult<()> {
    // Regions the child must not have are gone from its list.
    while let Some(span) = first_with(locked, REGION_DONTFORK) {
        locked.regions().remove_one(span.address, span.len);
    }
    // First of all, or the kernel puts a new mapping of ours where these belong. Nobody touches
    // them before they are registered: this is the only thread.
    for span in locked.regions().list() {
        let (address, len) = (span.address as usize, span.len as usize);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // Not over anything: the parent's mapping was not inherited.
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let offset = span.offset as i64;
        odfork_sys::check(kernel_mmap(address, len, prot, flags, welcome.backing, offset))?;
    }
    setup::attach(welcome)?;
    for span in locked.regions().list() {
        setup::register(span)?;
    }
    restore_protection(locked)?;
    calls::publish(locked);
    match calls::ask(locked, op::REGIONS, [0; 2]) {
        0 => Ok(()),
        error => Err(odfork_sys::Errno(-error)),
    }
}

fn first_with(locked: &mut Locked, flag: u64) -> Option<Span> {
    locked.regions().list().iter().find(|span| span.flags & flag != 0).copied()
}

/// Notes every paged mapping whose protection is not the usual one.
fn list_protection(locked: &mut Locked) -> SysResult<()> {
    let bytes = LISTED * size_of::<Protected>();
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let list = odfork_sys::check(kernel_mmap(0, bytes, prot, flags, -1, 0))?;
    FORK.list.store(list, Relaxed);
    FORK.listed.store(0, Relaxed);
    // Where the root has changed there may be no /proc.
    let mut lines =
        Lines::open(c"/proc/self/maps").or_else(|_| Lines::again(STATE.maps.number()))?;
    let mut any = false;
    while let Some(line) = lines.next() {
        any = true;
        let Some(found) = parse(line) else { continue };
        if found.prot == prot || !locked.regions().overlaps(found.start, found.end - found.start) {
            continue;
        }
        let at = FORK.listed.load(Relaxed) as usize;
        if at == LISTED {
            return Err(odfork_sys::Errno(libc::ENOMEM));
        }
        // SAFETY: the list has room for LISTED entries.
        unsafe { (list as *mut Protected).add(at).write(found) };
        FORK.listed.store(at as u32 + 1, Relaxed);
    }
    // A program may have put something else in that descriptor's place.
    match any {
        true => Ok(()),
        false => Err(odfork_sys::Errno(libc::EBADF)),
    }
}

fn restore_protection(locked: &mut Locked) -> SysResult<()> {
    let list = FORK.list.load(Relaxed) as *const Protected;
    for at in 0..FORK.listed.load(Relaxed) as usize {
        // SAFETY: an entry that list_protection wrote.
        let one = unsafe { *list.add(at) };
        let mut address = one.start;
        while address < one.end {
            let piece = locked.regions().piece(address, one.end - address);
            if piece.offset.is_some() {
                // SAFETY: memory of a region just mapped.
                unsafe { call(libc::SYS_mprotect, args![address, piece.len, one.prot])? };
            }
            address += piece.len;
        }
    }
    Ok(())
}

fn drop_list() {
    let list = FORK.list.swap(0, Relaxed);
    if list != 0 {
        kernel_munmap(list, (LISTED * size_of::<Protected>()).next_multiple_of(PAGE));
    }
}

/// "start-end rwxp ..."
fn parse(line: &[u8]) -> Option<Protected> {
    let (start, rest) = hex(line)?;
    let (end, rest) = hex(rest.strip_prefix(b"-")?)?;
    let letters = rest.strip_prefix(b" ")?;
    let bit = |at: usize, letter: u8, bit: c_int| match letters.get(at) {
        Some(&found) if found == letter => bit,
        _ => 0,
    };
    let prot = bit(0, b'r', libc::PROT_READ)
        | bit(1, b'w', libc::PROT_WRITE)
        | bit(2, b'x', libc::PROT_EXEC);
    Some(Protected { start, end, prot })
}

fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let value = core::str::from_utf8(&text[..digits]).ok()?;
    Some((u64::from_str_radix(value, 16).ok()?, &text[digits..]))
}
