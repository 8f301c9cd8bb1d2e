//! Asks one question in a child process and brings the answer back through a pipe.
//!
//! A seccomp filter may kill for a call, a mapping may raise SIGBUS, a fault may hang: each becomes
//! a "no" with its cause, and mounts, namespaces and mappings of the probe die with the child.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{Mark, Seen};

/// Far beyond any probe that works (the slowest takes milliseconds).
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Runs the probe in a child and says what became of it.
pub fn observe(look: fn() -> Seen) -> Seen {
    let Ok((reader, writer)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else {
        return Seen::no("the probe could not start: no pipe");
    };
    // SAFETY: this process has one thread (the launcher starts none; tests fork from theirs, and
    // the child then uses only memory allocation, which glibc keeps usable in a forked child). The
    // child leaves through _exit.
    match unsafe { libc::fork() } {
        -1 => Seen::no(format!(
            "the probe could not start: fork: {}",
            std::io::Error::last_os_error()
        )),
        0 => {
            drop(reader);
            answer(writer, &look());
            // SAFETY: ends the child at once, without exit handlers or buffers of the parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(writer);
            collect(child, reader)
        }
    }
}

fn answer(writer: OwnedFd, seen: &Seen) {
    let letter = match seen.mark {
        Mark::Yes => 'y',
        Mark::Partly => 'p',
        Mark::No => 'n',
    };
    let _ = write!(File::from(writer), "{letter}{}", seen.found);
}

fn collect(child: libc::pid_t, reader: OwnedFd) -> Seen {
    let silent = waited_in_vain(&reader);
    if silent {
        // SAFETY: the pid is our own child's, not yet waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut text = String::new();
    let _ = File::from(reader).read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    if silent {
        return Seen::no("no answer within 5 seconds");
    }
    decode(&text).unwrap_or_else(|| Seen::no(death(status)))
}

fn waited_in_vain(reader: &OwnedFd) -> bool {
    let mut waiting = [PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)];
    loop {
        match poll(&mut waiting, Some(&PATIENCE)) {
            Ok(ready) => return ready == 0,
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        }
    }
}

fn decode(text: &str) -> Option<Seen> {
    let mark = match text.chars().next()? {
        'y' => Mark::Yes,
        'p' => Mark::Partly,
        _ => Mark::No,
    };
    Some(Seen { mark, found: text[1..].to_owned() })
}

fn death(status: libc::c_int) -> String {
    if !libc::WIFSIGNALED(status) {
        return "the probe ended without an answer".to_owned();
    }
    match libc::WTERMSIG(status) {
        libc::SIGSYS => "killed by a seccomp filter".to_owned(),
        libc::SIGXFSZ => "killed by the file size limit".to_owned(),
        libc::SIGBUS => "SIGBUS: no memory behind the mapping".to_owned(),
        signal => format!("killed by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_as_given() {
        assert_eq!(observe(|| Seen::partly("half of it")), Seen::partly("half of it"));
        assert_eq!(observe(|| Seen::yes("")), Seen::yes(""));
    }

    #[test]
    fn a_killed_probe_is_a_no_with_its_cause() {
        // SAFETY (both): the signal goes to the child itself.
        let seen = observe(|| unsafe { libc::raise(libc::SIGSYS) }.into_seen());
        assert_eq!(seen, Seen::no("killed by a seccomp filter"));
        let seen = observe(|| unsafe { libc::raise(libc::SIGKILL) }.into_seen());
        assert_eq!(seen, Seen::no("killed by signal 9"));
    }

    trait IntoSeen {
        fn into_seen(self) -> Seen;
    }

    impl IntoSeen for libc::c_int {
        fn into_seen(self) -> Seen {
            Seen::yes(format!("still alive: {self}"))
        }
    }
}
