//! A program made by hand: it speaks to the supervisor and lies.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use odfork_pager::sys::{self, Mapping};
use odfork_pager::{endpoint, socket};
use odfork_pager_protocol::control::{Control, Doorbell, CONTROL_BYTES};
use odfork_pager_protocol::wire::{Kind, Message};
use odfork_pager_protocol::USERFAULTFD_FEATURES;
use odfork_sys::abi::userfaultfd;

use super::others::text;
use super::world::*;

/// A program made by hand: connection, control pages, a userfaultfd of this process.
pub struct Liar {
    pub socket: OwnedFd,
    pub control: Mapping,
    pub doorbell: Mapping,
}

impl Liar {
    pub fn hello(world: &World, parent: u32) -> Result<Result<(Liar, u32), i32>, String> {
        let socket = endpoint::connect(&world.folder.join("sock")).map_err(text)?;
        let hello = Message { id: parent, ..Message::new(Kind::Hello) };
        socket::send(socket.as_fd(), &hello, &[]).map_err(text)?;
        let (answer, fds) =
            socket::receive(socket.as_fd()).map_err(text)?.ok_or("the supervisor hung up")?;
        if answer.kind() != Some(Kind::Welcome) {
            return Ok(Err(answer.pid));
        }
        let control = Mapping::of(fds[0].as_fd(), CONTROL_BYTES).map_err(text)?;
        let doorbell = Mapping::of(fds[2].as_fd(), 4096).map_err(text)?;
        Ok(Ok((Liar { socket, control, doorbell }, answer.id)))
    }

    /// The kind of the answer, and its error number.
    pub fn attach(&self, fd: &OwnedFd) -> Result<(Option<Kind>, i32), String> {
        socket::send(self.socket.as_fd(), &Message::new(Kind::Attach), &[fd.as_fd()])
            .map_err(text)?;
        let (answer, _) =
            socket::receive(self.socket.as_fd()).map_err(text)?.ok_or("the supervisor hung up")?;
        Ok((answer.kind(), answer.pid))
    }

    pub fn ask(&self, what: u32, argument: u64) -> Result<i32, String> {
        // SAFETY: mappings of their whole files; all fields used are atomic.
        let (control, doorbell) = unsafe {
            (&*self.control.as_ptr().cast::<Control>(), &*self.doorbell.as_ptr().cast::<Doorbell>())
        };
        control.call.op.store(what, Ordering::Relaxed);
        control.call.args[0].store(argument, Ordering::Relaxed);
        let number = control.call.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        doorbell.rung.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&doorbell.rung);
        wait_for("an answer", || control.call.answered.load(Ordering::Acquire) == number)?;
        Ok(control.call.result.load(Ordering::Acquire))
    }
}

pub fn new_uffd(ready: bool) -> Result<OwnedFd, String> {
    // SAFETY: a new descriptor, and the structure that belongs to the number.
    unsafe {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let made = sys::check(libc::syscall(libc::SYS_userfaultfd, flags) as i32).map_err(text)?;
        let made = OwnedFd::from_raw_fd(made);
        let mut api = userfaultfd::Api {
            api: userfaultfd::VERSION,
            features: USERFAULTFD_FEATURES,
            ioctls: 0,
        };
        if ready {
            sys::check(libc::ioctl(made.as_raw_fd(), userfaultfd::API, &mut api)).map_err(text)?;
        }
        Ok(made)
    }
}
