//! Paging of any memory (`page run --memory any`): a task beside the program, in its memory.
//!
//! The program's ordinary anonymous memory is moved page by page into a mapping of our own
//! (UFFDIO_MOVE, Linux 6.8) and back when it is touched, or written to a store. Nothing of the
//! program's allocation is taken over. A range is watched from the moment the first page of it is
//! taken: a program with room to spare pays nothing.
//!
//! | module | owns |
//! | --- | --- |
//! | adopted | a program that was running already |
//! | task | the serving task: its loop, when it looks, its end |
//! | events | what was read: munmap, mremap, madvise and fork of the program |
//! | children, gate | forked children, until they have everything |
//! | holder | the task that holds their descriptors, if the serving task is killed |
//! | faults | touches of pages that are away |
//! | ahead | neighbours of a page that is read |
//! | hand | which pages are taken; what leaves for the store |
//! | pool, table, room | pages in memory but away; where each is; own memory |
//! | together | several pages of a file read at once |
//! | store, packed, layered | pages out of memory: in a file; compressed, in memory; both |
//! | unshare | pages that a fork left shared |
//! | raw_forks | forks that run no handlers |
//! | refused | pages that the kernel does not move |
//! | gate | by what a child knows that it has everything |
//! | untold | forks that the kernel does not tell of |
//! | unwritten, zeros | pages that were only read |
//! | filters | filters of system calls that the program puts on itself |
//! | growth | what the program may map before it is looked at |
//! | watched | which ranges the kernel reports faults of |
//! | threads, protected | pages that the kernel uses without waiting for us |
//! | group, share, need | the limit of several processes; which part this one has, and wants |
//! | older | what is done without on older kernels |
//! | pieces | mremap of what is several mappings |
//! | turns | load control: who may have memory at a time |
//! | parts | pages that a fork left shared: who counts them |
//! | pager, report | the state; what is said |
//! | made | what goes again if a program cannot be adopted |
//!
//! Rules: the task uses no thread-local storage, no libc wrapper, no heap, and never touches memory
//! of the program that may be away: it would wait for itself. When the task dies, the program is
//! killed with it (its exit signal): on memory in doubt nobody goes on.

pub mod adopted;
mod ahead;
mod children;
mod events;
mod faults;
mod filters;
mod gate;
mod group;
pub mod growth;
mod hand;
mod holder;
mod layered;
pub mod made;
mod need;
mod older;
mod packed;
mod pager;
mod parts;
pub mod pieces;
mod pool;
mod protected;
mod raw_forks;
mod refused;
mod report;
mod room;
mod share;
mod store;
mod table;
mod task;
mod threads;
mod together;
mod turns;
mod unshare;
pub mod untold;
mod unwritten;
mod watched;
mod zeros;

use core::cell::UnsafeCell;
use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use odfork_pager_protocol::{MOVING_FEATURES, PAGE};
use odfork_sys::abi::userfaultfd as abi;
use odfork_sys::userfaultfd::{self, Userfaultfd};
use odfork_sys::{
    args, block_signals, call, check, clone_vfork, getpid, restore_signals, Errno, SysResult,
};

use crate::descriptors::{high, open_high, KeptFd};
use crate::line::Line;
use crate::messages::{say, NOT_PAGED};
use crate::{close, kernel_madvise, options, saying};
use gate::Gate;
use pager::Pager;
use task::Task;

const MEMORY: &CStr = c"ODFORK_PAGE_MEMORY";
const LIMIT: &CStr = c"ODFORK_PAGE_LIMIT";
const STORE: &CStr = c"ODFORK_PAGE_STORE";
const REPORT: &CStr = c"ODFORK_PAGE_REPORT";
const GROUP: &CStr = c"ODFORK_PAGE_GROUP";
const POOL: &CStr = c"ODFORK_PAGE_POOL";

/// As long as the name of a mapping can be.
const NAME: usize = 8192;
const STACK: usize = 256 << 10;
/// Of the pager's own, beside what depends on the limit: checksums of the store, what is packed
/// where, and a table for 32 GB of memory in one piece.
const OWN: usize = 256 << 20;
const LONGEST: usize = 1024;

/// How memory of the program is watched: what is missing is asked of us, what is written is noted
/// by the kernel.
const WATCHED: u64 = abi::REGISTER_MODE_MISSING | abi::REGISTER_MODE_WP;

/// What was asked for; read once, for forked children too.
pub struct Order {
    paths: UnsafeCell<[[u8; LONGEST]; 3]>,
    /// Where the memory is that the processes of a group share; the limit is in it.
    group: AtomicUsize,
    /// This process was forked by one that was served.
    is_forked: AtomicBool,
    /// Bytes of the store that are compressed in memory, before its folder.
    pool: AtomicUsize,
    ready: AtomicU32,
    /// The process that is served.
    served: AtomicI32,
    gate: gate::Gate,
    /// If both tasks are killed at once, what is away must not become zeros before the program is
    /// killed.
    uffd: KeptFd,
}

// SAFETY: the paths are written while constructors run, only read afterwards.
unsafe impl Sync for Order {}

static ORDER: Order = Order {
    paths: UnsafeCell::new([[0; LONGEST]; 3]),
    group: AtomicUsize::new(0),
    is_forked: AtomicBool::new(false),
    pool: AtomicUsize::new(0),
    ready: AtomicU32::new(0),
    served: AtomicI32::new(0),
    gate: Gate::none(),
    uffd: KeptFd::none(),
};

impl Order {
    fn path(&self, which: usize) -> &CStr {
        // SAFETY: nobody writes them any more.
        CStr::from_bytes_until_nul(unsafe { &(*self.paths.get())[which] }).unwrap_or_default()
    }

    /// The task serves from now on, or cannot.
    fn ready(&self, serves: bool) {
        self.ready.store(if serves { 1 } else { 2 }, Release);
    }
}

/// This process' memory is paged so.
pub fn is_active() -> bool {
    let served = ORDER.served.load(Relaxed);
    served != 0 && served == getpid()
}

/// Of the environment, while constructors run.
fn text(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: nobody changes the environment then. The strings are the environment's.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// All memory is to be paged.
pub fn is_meant() -> bool {
    text(MEMORY) == Some(b"any") && !options::is_privileged()
}

/// Reads the options; true: all memory is to be paged, and was taken care of.
pub fn init() -> bool {
    filters::init();
    if !is_meant() {
        return false;
    }
    for (which, name) in [STORE, REPORT, GROUP].into_iter().enumerate() {
        if let Some(path) = text(name).filter(|path| path.len() < LONGEST) {
            // SAFETY: only this thread runs.
            unsafe { (&mut *ORDER.paths.get())[which][..path.len()].copy_from_slice(path) };
        }
    }
    ORDER.pool.store(options::number(POOL).unwrap_or(0), Relaxed);
    hand::init();
    raw_forks::init();
    older::avoid_huge_pages();
    join_group();
    begin();
    true
}

/// The group of who started this program; a new one if there is none, or if its file is gone.
fn join_group() {
    let limit = options::number(LIMIT).unwrap_or(0) as u64 / PAGE as u64;
    let path = ORDER.path(2);
    let joined = group::join_file(path, limit).or_else(|_| {
        if !path.is_empty() {
            say(
                b"odfork page: this program has a limit of its own: the file of the common one is \
                   gone, or not this user's\n",
            );
        }
        group::found(limit)
    });
    ORDER.group.store(joined.unwrap_or(0), Relaxed);
}

fn begin() {
    if let Err((what, error)) = start() {
        let mut line = Line::new();
        line.text(NOT_PAGED).text(what);
        line.text(b" (errno ").number(error.0 as u64).text(b")\n");
        say(line.bytes());
    }
}

/// A forked child that runs no handlers has all of its memory already, and no pager. Nothing but
/// touches of pages and system calls.
pub fn in_plain_child() {
    untold::finish_in_child();
    if ORDER.served.swap(0, Relaxed) != 0 {
        ORDER.gate.pass();
        growth::end();
    }
}

/// A forked child has its memory already, and a pager of its own from now on, if it may make one.
pub unsafe extern "C" fn in_child() {
    untold::finish_in_child();
    if ORDER.served.swap(0, Relaxed) != 0 {
        saying::set_served(0);
        ORDER.gate.pass();
        ORDER.uffd.close();
        growth::end();
        ORDER.is_forked.store(true, Relaxed);
        if !filters::is_filtered() {
            begin();
        }
    }
}

type Failure = (&'static [u8], Errno);

fn why(what: &'static str) -> impl Fn(Errno) -> Failure {
    move |error| (what.as_bytes(), error)
}

fn uffd() -> SysResult<Userfaultfd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let made = userfaultfd::create(flags)
        .or_else(|error| userfaultfd::create_from_device(flags).map_err(|_| error))?;
    let uffd = Userfaultfd(high(made.0));
    let told = uffd.enable(MOVING_FEATURES | abi::FEATURE_EVENT_FORK);
    untold::set(told.is_err());
    told.or_else(|_| uffd.enable(MOVING_FEATURES)).inspect_err(|_| close(uffd.0))?;
    Ok(uffd)
}

/// Starts the serving task. On failure the descriptors stay until the program ends: it is told.
fn start() -> Result<(), Failure> {
    let uffd =
        uffd().map_err(why("it needs userfaultfd for faults of the kernel, and Linux 6.11"))?;
    let task = make(uffd)?;
    let mask = block_signals();
    ORDER.ready.store(0, Relaxed);
    let flags = libc::CLONE_VM | libc::CLONE_UNTRACED | libc::SIGKILL;
    // SAFETY: a stack of its own behind the task; `serve` does not return to us, uses no
    // thread-local storage and cannot unwind. Without CLONE_VFORK the call returns at once.
    let started = unsafe {
        let stack = (*task).pager.stack as usize + STACK;
        clone_vfork(flags as usize, stack, task::serve, task as usize)
    };
    restore_signals(mask);
    started.map_err(why("no task can be made"))?;
    made::end();
    while ORDER.ready.load(Acquire) == 0 {
        // No sleep: a thread that is borrowed (`adopted`) may be in one, which goes on later.
        odfork_sys::pause(0);
    }
    let serves = ORDER.ready.load(Relaxed) == 1;
    // SAFETY: the task is there until the program ends; what is read does not change.
    let task = unsafe { &*task };
    let pager = &task.pager;
    let others = [pager.maps, pager.pagemap, pager.smaps, pager.protected.tasks];
    pager.store.fds().into_iter().chain(others).for_each(close);
    [task.pidfd, task.report, task.status].into_iter().for_each(close);
    if !serves {
        close(uffd.0);
        return Err(why("no second task can be made")(Errno(libc::EAGAIN)));
    }
    ORDER.uffd.keep(uffd.0);
    ORDER.served.store(getpid(), Relaxed);
    saying::set_served(getpid());
    growth::begin();
    Ok(())
}

/// All that the task needs, in memory of our own.
fn make(uffd: Userfaultfd) -> Result<*mut Task, Failure> {
    let no_room = why("no address space for the pager's own tables");
    let short = || no_room(Errno(libc::ENOMEM));
    let group = group::Group::at(ORDER.group.load(Relaxed)).ok_or_else(short)?;
    let limit = group.limit();
    let mut room = room::Room::new(OWN + limit as usize * 16).map_err(&no_room)?;
    let task: *mut Task = room.take(1).ok_or_else(short)?;
    let sizes =
        [STACK, holder::STACK, store::MOST * PAGE, NAME, faults::MOST_COPIED as usize * PAGE];
    let [stack, holder_stack, buffer, name, zeros] = sizes.map(|len| room.take(len));
    let program = getpid();
    let [tasks, maps, pagemap, smaps] = open_files(program)?;
    let gate = ORDER.gate.make().map_err(&no_room)?;
    let batch = events::Batch::new(&mut room, gate + PAGE as u64).ok_or_else(short)?;
    let pager = Pager {
        uffd,
        table: table::Table::new(&mut room).ok_or_else(short)?,
        watched: watched::Watched::new(&mut room).ok_or_else(short)?,
        pool: pool::Pool::new(uffd, pagemap, limit, &mut room)
            .map_err(&no_room)?
            .ok_or_else(short)?,
        store: store::Store::new(ORDER.path(0), ORDER.pool.load(Relaxed) as u64, &mut room)
            .map_err(why("its store cannot be made"))?,
        together: together::Together::new(&mut room).ok_or_else(short)?,
        protected: protected::Protected::new(tasks, &mut room).ok_or_else(short)?,
        unwritten: unwritten::Unwritten::new(limit, &mut room).ok_or_else(short)?,
        unshare: unshare::Unshare::new(&mut room).ok_or_else(short)?,
        maps,
        pagemap,
        statm: -1,
        smaps,
        program,
        limit: group::LEAST,
        group,
        parts: parts::Parts::new(ORDER.is_forked.load(Relaxed)),
        probe: probe(uffd).map_err(&no_room)?,
        state: Default::default(),
        counts: Default::default(),
        buffer: buffer.ok_or_else(short)?,
        name: name.ok_or_else(short)?,
        zeros: zeros.ok_or_else(short)?,
        gate,
        bell: growth::Bell::new(uffd).map_err(&no_room)?,
        stack: stack.ok_or_else(short)?,
        room,
    };
    if pager.mapping(0).is_none() {
        return Err(why("it needs Linux 6.11 (PROCMAP_QUERY)")(Errno(libc::ENOTTY)));
    }
    // SAFETY: no arguments but a process.
    let pidfd = unsafe { call(libc::SYS_pidfd_open, args![program, 0]) }
        .map_err(why("no descriptor of a process can be had"))?;
    let pidfd = high(pidfd as c_int);
    let holder = holder::Holder { stack: holder_stack.ok_or_else(short)?, uffd, task: -1 };
    let (report, status) = (open_report(), report::status_file());
    // SAFETY: room for one, unused.
    unsafe { task.write(Task { pager, order: &ORDER, batch, holder, pidfd, report, status }) };
    Ok(task)
}

/// The program's threads, and three views of its memory.
fn open_files(program: c_int) -> Result<[c_int; 4], Failure> {
    let mut folder = Line::new();
    folder.text(b"/proc/").number(program as u64).text(b"/task\0");
    let folder = CStr::from_bytes_until_nul(folder.bytes()).unwrap_or_default();
    // Of this thread: the first one may have ended.
    let [maps, pagemap, smaps] =
        [c"/proc/thread-self/maps", c"/proc/thread-self/pagemap", c"/proc/thread-self/smaps"];
    let paths = [folder, maps, pagemap, smaps];
    let opened = paths.map(open_high);
    match opened.contains(&-1) {
        true => Err(why("/proc cannot be read")(Errno(libc::ENOENT))),
        false => Ok(opened),
    }
}

/// A page that is present and watched.
fn probe(uffd: Userfaultfd) -> SysResult<u64> {
    let page = room::map_own(PAGE)?;
    // SAFETY: our own new page.
    unsafe { (page as *mut u8).write_volatile(1) };
    uffd.register(page as u64, PAGE as u64, abi::REGISTER_MODE_MISSING)?;
    Ok(page as u64)
}

/// Where counts go at the end; -1: nowhere.
fn open_report() -> c_int {
    let path = ORDER.path(1);
    if path.is_empty() {
        return -1;
    }
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    let fd = unsafe { call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), flags, 0o600]) };
    fd.map_or(-1, |fd| high(fd as c_int))
}

/// A new mapping, by its address: where it does not fit it is watched when this returns. Only
/// mappings that the program makes by itself come by here. No system call is made: the program may
/// have forbidden itself those of the pager.
pub fn watch_new(answer: isize, len: usize, prot: c_int, flags: c_int) -> isize {
    let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let is_plain =
        flags & (plain | libc::MAP_SHARED) == plain && prot == libc::PROT_READ | libc::PROT_WRITE;
    if is_plain && check(answer).is_ok() {
        growth::grown(len);
    }
    answer
}

/// What mremap of the program brought may be more than there was. Also where it has only moved,
/// that is known when this returns: what is unmapped at either place from now on comes later.
pub fn remapped(old: (usize, usize), answer: isize, len: usize) {
    if let Ok(at) = check(answer) {
        let more = len.saturating_sub(old.1);
        growth::grown(if at == old.0 { more } else { more.max(PAGE) });
    }
}

/// madvise of a program that is paged so: what keeps pages in place while it gives their content
/// up cannot be seen from here, so it is done in a way that can.
pub fn advise(address: usize, len: usize, advice: c_int) -> isize {
    const GUARD_INSTALL: c_int = 102;
    match advice {
        libc::MADV_FREE => kernel_madvise(address, len, libc::MADV_DONTNEED),
        GUARD_INSTALL => {
            let _ = kernel_madvise(address, len, libc::MADV_DONTNEED);
            kernel_madvise(address, len, advice)
        }
        _ => kernel_madvise(address, len, advice),
    }
}
