//! The daemon's process: from the descriptor it was started with to the loop that serves.

use std::io::{self, Error};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use odfork_pager_protocol::wire::Kind;

use crate::daemon::{Daemon, Settings};
use crate::socket;
use crate::supervisor::DAEMON_FD;
use crate::sys;

/// Serves the supervisor at descriptor 3 until it and all programs are gone.
///
/// # Errors
/// Not started by a supervisor, or no memory.
pub fn serve(settings: Settings) -> io::Result<()> {
    // SAFETY: the supervisor put the socket there; nothing else in this process owns it.
    let supervisor = unsafe { OwnedFd::from_raw_fd(DAEMON_FD) };
    prepare();
    let first = socket::receive(supervisor.as_fd())?;
    let Some((message, fds)) = first else { return Ok(()) };
    let mut fds = fds.into_iter();
    match (message.kind(), fds.next(), fds.next()) {
        (Some(Kind::Begin), Some(store), Some(doorbell)) => {
            let daemon = Daemon::new(settings, store, doorbell.as_fd(), supervisor)?;
            daemon.run();
            Ok(())
        }
        _ => Err(Error::other("'odfork page serve' is started by 'odfork page daemon' only")),
    }
}

/// The daemon must not be paged itself, nor killed for memory before its programs, nor leave their
/// content in a core file. What is not allowed to this user is left out.
fn prepare() {
    sys::raise_open_files();
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    // SAFETY: plain calls that change only this process.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        // On fault: the tables are sparse. For others than root the whole mapping would count as
        // locked.
        if libc::geteuid() == 0 {
            libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
        }
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::setsid();
    }
}
