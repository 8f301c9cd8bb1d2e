//! The connection to the supervisor: messages with descriptors, and the welcome of a new program.
//!
//! Owns the socket's protocol from the program's side. It maps and registers nothing (`setup`).

use core::ffi::{c_char, c_int, CStr};
use core::sync::atomic::Ordering::Relaxed;

use odfork_pager_protocol::wire::{Kind, Message, MESSAGE_BYTES, OPTION_USER_MODE};
use odfork_sys::{args, call, Errno, SysResult};

use crate::close;
use crate::descriptors::high;
use crate::state::STATE;

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
        None => hello(crate::options::socket_path(), id),
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

pub fn program_name() -> &'static [u8] {
    extern "C" {
        static program_invocation_short_name: *const c_char;
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
        *to = *from as c_char;
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
pub const MOST_FDS: usize = 5;

/// One message and its descriptors; a refusal is its error.
pub fn receive(socket: c_int, fds: &mut [c_int; MOST_FDS]) -> SysResult<Message> {
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
