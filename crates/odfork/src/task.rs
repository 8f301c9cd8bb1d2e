//! What the kernel says about one thread: its call, its state, how long it sleeps.
//!
//! Owns reading `/proc/PID/task/TID/*`. Nothing here asks the thread itself. The rules of `helper`
//! apply.

use crate::args;
use crate::held::{Clocks, Slept};
use crate::scan::{digits, slurp, Path};
use crate::sys::{self, now_ns, Errno, Fault, Kernel, SysResult, Trace};
use crate::vma::{dec, hex};

/// State and processor time of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub letter: u8,
    /// In ticks of 10 ms.
    pub ticks: u64,
    pub processor: u64,
}

/// A line of `/proc/PID/task/TID/syscall`, if the thread is not running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blocked {
    /// `None` in a page fault.
    pub call: Option<u64>,
    pub arguments: [u64; 6],
    pub stack: usize,
}

/// A file that the kernel keeps of a thread.
pub fn file_of(pid: i32, tid: u64, name: &[u8]) -> Path {
    let (mut a, mut b) = ([0u8; 20], [0u8; 20]);
    Path::join(&[b"/proc/", digits(pid as u64, &mut a), b"/task/", digits(tid, &mut b), name])
}

/// What a thread does, in the kernel's words; `None` for one that has ended meanwhile.
pub fn call_of<'a>(
    k: &Kernel,
    pid: i32,
    tid: u64,
    text: &'a mut [u8],
) -> SysResult<Option<&'a [u8]>> {
    match slurp(k, file_of(pid, tid, b"/syscall").c_str(), text) {
        Err(Errno(libc::ENOENT | libc::ESRCH)) => Ok(None),
        other => other.map(|line| Some(line.trim_ascii())),
    }
}

/// Reads such a line: `running`, or `-1 sp pc` (in a fault), or `number arguments sp pc`.
pub fn parse_call(line: &[u8]) -> Option<Blocked> {
    let mut words = line.split(|&b| b == b' ').filter(|w| !w.is_empty());
    let call = words.next()?;
    let count = words.clone().count();
    let number = |w: &[u8]| w.strip_prefix(b"0x").and_then(hex);
    let mut blocked = Blocked::default();
    let last = words.clone().nth(count.checked_sub(2)?)?;
    blocked.stack = number(last)? as usize;
    if call != b"-1" {
        blocked.call = Some(dec(call)?);
        for (place, word) in blocked.arguments.iter_mut().zip(words) {
            *place = number(word)?;
        }
    }
    Some(blocked)
}

/// State and processor time; that of nobody if the thread is gone.
pub fn state(k: &Kernel, pid: i32, tid: u64) -> State {
    let mut text = [0u8; 512];
    slurp(k, file_of(pid, tid, b"/stat").c_str(), &mut text).map_or(State::default(), parse_state)
}

/// It has ended, is listed still or gone: it writes to no memory any more.
pub fn has_ended(k: &Kernel, pid: i32, tid: u64) -> SysResult<bool> {
    let mut text = [0u8; 512];
    match slurp(k, file_of(pid, tid, b"/stat").c_str(), &mut text) {
        Err(Errno(libc::ENOENT | libc::ESRCH)) => Ok(true),
        other => other.map(|line| parse_state(line).has_ended()),
    }
}

/// Reads a line of `/proc/PID/stat`. The name may hold any byte but is in brackets.
fn parse_state(line: &[u8]) -> State {
    let behind = line.iter().rposition(|&b| b == b')').map_or(0, |at| at + 1);
    let words = line[behind..].split(|&b| b == b' ').filter(|w| !w.is_empty());
    let letter = words.clone().next().and_then(|w| w.first()).copied().unwrap_or(0);
    // The state is field 3; user and system time are 14 and 15, the processor is 39.
    let field = |n: usize| words.clone().nth(n - 3).and_then(dec).unwrap_or(0);
    State { letter, ticks: field(14) + field(15), processor: field(39) }
}

impl State {
    /// It has ended, and is still listed.
    fn has_ended(&self) -> bool {
        matches!(self.letter, b'Z' | b'X')
    }
}

impl Clocks {
    /// When a thread that sleeps in `call` fell asleep, by the monotonic clock; at or after that
    /// moment, never before. `None` where the kernel does not say.
    ///
    /// It says by the clock of the processor that the thread ran on. This task goes there, once, so
    /// that its own time is by the same clock.
    pub fn slept(&mut self, k: &Kernel, pid: i32, tid: u64, call: u64) -> Option<Slept> {
        let processor = state(k, pid, tid).processor as usize;
        let behind = self.0.get_mut(processor)?;
        if *behind == 0 {
            *behind = on_processor(k, processor, || {
                let (here, _) = last_sleep(k, Path::join(&[b"/proc/self/sched"]))?;
                // What is cut to whole microseconds counts as later.
                (now_ns() / 1000 + 1).checked_sub(here)
            })?;
        }
        let (slept, switches) = last_sleep(k, file_of(pid, tid, b"/sched"))?;
        Some(Slept { call, since_ns: (slept + 1 + *behind) * 1000, switches })
    }
}

/// A thread that slept has done nothing since but stop: it is the same sleep that was interrupted.
pub fn has_only_stopped(pid: i32, tid: i32, slept: &Slept) -> bool {
    // Not counted: asked also while threads are let go, which must not fail.
    let trace = Trace::new();
    let now = last_sleep(&Kernel::new(&trace, Fault::None), file_of(pid, tid as u64, b"/sched"));
    now.is_some_and(|(_, switches)| switches == slept.switches + 1)
}

/// Does something on that processor, and goes back to where this task may run.
fn on_processor<T>(k: &Kernel, number: usize, work: impl FnOnce() -> Option<T>) -> Option<T> {
    let (mut all, mut one) = ([0u64; 16], [0u64; 16]);
    *one.get_mut(number / 64)? = 1 << (number % 64);
    // SAFETY: binds this task alone; the sets are as long as told.
    unsafe {
        let size = size_of_val(&all);
        k.call(libc::SYS_sched_getaffinity, args![0, size, &mut all]).ok()?;
        k.call(libc::SYS_sched_setaffinity, args![0, size, &one]).ok()?;
        sys::raw(libc::SYS_sched_yield, [0; 6]);
        let done = work();
        sys::raw(libc::SYS_sched_setaffinity, args![0, size, &all]);
        done
    }
}

/// When it ran last, in microseconds, and how often it has gone to sleep: `se.exec_start`, which is
/// in milliseconds with six digits behind the point, and `nr_voluntary_switches`.
fn last_sleep(k: &Kernel, path: Path) -> Option<(u64, u64)> {
    let mut text = [0u8; 4096];
    // Only the beginning is wanted; a file that is longer fills the buffer.
    let text = slurp(k, path.c_str(), &mut text).ok()?;
    let word = |name: &[u8]| {
        let line = text.split(|&b| b == b'\n').find(|l| l.starts_with(name))?;
        line.rsplit(|&b| b == b' ' || b == b':').next()
    };
    let ran = word(b"se.exec_start")?;
    let point = ran.iter().position(|&b| b == b'.')?;
    let (whole, part) = (dec(&ran[..point])?, dec(ran.get(point + 1..point + 4)?)?);
    Some((whole * 1000 + part, dec(word(b"nr_voluntary_switches")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_threads() {
        assert_eq!(parse_call(b"running"), None);
        let fault = parse_call(b"-1 0x7ffd10 0x55aa").unwrap();
        assert_eq!((fault.call, fault.stack), (None, 0x7ffd10));
        let line = b"202 0x1 0x2 0x3 0x0 0x0 0x9 0x7f0010 0x7f0020";
        let blocked = parse_call(line).unwrap();
        assert_eq!((blocked.call, blocked.stack), (Some(202), 0x7f0010));
        assert_eq!(blocked.arguments, [1, 2, 3, 0, 0, 9]);
    }

    #[test]
    fn a_line_tells_state_and_time() {
        let line = b"7 (a ) R b) S 1 7 7 0 -1 64 5 0 0 0 31 11 0 0 20 0 1 0 9 8 7";
        let state = parse_state(line);
        assert_eq!((state.letter, state.ticks), (b'S', 42));
        assert_eq!(parse_state(b""), State::default());
        assert!(parse_state(b"7 (x) Z 1").has_ended() && !state.has_ended());
    }

    #[test]
    fn a_sleep_has_a_beginning() {
        let trace = Trace::new();
        let k = Kernel::new(&trace, Fault::None);
        let (tell, told) = std::sync::mpsc::channel();
        let before = now_ns();
        let sleeper = std::thread::spawn(move || {
            tell.send(sys::gettid()).unwrap();
            sys::sleep_ms(300);
        });
        let tid = told.recv().unwrap() as u64;
        while state(&k, sys::getpid(), tid).letter != b'S' {
            std::thread::yield_now();
        }
        let pid = sys::getpid();
        if let Some(slept) = Clocks([0; 512]).slept(&k, pid, tid, 35) {
            // Rather later than before, by what the clocks of two processors differ.
            let after = now_ns() + 1_000_000_000;
            assert!((before..after).contains(&slept.since_ns), "{before} {slept:?}");
        }
        sleeper.join().unwrap();
    }
}
