//! What a process inherits besides its environment: signals and descriptors. The judge is the
//! program started without the launcher from the same state.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::stage::{bare, finish, odfork, run, scratch, witness};

/// Puts the child into a state between fork and exec. What the test itself inherited beyond
/// standard error goes.
fn prepared(mut command: Command, prepare: fn() -> io::Result<()>) -> Command {
    // SAFETY: this and the functions below only make system calls.
    unsafe {
        command.pre_exec(move || {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            prepare()
        })
    };
    command
}

/// Asks the same question of both, and gives the answer they agree on.
fn same_both_ways(question: &str, prepare: fn() -> io::Result<()>) -> String {
    let mut plain = bare(witness());
    plain.arg(question);
    let expected = finish(&mut prepared(plain, prepare)).silent().out;
    let launched = finish(&mut prepared(run(witness(), &[question]), prepare)).silent().out;
    assert_eq!(launched, expected);
    expected
}

fn set_disposition(signal: libc::c_int, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: sets a standard disposition, no handler.
    match unsafe { libc::signal(signal, disposition) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[test]
fn sigpipe_stays_default() {
    let seen = same_both_ways("signals", || set_disposition(libc::SIGPIPE, libc::SIG_DFL));
    assert!(seen.contains("13D "), "{seen}");
}

#[test]
fn sigpipe_stays_ignored() {
    let seen = same_both_ways("signals", || set_disposition(libc::SIGPIPE, libc::SIG_IGN));
    assert!(seen.contains("13I "), "{seen}");
}

#[test]
fn ignored_and_blocked_signals_stay_so() {
    let seen = same_both_ways("signals", || {
        for signal in [libc::SIGHUP, libc::SIGSEGV, libc::SIGBUS, libc::SIGCHLD] {
            set_disposition(signal, libc::SIG_IGN)?;
        }
        // SAFETY: a signal set of our own.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigaddset(&mut set, libc::SIGRTMIN());
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        Ok(())
    });
    for expected in ["1I ", "7I ", "11I ", "17I ", "blocked: 10 34"] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
}

/// The open descriptors as the program saw them.
fn descriptors(mut command: Command, prepare: fn() -> io::Result<()>) -> String {
    let folder = scratch();
    let answer = folder.path().join("answer");
    command.arg("descriptors").arg(&answer);
    assert_eq!(finish(&mut prepared(command, prepare)).code, Some(0));
    fs::read_to_string(answer).unwrap()
}

fn close(descriptor: libc::c_int) {
    // SAFETY: the child's own descriptors, just before exec.
    unsafe { libc::close(descriptor) };
}

fn descriptors_both_ways(prepare: fn() -> io::Result<()>) -> String {
    let expected = descriptors(bare(witness()), prepare);
    assert_eq!(descriptors(run(witness(), &[]), prepare), expected);
    expected
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let seen = descriptors_both_ways(|| {
        close(0);
        Ok(())
    });
    assert!(!seen.contains("0:0") && seen.contains("1:0 2:0"), "{seen}");
    let seen = descriptors_both_ways(|| {
        (0..3).for_each(close);
        Ok(())
    });
    assert_eq!(seen, "\n");
}

#[test]
fn further_descriptors_are_inherited_and_none_is_added() {
    let seen = descriptors_both_ways(|| {
        // SAFETY: duplicates of standard output, one of them close-on-exec.
        unsafe {
            libc::dup2(1, 9);
            libc::dup3(1, 10, libc::O_CLOEXEC);
        }
        Ok(())
    });
    assert_eq!(seen, "0:0 1:0 2:0 9:0 \n");
}

#[test]
fn a_line_for_a_closed_standard_error_is_lost_without_harm() {
    let mut command = odfork(&["run", "--freeze"]);
    let outcome = finish(&mut prepared(
        {
            command.arg("wrong");
            command
        },
        || {
            (0..3).for_each(close);
            Ok(())
        },
    ));
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_error_message() {
    let mut command = bare("sh");
    command.args([
        "-c",
        &format!(
            "{} options | true; {} man run | head -1",
            crate::stage::odfork_path(),
            crate::stage::odfork_path()
        ),
    ]);
    let outcome = finish(&mut command);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
}
