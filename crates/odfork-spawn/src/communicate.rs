//! Writes to a program and reads both its outputs at once.
//!
//! Owns the loop that serves whichever pipe is ready, so that a program blocked on one full pipe
//! never waits for a parent blocked on another. It does not wait for the program to exit.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

/// What one read takes: a pipe's usual capacity.
const PIECE: usize = 64 << 10;

/// A program's ends, each if there is one.
pub type Pipes = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

/// Writes all of `input` and reads both outputs to their ends, all at once, as
/// [`Child::communicate`](crate::Child::communicate) does, without the wait; for programs whose
/// pipes are held by somebody else. The pipes are closed whatever comes of it. Errors: of poll,
/// read and write, and `OutOfMemory` when the outputs do not fit in memory.
pub fn exchange((stdin, stdout, stderr): Pipes, input: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut writer = Writer::new(stdin, input)?;
    let mut readers = [
        Reader { pipe: stdout.map(|pipe| OwnedFd::from(pipe).into()), bytes: Vec::new() },
        Reader { pipe: stderr.map(|pipe| OwnedFd::from(pipe).into()), bytes: Vec::new() },
    ];
    loop {
        let [out, err] = &readers;
        let mut polled = [
            entry(&writer.pipe, libc::POLLOUT),
            entry(&out.pipe, libc::POLLIN),
            entry(&err.pipe, libc::POLLIN),
        ];
        if polled.iter().all(|entry| entry.fd < 0) {
            let [out, err] = readers;
            return Ok((out.bytes, err.bytes));
        }
        poll(&mut polled, None)?;
        if polled[0].revents != 0 {
            writer.serve()?;
        }
        for (reader, entry) in readers.iter_mut().zip(&polled[1..]) {
            if entry.revents != 0 {
                reader.serve()?;
            }
        }
    }
}

/// The input's rest, and the pipe until it is written.
struct Writer<'a> {
    pipe: Option<File>,
    rest: &'a [u8],
}

impl<'a> Writer<'a> {
    fn new(pipe: Option<ChildStdin>, rest: &'a [u8]) -> io::Result<Writer<'a>> {
        let pipe: Option<File> = pipe.filter(|_| !rest.is_empty()).map(|p| OwnedFd::from(p).into());
        // Only this end: a write must not wait while the program waits for its output to be read.
        if let Some(pipe) = &pipe {
            set_nonblocking(pipe.as_fd())?;
        }
        Ok(Writer { pipe, rest })
    }

    fn serve(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match write_quietly(pipe, self.rest) {
            Ok(n) => self.rest = self.rest.get(n..).unwrap_or(&[]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) if e.kind() == ErrorKind::BrokenPipe => self.rest = &[],
            Err(e) => return Err(e),
        }
        if self.rest.is_empty() {
            self.pipe = None;
        }
        Ok(())
    }
}

/// A Rust program ignores SIGPIPE; in any other the write of a closed pipe would end it. The signal
/// is sent to the writing thread, so it is blocked there and, if the write made it pending, taken
/// away.
fn write_quietly(pipe: &mut File, bytes: &[u8]) -> io::Result<usize> {
    let pending = || {
        let mut set = 0u64;
        // SAFETY: 8 bytes, the kernel's size of a set.
        unsafe { odfork_sys::raw(libc::SYS_rt_sigpending, odfork_sys::args![&mut set, 8]) };
        set & 1 << (libc::SIGPIPE - 1) != 0
    };
    let mask = odfork_sys::block_signals();
    let was_pending = pending();
    let written = pipe.write(bytes);
    let broken = written.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe);
    if broken && !was_pending && pending() {
        let (set, now) = (1u64 << (libc::SIGPIPE - 1), [0i64; 2]);
        // SAFETY: a set and a time of zero, the kernel's sizes; nothing is stored.
        unsafe {
            odfork_sys::raw(libc::SYS_rt_sigtimedwait, odfork_sys::args![&set, 0, &now, 8]);
        }
    }
    odfork_sys::restore_signals(mask);
    written
}

struct Reader {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl Reader {
    fn serve(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let length = self.bytes.len();
        self.bytes.try_reserve(PIECE)?;
        self.bytes.resize(length + PIECE, 0);
        // Poll said there is something, or the end: one read does not wait.
        let read = pipe.read(self.bytes.get_mut(length..).unwrap_or(&mut []));
        self.bytes.truncate(length + read.as_ref().map_or(0, |&n| n));
        match read {
            Ok(0) => self.pipe = None,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// An entry that poll leaves alone when there is no pipe.
fn entry(pipe: &Option<File>, events: i16) -> libc::pollfd {
    libc::pollfd { fd: pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd), events, revents: 0 }
}

/// Waits until `fd` can be read or the deadline has passed.
pub fn await_one(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    let mut polled = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    poll(&mut polled, deadline)
}

/// Time until the deadline; `None`: for ever.
pub fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|at| at.saturating_duration_since(Instant::now()))
}

/// Until one is ready or the deadline has passed; goes on when a signal interrupts.
fn poll(entries: &mut [libc::pollfd], deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let time = left(deadline).map(|left| libc::timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as many entries as told, and a time or null.
        let ready = unsafe {
            libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, time, std::ptr::null())
        };
        if ready >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: flags of a descriptor of ours.
    let done = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
