//! Ctrl-C, and a terminal that goes away: the first one asks the run to end early and print what it
//! has; the second one kills as usual.
//!
//! The handler only sets a flag. It is installed without SA_RESTART, so a wait for a subject
//! returns with EINTR and sees the flag at once; SA_RESETHAND gives the second Ctrl-C its default
//! meaning.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// Makes SIGINT, SIGTERM and SIGHUP end the run early instead of killing it; one that is ignored
/// (nohup) stays so.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a zeroed sigaction is a valid value (empty mask, no flags); the handler only
        // stores to an atomic, which is allowed in a signal handler. A failure leaves the default
        // action: acceptable.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Whether the user has asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_goes_away_asks_too() {
        // SAFETY: signals of this process; the handler only sets a flag.
        unsafe {
            // Under nohup it is ignored.
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            libc::signal(libc::SIGTERM, libc::SIG_IGN);
            listen();
            libc::raise(libc::SIGTERM);
            assert!(!asked(), "an ignored signal stays so");
            libc::raise(libc::SIGHUP);
            assert!(asked());
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
    }
}
