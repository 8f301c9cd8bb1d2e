//! Writes that keep to their schedule while a server makes a snapshot.
//!
//! An open loop: a request is due at its time, whether or not earlier ones were answered, and its
//! latency counts from then. All go through one connection, so the snapshot's command has its place
//! among them: what it must hold is known without a pause.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use odfork_proc::interrupt;

use super::content::{name, Content};
use super::resp::{self, Answer};
use super::server::{is_later, Server};
use crate::foreign::open_loop::{exact_timers, histogram};

/// How often it is asked whether the snapshot is done.
const PROBE: Duration = Duration::from_millis(50);
/// Writes go on for so long after a snapshot: what follows one is measured too.
const AFTER: Duration = Duration::from_secs(1);
/// A slice takes at most so much longer than its schedule.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes that are sent before they are dropped from the buffer.
const SENT: usize = 1 << 20;

/// What is done in one slice.
pub struct Plan<'a> {
    /// Requests a second, and how many at least.
    pub rate: f64,
    pub changes: u64,
    /// Makes the snapshot; empty where somebody else does.
    pub command: &'a [&'a [u8]],
    /// The section of INFO that tells whether it is done.
    pub section: &'a str,
    pub is_done: fn(&str) -> bool,
}

/// What came of it.
pub struct Slice {
    /// Nanoseconds from when a request was due to its answer.
    pub latencies: Histogram<u64>,
    /// By how much this program itself was late.
    pub late: Histogram<u64>,
    pub requests: u64,
    pub seconds: f64,
    /// Writes before the snapshot, and seconds from its command to its end.
    pub before: u64,
    pub snapshot: f64,
    /// Most memory of the server's group; 0: it is not known.
    pub memory: u64,
}

enum Sent {
    Write(Duration),
    Snapshot,
    Probe,
}

struct Load<'a> {
    server: &'a mut Server,
    content: &'a mut Content,
    plan: &'a Plan<'a>,
    begin: Instant,
    out: Vec<u8>,
    sent: usize,
    waiting: VecDeque<Sent>,
    value: Vec<u8>,
    probed: Option<Duration>,
    is_probing: bool,
    is_done: bool,
    /// Requests to be made at least.
    least: u64,
    slice: Slice,
}

/// One slice: until the snapshot is done and every request answered.
pub fn run(server: &mut Server, content: &mut Content, plan: &Plan) -> Result<Slice, String> {
    let slice = Slice {
        latencies: histogram(),
        late: histogram(),
        requests: 0,
        seconds: 0.0,
        before: content.writes,
        snapshot: 0.0,
        memory: 0,
    };
    server.stream.set_nonblocking(true).map_err(|error| error.to_string())?;
    exact_timers(true);
    let mut load = Load {
        server,
        content,
        plan,
        begin: Instant::now(),
        out: Vec::new(),
        sent: 0,
        waiting: VecDeque::new(),
        value: Vec::new(),
        probed: None,
        is_probing: false,
        is_done: false,
        least: plan.changes,
        slice,
    };
    let ended = load.go();
    let slice = load.slice;
    exact_timers(false);
    server.stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    ended.map(|()| slice)
}

impl Load<'_> {
    fn go(&mut self) -> Result<(), String> {
        if !self.plan.command.is_empty() {
            resp::put(&mut self.out, self.plan.command);
            self.waiting.push_back(Sent::Snapshot);
        }
        let schedule = Duration::from_secs_f64(self.plan.changes as f64 / self.plan.rate);
        while !(self.is_over() && self.waiting.is_empty()) {
            if interrupt::asked() {
                return Err("interrupted".into());
            }
            if self.begin.elapsed() > schedule + PATIENCE {
                return Err(self.server.lost("the snapshot does not end"));
            }
            self.push_due();
            self.push_probe();
            self.send()?;
            while self.server.pull()? {}
            self.take_answers()?;
            self.rest();
        }
        self.slice.seconds = self.begin.elapsed().as_secs_f64();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_done && self.slice.requests >= self.least
    }

    fn due(&self, request: u64) -> Duration {
        Duration::from_secs_f64(request as f64 / self.plan.rate)
    }

    fn push_due(&mut self) {
        loop {
            let (now, due) = (self.begin.elapsed(), self.due(self.slice.requests));
            if due > now || self.is_over() {
                return;
            }
            self.slice.late.saturating_record((now - due).as_nanos() as u64);
            let key = self.content.write(&mut self.value);
            resp::put(&mut self.out, &[b"SET", name(key).as_bytes(), &self.value]);
            self.waiting.push_back(Sent::Write(due));
            self.slice.requests += 1;
        }
    }

    fn push_probe(&mut self) {
        let now = self.begin.elapsed();
        let is_time = self.probed.is_none_or(|last| now - last > PROBE);
        if self.is_done || self.is_probing || !is_time {
            return;
        }
        resp::put(&mut self.out, &[b"INFO", self.plan.section.as_bytes()]);
        self.waiting.push_back(Sent::Probe);
        (self.probed, self.is_probing) = (Some(now), true);
        let held = self.server.group.as_ref().map_or(0, |group| group.held());
        self.slice.memory = self.slice.memory.max(held);
    }

    fn send(&mut self) -> Result<(), String> {
        while self.sent < self.out.len() {
            match self.server.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_later(error.kind()) => break,
                Err(error) => return Err(self.server.lost(&error.to_string())),
            }
        }
        if self.sent == self.out.len() || self.sent > SENT {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let now = self.begin.elapsed();
        let mut at = 0;
        while let Some((answer, length)) = resp::take(&self.server.pending[at..])? {
            at += length;
            match (self.waiting.pop_front(), answer) {
                (Some(Sent::Write(due)), Answer::Word(_)) => {
                    self.slice.latencies.saturating_record((now - due).as_nanos() as u64);
                }
                (Some(Sent::Snapshot), Answer::Word(_)) => {}
                (Some(Sent::Probe), Answer::Bytes(text)) => {
                    self.is_probing = false;
                    self.is_done = (self.plan.is_done)(&String::from_utf8_lossy(&text));
                    self.slice.snapshot = now.as_secs_f64();
                    let after = (self.plan.rate * AFTER.as_secs_f64()) as u64;
                    self.least = self.least.max(self.slice.requests + after);
                }
                (_, answer) => return Err(format!("an answer to nothing asked: {answer:?}")),
            }
        }
        self.server.pending.drain(..at);
        Ok(())
    }

    /// Until something is to be read, can be written, or is due.
    fn rest(&self) {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, self.sent < self.out.len());
        let until = match self.is_over() {
            true => self.begin.elapsed() + PROBE,
            false => self.due(self.slice.requests),
        };
        let left = until.saturating_sub(self.begin.elapsed()).min(PROBE);
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        // A signal ends the wait early: the loop looks.
        let _ = poll(&mut [PollFd::new(&self.server.stream, events)], Some(&time));
    }
}
