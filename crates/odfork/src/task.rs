//! What the kernel says about one thread: its call, its state.
//!
//! Owns reading `/proc/PID/task/TID/*`. Nothing here asks the thread itself. The rules of `helper`
//! apply.

use crate::scan::{digits, slurp, Path};
use crate::sys::{Errno, Kernel, SysResult};
use crate::vma::{dec, hex};

/// The flag of a task that ends.
const EXITING: u64 = 4;

/// State and processor time of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub letter: u8,
    /// In ticks of 10 ms.
    pub ticks: u64,
    /// It is on its way out.
    pub ends: bool,
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

/// The same of one of its descriptors: `/fd/` or `/fdinfo/`.
pub fn descriptor_of(pid: i32, tid: i32, folder: &[u8], fd: i32) -> Path {
    let (mut a, mut b, mut c) = ([0u8; 20], [0u8; 20], [0u8; 20]);
    let [pid, tid] = [(pid, &mut a), (tid, &mut b)].map(|(n, to)| digits(n as u64, to));
    Path::join(&[b"/proc/", pid, b"/task/", tid, folder, digits(u64::from(fd as u32), &mut c)])
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

/// A signal for the whole process waits, which that thread may take.
pub fn is_called(k: &Kernel, pid: i32, tid: u64, text: &mut [u8]) -> bool {
    slurp(k, file_of(pid, tid, b"/status").c_str(), text).is_ok_and(may_take)
}

fn may_take(status: &[u8]) -> bool {
    let set = |key: &[u8]| {
        let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(key));
        line.and_then(|line| hex(line.trim_ascii()))
    };
    let (waiting, blocked) = (set(b"ShdPnd:"), set(b"SigBlk:"));
    waiting.unwrap_or(0) & !blocked.unwrap_or(0) != 0
}

/// Reads a line of `/proc/PID/stat`. The name may hold any byte but is in brackets.
fn parse_state(line: &[u8]) -> State {
    let behind = line.iter().rposition(|&b| b == b')').map_or(0, |at| at + 1);
    let words = line[behind..].split(|&b| b == b' ').filter(|w| !w.is_empty());
    let letter = words.clone().next().and_then(|w| w.first()).copied().unwrap_or(0);
    // The state is field 3, flags of the task are 9; user and system time are 14 and 15.
    let field = |n: usize| words.clone().nth(n - 3).and_then(dec).unwrap_or(0);
    State { letter, ticks: field(14) + field(15), ends: field(9) & EXITING != 0 }
}

impl State {
    /// It has ended, and is still listed.
    fn has_ended(&self) -> bool {
        matches!(self.letter, b'Z' | b'X')
    }
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
    fn a_signal_waits_for_whom_does_not_block_it() {
        let status = |blocked| format!("SigPnd:\t01\nShdPnd:\t0a00\nSigBlk:\t{blocked}\n");
        assert!(may_take(status("0200").as_bytes()) && !may_take(status("0aff").as_bytes()));
        assert!(!may_take(b""));
    }

    #[test]
    fn a_line_tells_state_and_time() {
        let line = b"7 (a ) R b) S 1 7 7 0 -1 64 5 0 0 0 31 11 0 0 20 0 1 0 9 8 7";
        let state = parse_state(line);
        assert_eq!((state.letter, state.ticks, state.ends), (b'S', 42, false));
        assert!(parse_state(b"7 (a) R 1 7 7 0 -1 4194372 5").ends);
        assert_eq!(parse_state(b""), State::default());
        assert!(parse_state(b"7 (x) Z 1").has_ended() && !state.has_ended());
    }
}
