//! How long other threads are waited for: as long as one of them gets anywhere.
//!
//! Owns that decision. A bound in milliseconds would say "never" where a machine is slow, and wait
//! for nothing where it is fast. So what counts is what threads that are not at rest do between two
//! looks: their state, their call, their processor time. One that is ready to run and gets no
//! processor is not to blame. One that has run long without writing or calling is: it may spin. The
//! rules of `helper` apply.

use crate::args;
use crate::scratch::Scratch;
use crate::sys::{self, now_ns, Kernel};
use crate::task::{self, State};

/// Processor time in which a thread comes to rest, or does not: in ticks of 10 ms.
const RUN: u64 = 10;
/// Processor time in which a thread has begun, in the same.
const BEGIN: u64 = 1;
/// The first looks come sooner, and do not count: most threads sleep, and stop at once.
const SOON: u32 = 8;
const SOON_NS: i64 = 20_000;
const PAUSE_NS: i64 = 200_000;
/// What tells that a thread has stopped, as a set of signals.
pub const STOPS: u64 = 1 << (libc::SIGCHLD - 1);
/// Everybody waits meanwhile: not longer, whatever happens.
const FAR_NS: u64 = 2_000_000_000;

/// What looks at threads have shown so far.
pub struct Progress {
    until_ns: u64,
    /// Looks so far, of those that come soon after one another, and how soon.
    soon: u32,
    soon_ns: i64,
    /// Looks in a row at which nothing has changed and nobody could have run; and how many end it.
    still: u32,
    most: u32,
    /// What the latest look has found, as one number, and the one before.
    found: u64,
    before: u64,
    /// Somebody is ready to run.
    runs: bool,
    /// Somebody has run too long to be where it would be waited for.
    old: bool,
    /// The first that is not at rest, and its processor time when it became that.
    first: Option<(u64, u64)>,
    in_front: (u64, u64),
}

impl Progress {
    /// So many looks in a row, 0.2 ms apart, without a change end it; the first few do not count.
    pub fn new(most: u32) -> Self {
        Progress::until(now_ns() + FAR_NS, most)
    }

    /// The same, with another far bound.
    pub fn until(until_ns: u64, most: u32) -> Self {
        Progress {
            until_ns,
            soon: 0,
            soon_ns: SOON_NS,
            still: 0,
            most,
            found: 0,
            before: 0,
            runs: false,
            old: false,
            first: None,
            in_front: (0, 0),
        }
    }

    /// The same for threads that were asked to stop: they tell. A task that wakes before gets no
    /// processor at once where others wait for it; one that is told has that of the thread.
    pub fn of_stops(until_ns: u64, most: u32) -> Self {
        Progress { soon_ns: PAUSE_NS, ..Progress::until(until_ns, most) }
    }

    /// This thread is not at rest; `call` is what the kernel says it does.
    pub fn note(&mut self, s: &Scratch, pid: i32, tid: u64, call: &[u8]) {
        // One that is gone is another state too.
        let state = task::state(&s.kernel, pid, tid);
        self.add(tid, state, call);
    }

    /// This thread seems to be in its first instructions. One that has run long is in its last, or
    /// in neither: nothing it does is progress.
    pub fn note_beginner(&mut self, s: &Scratch, pid: i32, tid: u64) {
        self.add_beginner(tid, task::state(&s.kernel, pid, tid));
    }

    fn add_beginner(&mut self, tid: u64, state: State) {
        self.old |= state.ticks > BEGIN;
        self.add(tid, state, b"");
    }

    fn add(&mut self, tid: u64, state: State, call: &[u8]) {
        let words = [tid, u64::from(state.letter), state.ticks];
        let all = words.iter().flat_map(|w| w.to_le_bytes()).chain(call.iter().copied());
        // FNV-1a: two states with one number only cost a look.
        self.found = all
            .fold(self.found, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        self.runs |= state.letter == b'R';
        self.first = self.first.or(Some((tid, state.ticks)));
    }

    /// After a look at which not all were at rest: waits a little. False where that is of no use.
    pub fn goes_on(&mut self) -> bool {
        let changed = self.found != self.before;
        let moves = (changed || self.runs) && !self.old;
        let is_soon = self.soon < SOON;
        self.soon += u32::from(is_soon);
        self.still = if moves || is_soon { 0 } else { self.still + 1 };
        let (tid, ticks) = self.first.unwrap_or_default();
        if self.in_front.0 != tid {
            self.in_front = (tid, ticks);
        }
        let spins = ticks > self.in_front.1 + RUN;
        (self.before, self.found, self.first) = (self.found, 0, None);
        (self.runs, self.old) = (false, false);
        let goes_on = self.still < self.most && !spins && now_ns() < self.until_ns;
        if goes_on {
            wait_for_stop(if is_soon { self.soon_ns } else { PAUSE_NS });
        }
        goes_on
    }
}

/// Has the signal sent, whatever the program does with its own; one that came before is forgotten.
/// Best effort: without it, waits take their time.
pub fn hear_of_stops(k: &Kernel) {
    let default = [0u64; 4];
    // SAFETY: of this task alone; the kernel reads 32 bytes.
    let _ = unsafe {
        k.call(libc::SYS_rt_sigaction, args![libc::SIGCHLD, &default, 0, size_of_val(&STOPS)])
    };
}

/// Gives others 0.2 ms.
pub fn pause() {
    let t = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
    // SAFETY: sleeps.
    unsafe { sys::raw(libc::SYS_nanosleep, args![&t, 0]) };
}

/// The same, or until a thread has stopped that this task traces.
fn wait_for_stop(ns: i64) {
    let (t, stops) = (libc::timespec { tv_sec: 0, tv_nsec: ns }, STOPS);
    // SAFETY: sleeps, and takes a signal of this task's.
    unsafe { sys::raw(libc::SYS_rt_sigtimedwait, args![&stops, 0, &t, size_of_val(&stops)]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const STILL: u32 = 20;
    const ASLEEP: State = State { letter: b'S', ticks: 1, ends: false };

    #[test]
    fn who_stands_still_is_not_waited_for() {
        let mut progress = Progress::new(STILL);
        let looks = (0..1000).take_while(|_| {
            progress.add(7, ASLEEP, b"56 0x0");
            progress.goes_on()
        });
        assert_eq!(looks.count(), (SOON + STILL) as usize - 1);
    }

    #[test]
    fn another_call_and_a_wait_for_a_processor_count() {
        let mut progress = Progress::new(STILL);
        for look in 0..STILL * 2 {
            let call: &[u8] = if look / 10 % 2 == 0 { b"56 0x0" } else { b"9 0x0" };
            progress.add(7, ASLEEP, call);
            assert!(progress.goes_on());
        }
        for _ in 0..STILL * 2 {
            progress.add(7, State { letter: b'R', ..ASLEEP }, b"running");
            assert!(progress.goes_on());
        }
    }

    #[test]
    fn who_runs_and_runs_is_not_waited_for() {
        let mut progress = Progress::new(STILL);
        for (ticks, goes_on) in [(5, true), (5 + RUN, true), (6 + RUN, false)] {
            progress.add(7, State { letter: b'R', ticks, ends: false }, b"running");
            assert_eq!(progress.goes_on(), goes_on, "{ticks}");
        }
        // Another one is in front: it has its own time.
        progress.add(8, State { letter: b'R', ticks: 100, ends: false }, b"running");
        assert!(progress.goes_on());
    }

    #[test]
    fn who_has_run_long_does_not_begin() {
        let mut progress = Progress::new(STILL);
        for look in 1..=SOON + STILL {
            progress.add_beginner(
                7,
                State { letter: b'R', ticks: 40 + u64::from(look) / 9, ends: false },
            );
            assert_eq!(progress.goes_on(), look < SOON + STILL, "{look}");
        }
        let mut progress = Progress::new(STILL);
        for _ in 0..STILL * 2 {
            progress.add_beginner(8, State { letter: b'R', ticks: 1, ends: false });
            assert!(progress.goes_on());
        }
    }
}
