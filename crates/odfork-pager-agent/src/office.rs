//! The agent's state, its connection to the supervisor, and calls to the daemon.
//!
//! A program connects when it makes its first large mapping, so that small ones pay nothing.
//! Descriptors get high numbers and are never trusted: a program may close what it does not know.
//! They are compared by inode before they are mapped, spoken over or closed; ioctls fail on
//! anything else.

use core::cell::UnsafeCell;
use core::ffi::{c_int, CStr};
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use odfork_pager_protocol::control::{op, Control, Doorbell, Span, CONTROL_BYTES, MAGIC};
use odfork_pager_protocol::wire::{Kind, Message, MESSAGE_BYTES, OPTION_USER_MODE};
use odfork_pager_protocol::PAGE;
use odfork_pager_protocol::USERFAULTFD_FEATURES;
use odfork_sys::abi::userfaultfd;
use odfork_sys::{
    args, block_signals, call, getpid, restore_signals, Errno, ProcessLock, SysResult,
};

use crate::regions::Regions;
use crate::{close, futex_wait, futex_wake, ioctl, kernel_mmap, kernel_munmap, worker};

/// Descriptors are moved here and above.
const HIGH_FD: c_int = 700;

/// How far this process has come.
pub mod mode {
    /// Not connected yet.
    pub const FRESH: u32 = 0;
    pub const CONNECTED: u32 = 1;
    /// Left to the kernel: no daemon was named or could be had, or this is a child that lost its
    /// memory.
    pub const OFF: u32 = 2;
}

/// A descriptor and what it was when we made it: a program may close it, and make another one of
/// the same number.
pub struct Kept {
    fd: AtomicI32,
    inode: AtomicU64,
}

impl Kept {
    const fn none() -> Kept {
        Kept { fd: AtomicI32::new(-1), inode: AtomicU64::new(0) }
    }

    fn keep(&self, fd: c_int) {
        self.fd.store(fd, Relaxed);
        self.inode.store(inode(fd), Relaxed);
    }

    /// The number, whatever it is by now: for calls that fail on anything else.
    pub fn number(&self) -> c_int {
        self.fd.load(Relaxed)
    }

    pub fn inode(&self) -> u64 {
        self.inode.load(Relaxed)
    }

    /// It still is what it was.
    pub fn is_there(&self) -> bool {
        inode(self.number()) == self.inode()
    }

    /// Closes it, if it still is what it was.
    fn give_up(&self) {
        let is_there = self.is_there();
        let fd = self.fd.swap(-1, Relaxed);
        if is_there {
            close(fd);
        }
    }
}

pub struct State {
    lock: ProcessLock,
    pub mode: AtomicU32,
    /// The process that `mode` speaks of: a child of a fork that went past the handlers is another
    /// one.
    pub pid: AtomicI32,
    pub id: AtomicU32,
    pub uffd: Kept,
    pub backing: Kept,
    pub pagemap: Kept,
    pub maps: Kept,
    socket: Kept,
    pub control: AtomicPtr<Control>,
    doorbell: AtomicPtr<Doorbell>,
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
    uffd: Kept::none(),
    backing: Kept::none(),
    pagemap: Kept::none(),
    maps: Kept::none(),
    socket: Kept::none(),
    control: AtomicPtr::new(core::ptr::null_mut()),
    doorbell: AtomicPtr::new(core::ptr::null_mut()),
    regions: UnsafeCell::new(Regions::new()),
    count: AtomicUsize::new(0),
    threshold: AtomicUsize::new(256 << 10),
};

/// The lock, and with it the regions. Signals are blocked meanwhile: a handler must find the lock
/// free or wait for another thread, never for itself.
pub struct Held {
    mask: u64,
}

impl Held {
    pub fn take() -> Held {
        let mask = block_signals();
        STATE.lock.take();
        Held { mask }
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
    pub fn from_mask(mask: u64) -> Held {
        Held { mask }
    }
}

impl Drop for Held {
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
/// are not inherited, and it must not speak with its parent's voice.
pub fn is_own() -> bool {
    STATE.pid.load(Relaxed) == getpid()
}

pub fn control() -> Option<&'static Control> {
    // SAFETY: null or the mapping of the control file, which stays until a forked child replaces
    // it.
    unsafe { STATE.control.load(Acquire).as_ref() }
}

/// Wakes the daemon's scanner.
pub fn ring() {
    // SAFETY: null or the mapping of the doorbell, which is never unmapped.
    let Some(doorbell) = (unsafe { STATE.doorbell.load(Acquire).as_ref() }) else { return };
    doorbell.rung.fetch_add(1, SeqCst);
    if doorbell.sleeping.load(SeqCst) != 0 {
        futex_wake(&doorbell.rung);
    }
}

/// Writes the region list where the daemon reads it.
pub fn publish(held: &mut Held) {
    let Some(control) = control() else { return };
    control.regions.publish(held.regions().list());
}

/// Makes a call and waits for the answer: zero or a negative error number. While there is no
/// daemon, it waits.
pub fn ask(_held: &Held, what: u32, arguments: [u64; 2]) -> i32 {
    let Some(control) = control() else { return -libc::ENOTCONN };
    let call = &control.call;
    call.op.store(what, Relaxed);
    call.args[0].store(arguments[0], Relaxed);
    call.args[1].store(arguments[1], Relaxed);
    let number = call.answered.load(Acquire).wrapping_add(1);
    call.asked.store(number, Release);
    ring();
    loop {
        let answered = call.answered.load(Acquire);
        if answered == number {
            return call.result.load(Acquire);
        }
        futex_wait(&call.answered, answered);
    }
}

/// What the supervisor gives a program.
pub struct Welcome {
    pub id: u32,
    pub socket: c_int,
    pub control: c_int,
    pub backing: c_int,
    pub doorbell: c_int,
    /// /dev/userfaultfd or -1.
    pub device: c_int,
    pub user_mode: bool,
}

impl Welcome {
    pub fn close_all(&self) {
        [self.socket, self.control, self.backing, self.doorbell, self.device]
            .into_iter()
            .for_each(close);
    }
}

/// Connects, as a new program or (parent not 0) for a child to be.
pub fn hello(path: &CStr, parent: u32) -> SysResult<Welcome> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: plain arguments.
    let socket = unsafe { call(libc::SYS_socket, args![libc::AF_UNIX, kind, 0])? } as c_int;
    let socket = high(socket);
    let answer = connect(socket, path)
        .and_then(|()| {
            let hello = Message { id: parent, ..Message::new(Kind::Hello) };
            send(socket, &hello.with_text(program_name()), -1)
        })
        .and_then(|()| welcome(socket, Some(socket)));
    if answer.is_err() {
        close(socket);
    }
    answer
}

/// For a child to be, over the connection of this program: it has changed neither its user nor its
/// root. Where the program has closed that, over a new one.
pub fn hello_for_child() -> SysResult<Welcome> {
    let id = STATE.id.load(Relaxed);
    match own_socket() {
        Some(socket) => {
            let hello = Message { id, ..Message::new(Kind::Hello) };
            send(socket, &hello.with_text(program_name()), -1)?;
            welcome(socket, None)
        }
        None => hello(crate::life::socket_path(), id),
    }
}

fn own_socket() -> Option<c_int> {
    STATE.socket.is_there().then(|| STATE.socket.number())
}

/// The supervisor is there, as far as can be told.
pub fn is_supervised() -> bool {
    let Some(socket) = own_socket() else { return true };
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for one byte.
    let answer = unsafe { call(libc::SYS_recvfrom, args![socket, &raw mut byte, 1, flags, 0, 0]) };
    !matches!(answer, Ok(0) | Err(Errno(libc::ECONNRESET)))
}

fn program_name() -> &'static [u8] {
    extern "C" {
        static program_invocation_short_name: *const core::ffi::c_char;
    }
    // SAFETY: set by the C library before constructors run, never freed.
    unsafe {
        match program_invocation_short_name.is_null() {
            true => b"?",
            false => CStr::from_ptr(program_invocation_short_name).to_bytes(),
        }
    }
}

fn connect(socket: c_int, path: &CStr) -> SysResult<()> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let bytes = path.to_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as i8;
    }
    let len = size_of::<libc::sa_family_t>() + bytes.len() + 1;
    // SAFETY: a valid address of that length.
    unsafe { call(libc::SYS_connect, args![socket, &address, len]) }?;
    check_owner(socket)
}

/// Whoever listens gets all of this program's memory: only root or this user may.
fn check_owner(socket: c_int) -> SysResult<()> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as u32;
    // SAFETY: a buffer of the size given; the second call has no arguments.
    let own = unsafe {
        let option = args![socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut who, &mut len];
        call(libc::SYS_getsockopt, option)?;
        call(libc::SYS_geteuid, args![])? as u32
    };
    match who.uid == 0 || who.uid == own {
        true => Ok(()),
        false => Err(Errno(libc::EPERM)),
    }
}

#[repr(C, align(8))]
struct Ancillary([u8; 64]);

/// Sends a message, with a descriptor unless it is -1.
pub fn send(socket: c_int, message: &Message, fd: c_int) -> SysResult<()> {
    let bytes = message.to_bytes();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut room = Ancillary([0; 64]);
    // SAFETY: header and buffers are valid for the call; the room is larger than one descriptor
    // needs.
    unsafe {
        let mut header: libc::msghdr = core::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if fd >= 0 {
            header.msg_control = room.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(first).cast::<c_int>().write_unaligned(fd);
        }
        call(libc::SYS_sendmsg, args![socket, &header, libc::MSG_NOSIGNAL]).map(drop)
    }
}

/// The most descriptors of one message.
const MOST_FDS: usize = 5;

/// One message and its descriptors; a refusal is its error.
fn receive(socket: c_int, fds: &mut [c_int; MOST_FDS]) -> SysResult<Message> {
    let mut bytes = [0u8; MESSAGE_BYTES];
    let mut room = Ancillary([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: header and buffers are valid for the call.
    unsafe {
        let mut header: libc::msghdr = core::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = room.0.len();
        call(libc::SYS_recvmsg, args![socket, &mut header, libc::MSG_CMSG_CLOEXEC])?;
        let first = libc::CMSG_FIRSTHDR(&header);
        if !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS {
            let count = ((*first).cmsg_len - libc::CMSG_LEN(0) as usize) / 4;
            let data = libc::CMSG_DATA(first).cast::<c_int>();
            for (at, fd) in fds.iter_mut().enumerate().take(count) {
                *fd = high(data.add(at).read_unaligned());
            }
        }
        // Those that came are the caller's to close.
        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(Errno(libc::EMFILE));
        }
    }
    match Message::from_bytes(&bytes) {
        Some(message) if message.kind() == Some(Kind::Refused) => Err(Errno(message.pid)),
        Some(message) => Ok(message),
        None => Err(Errno(libc::EPROTO)),
    }
}

/// A welcome; without a socket for it, one comes along, before the device.
fn welcome(from: c_int, given: Option<c_int>) -> SysResult<Welcome> {
    let mut fds = [-1; MOST_FDS];
    let answer = receive(from, &mut fds);
    let [control, backing, doorbell, fourth, fifth] = fds;
    let (socket, device) = match given {
        Some(socket) => (socket, fourth),
        None => (fourth, fifth),
    };
    match answer {
        Ok(message) if message.kind() == Some(Kind::Welcome) && doorbell >= 0 && socket >= 0 => {
            let user_mode = message.flags & OPTION_USER_MODE != 0;
            Ok(Welcome { id: message.id, socket, control, backing, doorbell, device, user_mode })
        }
        other => {
            fds.into_iter().for_each(close);
            Err(other.err().unwrap_or(Errno(libc::EPROTO)))
        }
    }
}

/// Moves a descriptor out of the program's way, where there is room.
fn high(fd: c_int) -> c_int {
    // SAFETY: plain arguments; on failure the descriptor stays where it is.
    unsafe {
        match call(libc::SYS_fcntl, args![fd, libc::F_DUPFD_CLOEXEC, HIGH_FD]) {
            Ok(moved) => {
                close(fd);
                moved as c_int
            }
            Err(_) => fd,
        }
    }
}

/// A file to read; -1 when it cannot be had.
fn open_high(path: &CStr) -> c_int {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    let opened = unsafe { call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), flags, 0]) };
    opened.map_or(-1, |fd| high(fd as c_int))
}

/// A userfaultfd of this process with all that paging needs.
pub fn new_uffd(device: c_int, user_mode: bool) -> SysResult<c_int> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: plain arguments and a constant path.
    let made = unsafe {
        call(libc::SYS_userfaultfd, args![flags])
            .or_else(|error| match device {
                -1 => Err(error),
                fd => call(libc::SYS_ioctl, args![fd, userfaultfd::NEW, flags]),
            })
            .or_else(|error| {
                let path = c"/dev/userfaultfd".as_ptr();
                let open = args![libc::AT_FDCWD, path, libc::O_RDWR | libc::O_CLOEXEC, 0];
                let fd = call(libc::SYS_openat, open).map_err(|_| error)? as c_int;
                let made = call(libc::SYS_ioctl, args![fd, userfaultfd::NEW, flags]);
                close(fd);
                made
            })
            .or_else(|error| match user_mode {
                true => call(libc::SYS_userfaultfd, args![flags | userfaultfd::USER_MODE_ONLY]),
                false => Err(error),
            })
    };
    let uffd = high(made? as c_int);
    let mut api =
        userfaultfd::Api { api: userfaultfd::VERSION, features: USERFAULTFD_FEATURES, ioctls: 0 };
    if let Err(error) = ioctl(uffd, userfaultfd::API, &mut api) {
        close(uffd);
        return Err(error);
    }
    Ok(uffd)
}

fn inode(fd: c_int) -> u64 {
    // SAFETY: a zeroed stat is a valid buffer.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        match call(libc::SYS_fstat, args![fd, &mut stat]) {
            Ok(_) => stat.st_ino,
            Err(_) => 0,
        }
    }
}

/// Closes the parent's descriptors in a forked child.
pub fn close_inherited() {
    let all = [&STATE.uffd, &STATE.backing, &STATE.pagemap, &STATE.maps, &STATE.socket];
    all.into_iter().for_each(Kept::give_up);
}

fn map_shared(fd: c_int, len: usize) -> SysResult<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    odfork_sys::check(kernel_mmap(0, len, prot, libc::MAP_SHARED, fd, 0))
}

/// Takes over what the supervisor gave, and starts the worker. On failure nothing stays.
pub fn settle(welcome: &Welcome) -> SysResult<()> {
    let uffd = new_uffd(welcome.device, welcome.user_mode)?;
    let mapped = map_shared(welcome.control, CONTROL_BYTES)
        .and_then(|control| Ok((control, map_shared(welcome.doorbell, PAGE)?)));
    let (control, doorbell) = match mapped {
        Ok(both) => both,
        Err(error) => {
            close(uffd);
            return Err(error);
        }
    };
    // The parent's, in a forked child.
    let before = STATE.doorbell.swap(doorbell as *mut Doorbell, Release);
    if !before.is_null() {
        kernel_munmap(before as usize, PAGE);
    }
    let before = STATE.control.swap(control as *mut Control, Release);
    if !before.is_null() {
        kernel_munmap(before as usize, CONTROL_BYTES);
    }
    // SAFETY: just mapped, of that size.
    let magic = unsafe { (*(control as *const Control)).magic.load(Acquire) };
    if magic != MAGIC {
        close(uffd);
        return Err(Errno(libc::EPROTO));
    }
    STATE.uffd.keep(uffd);
    STATE.backing.keep(welcome.backing);
    STATE.socket.keep(welcome.socket);
    STATE.pagemap.keep(open_high(c"/proc/self/pagemap"));
    STATE.maps.keep(open_high(c"/proc/self/maps"));
    STATE.id.store(welcome.id, Relaxed);
    STATE.pid.store(getpid(), Relaxed);
    let attach = Message { id: welcome.id, ..Message::new(Kind::Attach) };
    let done = send(welcome.socket, &attach.with_text(program_name()), uffd)
        .and_then(|()| receive(welcome.socket, &mut [-1; MOST_FDS]))
        .and_then(|_| worker::start());
    if done.is_err() {
        [&STATE.uffd, &STATE.pagemap, &STATE.maps].into_iter().for_each(Kept::give_up);
        return done;
    }
    close(welcome.control);
    close(welcome.doorbell);
    close(welcome.device);
    done
}

/// Connects this process if it has not tried yet; true when it is connected.
pub fn connected(_held: &mut Held) -> bool {
    match STATE.mode.load(Relaxed) {
        mode::CONNECTED => return true,
        mode::FRESH => {}
        _ => return false,
    }
    let done = crate::pins::refuse()
        .and_then(|()| hello(crate::life::socket_path(), 0))
        .and_then(|welcome| settle(&welcome).inspect_err(|_| welcome.close_all()));
    STATE.mode.store(if done.is_ok() { mode::CONNECTED } else { mode::OFF }, Relaxed);
    if let Err(error) = done {
        crate::life::complain(error);
    }
    done.is_ok()
}

/// Registers a range of the backing memfd with the userfaultfd. It is not inherited by a fork: a
/// child without a userfaultfd of its own would read zeros there, and put them into the backing
/// memfd for its parent.
pub fn register(span: &Span) -> SysResult<()> {
    let (address, len) = (span.address as usize, span.len as usize);
    odfork_sys::check(crate::kernel_madvise(address, len, libc::MADV_DONTFORK))?;
    let mut register = userfaultfd::Register {
        range: userfaultfd::Range { start: span.address, len: span.len },
        mode: userfaultfd::REGISTER_MODE_MISSING
            | userfaultfd::REGISTER_MODE_MINOR
            | userfaultfd::REGISTER_MODE_WP,
        ioctls: 0,
    };
    ioctl(STATE.uffd.number(), userfaultfd::REGISTER, &mut register).map(drop)
}

/// Maps a new region and tells the daemon; its address.
pub fn map_region(held: &mut Held, hint: usize, len: usize) -> SysResult<usize> {
    if !connected(held) || !held.regions().has_room() || !STATE.backing.is_there() {
        return Err(Errno(libc::ENOMEM));
    }
    let offset = held.regions().place(len as u64).ok_or(Errno(libc::ENOMEM))?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let backing = STATE.backing.number();
    let address = odfork_sys::check(kernel_mmap(hint, len, prot, flags, backing, offset as i64))?;
    crate::stack::note(address, len);
    let span = Span { address: address as u64, offset, len: len as u64, flags: 0 };
    let mut done = register(&span);
    if done.is_ok() {
        held.regions().add(span);
        publish(held);
        if ask(held, op::REGIONS, [0; 2]) != 0 {
            held.regions().remove_one(span.address, span.len);
            done = Err(Errno(libc::ENOMEM));
        }
    }
    if let Err(error) = done {
        kernel_munmap(address, len);
        return Err(error);
    }
    Ok(address)
}
