//! `odfork run --engine kernel --stats`: the program runs as a child, as under time(1), and what
//! the kernel counted meanwhile is written when it is over.
//!
//! The counters are of the whole system, and the words say so. Signals sent to odfork go on to the
//! program; those of the terminal (interrupt, quit, stop) reach it by themselves. Nothing else of
//! `odfork run` uses this file.

use std::ffi::OsStr;
use std::fs;
use std::io::{Error, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use odfork_proc::cow_fork::{self, Counters};

use crate::message::say;

/// Each of these lets odfork go on waiting.
const TERMINAL: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];
const FORWARDED: [i32; 4] = [libc::SIGHUP, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

const SCHEMA: u32 = 1;

/// How the statistics are written, and where; None: standard error.
pub struct Wish {
    pub json: bool,
    pub file: Option<PathBuf>,
}

static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn forward(signal: i32) {
    // SAFETY: kill(2) may be called in a handler; the child has not been waited for, or the call
    // fails.
    unsafe { libc::kill(CHILD.load(Ordering::Relaxed), signal) };
}

/// Runs what `exec` becomes, called `name` in the statistics, and ends as it ended; comes back only
/// when it could not be started.
///
/// `exec` runs in a child and returns only with the reason why it failed.
pub fn run(wish: &Wish, name: &OsStr, exec: impl FnOnce() -> Error) -> Error {
    let name = Path::new(name).file_name().unwrap_or(name).to_string_lossy();
    let (before, begun) = (cow_fork::counters(), Instant::now());
    // Nothing arrives between the fork and the handlers; the child execs with the mask as it was.
    let inherited = block();
    let started = spawn(|| {
        restore(&inherited);
        exec()
    });
    let (child, failed) = match started {
        Ok(started) => started,
        Err(error) => return error,
    };
    CHILD.store(child, Ordering::Relaxed);
    let handler = forward as extern "C" fn(i32);
    TERMINAL.iter().for_each(|&signal| dispose(signal, libc::SIG_IGN));
    FORWARDED.iter().for_each(|&signal| dispose(signal, handler as libc::sighandler_t));
    restore(&inherited);
    let status = wait(child);
    if let Some(error) = failed() {
        return error;
    }
    let counted = cow_fork::counted(&before, &cow_fork::counters());
    write(wish, &name, child, (begun.elapsed(), &counted));
    end_as(status)
}

/// The child's id, and a look at why its exec failed.
fn spawn(exec: impl FnOnce() -> Error) -> Result<(i32, impl FnOnce() -> Option<Error>), Error> {
    let mut ends = [0; 2];
    // SAFETY: fills the two descriptors. This process has one thread, so the child may do what any
    // process may.
    let child = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(Error::last_os_error());
        }
        libc::fork()
    };
    let [reader, writer] = ends;
    if child == 0 {
        let errno = exec().raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
        // SAFETY: four bytes into a pipe that is empty; the process ends without the parent's exit
        // handlers.
        unsafe {
            libc::write(writer, errno.as_ptr().cast(), errno.len());
            libc::_exit(127);
        }
    }
    let trouble = Error::last_os_error();
    // SAFETY: our own descriptor, used nowhere else.
    unsafe { libc::close(writer) };
    if child < 0 {
        return Err(trouble);
    }
    let failed = move || {
        let mut errno = [0; 4];
        // SAFETY: reads at most four bytes; exec closed the other end, or the child wrote and
        // ended.
        let got = unsafe { libc::read(reader, errno.as_mut_ptr().cast(), errno.len()) };
        (got == 4).then(|| Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    };
    Ok((child, failed))
}

fn dispose(signal: i32, action: libc::sighandler_t) {
    // SAFETY: the handler calls nothing but kill(2).
    unsafe { libc::signal(signal, action) };
}

/// Holds back what will be handled; returns the mask as it was.
fn block() -> libc::sigset_t {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the set is initialised before it is used, and the call fills `before`.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in TERMINAL.into_iter().chain(FORWARDED) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY: a mask that sigprocmask filled.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child; fills one word.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        if Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            break;
        }
    }
    status
}

/// Exits with the program's status, or dies of its signal, without a core of its own.
fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let mut set = MaybeUninit::uninit();
        // SAFETY: ends this process; the set is initialised before it is used.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(signal, libc::SIG_DFL);
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
            libc::raise(signal);
        }
    }
    std::process::exit(libc::WEXITSTATUS(status))
}

fn write(wish: &Wish, name: &str, child: i32, (time, counted): (Duration, &Counters)) {
    let text =
        if wish.json { json(name, child, time, counted) } else { text(name, child, time, counted) };
    let outcome = match &wish.file {
        None => std::io::stderr().write_all(text.as_bytes()),
        Some(file) => {
            let file = file.to_string_lossy().replace("%p", &child.to_string());
            fs::write(&file, text).map_err(|error| Error::other(format!("{file}: {error}")))
        }
    };
    if let Err(error) = outcome {
        say(&format!("the statistics could not be written: {error}"));
    }
}

fn text(name: &str, child: i32, time: Duration, counted: &Counters) -> String {
    let mut text = format!(
        "odfork: {name} (pid {child}): engine kernel: {:.2} s; page tables of 2 MB, counted for \
         the whole system:\n",
        time.as_secs_f64()
    );
    let words: Vec<String> =
        counted.iter().map(|(name, count)| format!("{name} {count}")).collect();
    text.push_str(&format!("odfork:   {}\n", words.join(", ")));
    text
}

fn json(name: &str, child: i32, time: Duration, counted: &Counters) -> String {
    let object = serde_json::json!({
        "schema": SCHEMA, "engine": "kernel", "pid": child, "program": name,
        "seconds": time.as_secs_f64(),
        "scope": "system", "cowpt": counted,
    });
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_that_the_whole_system_was_counted() {
        let counted = Counters::from([("share".to_owned(), 150), ("copy".to_owned(), 2)]);
        let time = Duration::from_millis(1250);
        let text = text("python3", 7, time, &counted);
        assert!(text.contains("whole system") && text.contains("copy 2, share 150"), "{text}");
        assert!(text.lines().all(|line| line.starts_with("odfork: ")));
        let object: serde_json::Value =
            serde_json::from_str(&json("python3", 7, time, &counted)).unwrap();
        assert_eq!((&object["cowpt"]["share"], &object["scope"]), (&150.into(), &"system".into()));
    }
}
