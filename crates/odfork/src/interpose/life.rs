//! Beginning and end of the library in a process: constructor, report at exit.
//!
//! Owns `_exit` and `_Exit` too: a program that leaves by them is reported on like any other.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use crate::options::Report;
use crate::stats::{self, Context, Text};
use crate::{args, engine, sys};

extern "C" fn init() {
    super::next::resolve();
    super::program::look();
    engine::start(super::program::inspect);
    if engine::is_live_wanted() {
        super::fork::watch_forks();
    }
}

extern "C" fn fini() {
    report();
}

#[used]
#[link_section = ".init_array"]
static INIT: extern "C" fn() = init;

#[used]
#[link_section = ".fini_array"]
static FINI: extern "C" fn() = fini;

/// Writes the statistics, once, if they were asked for and this is the process
/// they were asked of (not a child it forked).
pub fn report() {
    let o = engine::state().options();
    if o.report == Report::None {
        return;
    }
    let me = sys::getpid();
    let wanted = engine::born() == me && (o.report_pid == 0 || o.report_pid == me);
    // Under a filter that kills for calls of ours, opening a file may kill.
    if wanted && !engine::is_fenced() && !engine::state().notes.reported.swap(true, Relaxed) {
        write_report_aside(me);
    }
}

/// Bytes of the text, and of the stack it is written on.
const REPORT: usize = 16384;
const STACK: usize = 65536;

/// On a stack of its own: the program may end in a handler, on an alternate stack that has just
/// enough room for it.
fn write_report_aside(me: i32) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, of which nobody else knows; the function returns.
    unsafe {
        let Ok(at) = sys::mmap(0, STACK, prot, flags) else { return };
        sys::call_on_stack(at + STACK, write_report, me as usize);
        sys::munmap(at, STACK);
    }
}

extern "C" fn write_report(me: usize) {
    let me = me as i32;
    let o = engine::state().options();
    let (calls, injected) = engine::calls();
    let name = o.program.split(|&b| b == 0).next().unwrap_or(b"");
    let name = core::str::from_utf8(name).unwrap_or("?");
    let context = Context { pid: me, program: name, calls, injected };
    let mut text = Text::<REPORT>::new();
    let _ = match o.report {
        Report::Json => stats::write_json(&mut text, &engine::state().stats, &context),
        _ => stats::write_text(&mut text, &engine::state().stats, &context),
    };
    // A file that cannot be opened is no reason to write to somebody's stderr.
    let Some(fd) = open_report(&o.report_file, me) else { return };
    write_all(fd, text.bytes());
    if fd > 2 {
        // SAFETY: opened above.
        unsafe { sys::raw(libc::SYS_close, args![fd]) };
    }
}

/// The end of a process in which a promise of this library turned out wrong: where, and abort.
pub fn panicked(info: &core::panic::PanicInfo) -> ! {
    use core::fmt::Write;
    let mut text = Text::<512>::new();
    let _ = match info.location() {
        Some(at) => writeln!(text, "odfork: bug at {}:{}, aborting", at.file(), at.line()),
        None => writeln!(text, "odfork: bug, aborting"),
    };
    write_all(2, text.bytes());
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// Standard error, or the file with `%p` replaced by the pid.
fn open_report(file: &[u8; 256], pid: i32) -> Option<i32> {
    use core::fmt::Write;
    let len = file.iter().position(|&b| b == 0).unwrap_or(0);
    if len == 0 {
        return Some(2);
    }
    let pattern = core::str::from_utf8(&file[..len]).ok()?;
    let mut path = Text::<320>::new();
    let mut parts = pattern.split("%p");
    let _ = path.write_str(parts.next().unwrap_or(""));
    for part in parts {
        let _ = write!(path, "{pid}{part}");
    }
    let _ = path.write_str("\0");
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let a = args![libc::AT_FDCWD, path.bytes().as_ptr(), flags, 0o644];
    // SAFETY: a path that ends with a zero byte.
    unsafe { sys::call(libc::SYS_openat, a) }.ok().map(|fd| fd as i32)
}

/// As far as it can be written. A reader that is gone, or a file that is full, sends a signal that
/// would be the program's end: it is taken back.
fn write_all(fd: i32, mut bytes: &[u8]) {
    let mask = sys::block_signals();
    while !bytes.is_empty() {
        // SAFETY: the buffer is valid for its length.
        match unsafe { sys::call(libc::SYS_write, args![fd, bytes.as_ptr(), bytes.len()]) } {
            Ok(n) if n > 0 => bytes = &bytes[n.min(bytes.len())..],
            Err(sys::Errno(libc::EINTR)) => {}
            Err(sys::Errno(libc::EPIPE | libc::EFBIG)) => {
                take_signal();
                break;
            }
            _ => break,
        }
    }
    sys::restore_signals(mask);
}

/// Takes back what such a write has sent to this thread.
fn take_signal() {
    let bit = |signal: c_int| 1u64 << (signal - 1);
    let (set, now) = (bit(libc::SIGPIPE) | bit(libc::SIGXFSZ), [0i64; 2]);
    let a = args![&raw const set, 0, &raw const now, size_of_val(&set)];
    // SAFETY: asks for one of two blocked signals, without waiting.
    unsafe { sys::raw(libc::SYS_rt_sigtimedwait, a) };
}

/// _exit(2): the report of a program that leaves without exit(3).
#[no_mangle]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    report();
    // SAFETY: ends the process.
    unsafe {
        loop {
            sys::raw(libc::SYS_exit_group, args![status]);
        }
    }
}

/// _Exit(3).
#[no_mangle]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by its other name.
    unsafe { _exit(status) }
}
