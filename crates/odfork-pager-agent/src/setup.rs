//! From a welcome to paged memory: the userfaultfd, the shared pages, the worker, new regions.
//!
//! A program connects when it makes its first large mapping, so that programs without one pay
//! nothing. On any failure nothing stays, and the mapping is left to the kernel.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use odfork_pager_protocol::control::{op, Control, Doorbell, Span, CONTROL_BYTES, MAGIC};
use odfork_pager_protocol::wire::{Kind, Message};
use odfork_pager_protocol::{PAGE, USERFAULTFD_FEATURES};
use odfork_sys::abi::userfaultfd;
use odfork_sys::{args, call, getpid, Errno, SysResult};

use crate::calls::{ask, publish};
use crate::connection::{hello, program_name, receive, send, Welcome, MOST_FDS};
use crate::descriptors::{high, open_high, KeptFd};
use crate::state::{mode, Locked, STATE};
use crate::{close, ioctl, kernel_mmap, kernel_munmap, worker};

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

fn map_shared(fd: c_int, len: usize) -> SysResult<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    odfork_sys::check(kernel_mmap(0, len, prot, libc::MAP_SHARED, fd, 0))
}

/// Takes over what the supervisor gave, and starts the worker. On failure nothing stays.
pub fn attach(welcome: &Welcome) -> SysResult<()> {
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
        [&STATE.uffd, &STATE.pagemap, &STATE.maps].into_iter().for_each(KeptFd::close);
        return done;
    }
    close(welcome.control);
    close(welcome.doorbell);
    close(welcome.device);
    done
}

/// Connects this process if it has not tried yet; true when it is connected.
pub fn ensure_connected(_held: &mut Locked) -> bool {
    match STATE.mode.load(Relaxed) {
        mode::CONNECTED => return true,
        mode::FRESH => {}
        _ => return false,
    }
    let done = crate::pins::refuse()
        .and_then(|()| hello(crate::options::socket_path(), 0))
        .and_then(|welcome| attach(&welcome).inspect_err(|_| welcome.close_all()));
    STATE.mode.store(if done.is_ok() { mode::CONNECTED } else { mode::OFF }, Relaxed);
    if let Err(error) = done {
        crate::messages::warn_not_paged(error);
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
pub fn map_region(locked: &mut Locked, hint: usize, len: usize) -> SysResult<usize> {
    let is_connected = ensure_connected(locked);
    if is_connected && !locked.regions().has_room() {
        crate::unlimited::tell_many();
    }
    if !is_connected || !locked.regions().has_room() || !STATE.backing.is_there() {
        return Err(Errno(libc::ENOMEM));
    }
    let offset = locked.regions().place(len as u64).ok_or(Errno(libc::ENOMEM))?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let backing = STATE.backing.number();
    let address = odfork_sys::check(kernel_mmap(hint, len, prot, flags, backing, offset as i64))?;
    crate::stack::note_paged(address, len);
    let span = Span { address: address as u64, offset, len: len as u64, flags: 0 };
    let mut done = register(&span);
    if done.is_ok() {
        locked.regions().add(span);
        publish(locked);
        if ask(locked, op::REGIONS, [0; 2]) != 0 {
            locked.regions().remove_one(span.address, span.len);
            done = Err(Errno(libc::ENOMEM));
        }
    }
    if let Err(error) = done {
        kernel_munmap(address, len);
        return Err(error);
    }
    Ok(address)
}
