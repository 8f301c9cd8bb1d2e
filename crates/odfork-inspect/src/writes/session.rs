//! From a seized process to a list of phases: when a snapshot is taken, and what ends a phase.
//!
//! Owns the clock of a measurement. A phase begins at the start (or `--after`), at the marker
//! signal or when an interval is over; it ends at the next one, at the end of the process, at
//! Ctrl-C, or when the process becomes another program by exec, which makes what was seen so far
//! worthless. What was measured is always kept.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::change::Change;
use super::method::{Detector, Method};
use odfork_proc::interrupt;
use odfork_proc::tracee::{Event, Tracee};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub method: Method,
    /// Bytes a snapshot may take.
    pub limit: u64,
    pub after: Duration,
    pub interval: Option<Duration>,
    pub length: Option<Duration>,
    /// The signal that ends a phase and begins the next.
    pub marker: Option<i32>,
    /// Names of the phases, in order; with a marker no more phases than names are measured.
    pub names: Vec<String>,
}

/// One measured phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub name: String,
    pub change: Change,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    pub phases: Vec<Phase>,
    pub notes: Vec<String>,
    pub interrupted: bool,
    /// Time the process was held.
    pub held: Duration,
    /// Wait status of the process, if it ended.
    pub ended: Option<i32>,
    /// What stopped the measurement early.
    pub failure: Option<anyhow::Error>,
}

struct Session<'a> {
    plan: &'a Plan,
    tracee: &'a mut Tracee,
    detector: Detector,
    start: Instant,
    /// When the open phase began.
    open: Option<Instant>,
    /// When the first phase is to begin; None when a marker does it.
    first: Option<Instant>,
    /// When `--for` is over; counted from the first phase on.
    last: Option<Instant>,
    outcome: Outcome,
}

/// Measures until the process or the plan ends. The process is let go of.
pub fn measure(tracee: &mut Tracee, plan: &Plan) -> Outcome {
    let start = Instant::now();
    let by_marker = plan.marker.is_some() && plan.after.is_zero();
    let mut session = Session {
        plan,
        tracee,
        detector: Detector::new(plan.method, plan.limit),
        start,
        open: None,
        first: (!by_marker).then_some(start + plan.after),
        last: None,
        outcome: Outcome::default(),
    };
    if let Err(error) = session.run() {
        session.outcome.failure = Some(error);
    }
    let mut outcome = session.outcome;
    if outcome.ended.is_none() {
        tracee.release();
        outcome.ended = tracee.ended();
    }
    outcome
}

impl Session<'_> {
    fn run(&mut self) -> Result<()> {
        loop {
            match self.tracee.next(self.due())? {
                Event::Time if interrupt::asked() => {
                    self.outcome.interrupted = true;
                    return self.close(Event::Time, true);
                }
                Event::Time if self.last.is_some_and(|last| Instant::now() >= last) => {
                    return self.close(Event::Time, true);
                }
                event @ (Event::Time | Event::Marker) => {
                    self.close(event, false)?;
                    if self.complete() {
                        return Ok(());
                    }
                }
                Event::Exec => self.begin_again(),
                Event::Ending => self.close(Event::Ending, true)?,
                Event::Gone(status) => {
                    self.outcome.ended = Some(status);
                    if self.open.is_some() {
                        self.note("the process was gone before its last phase could be scanned");
                    }
                    return Ok(());
                }
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        let turn = match self.open {
            None => self.first,
            Some(open) => self.plan.interval.map(|interval| open + interval),
        };
        turn.into_iter().chain(self.last).min()
    }

    /// Ends the open phase, if any, and begins the next one unless this was the last.
    fn close(&mut self, event: Event, last: bool) -> Result<()> {
        if self.open.is_none() && last {
            self.tracee.go_on(event);
            return Ok(());
        }
        let now = Instant::now();
        self.tracee.stop()?;
        let changed = self.detector.update(self.tracee);
        self.outcome.held += now.elapsed();
        let change = match changed {
            Ok(change) => change,
            Err(error) => {
                self.tracee.go_on(event);
                return Err(error);
            }
        };
        if let Some(from) = self.open.take() {
            self.keep(change, from, now);
        }
        if !last && !self.complete() {
            self.open = Some(Instant::now());
            self.first = None;
            if self.last.is_none() {
                self.last = self.plan.length.map(|length| Instant::now() + length);
            }
        }
        self.tracee.go_on(event);
        Ok(())
    }

    fn keep(&mut self, change: Change, from: Instant, to: Instant) {
        if change.unreadable > 0 {
            let count = change.unreadable;
            self.note(&format!("{count} pages could not be read and are in no count"));
        }
        let seconds = |time: Instant| time.duration_since(self.start).as_secs_f64();
        let number = self.outcome.phases.len();
        let name = match self.plan.names.get(number) {
            Some(name) => name.clone(),
            None if self.plan.interval.is_some() => {
                format!("{:.1}-{:.1} s", seconds(from), seconds(to))
            }
            None if self.plan.marker.is_some() => format!("phase {}", number + 1),
            None => "all".into(),
        };
        self.outcome.phases.push(Phase { name, change });
    }

    /// All named phases are measured.
    fn complete(&self) -> bool {
        let names = self.plan.names.len();
        self.plan.marker.is_some() && names > 0 && self.outcome.phases.len() >= names
    }

    fn begin_again(&mut self) {
        if self.open.take().is_some() {
            self.note("the process became another program by exec: the phase begins again there");
            self.first = Some(Instant::now());
        } else if self.first.is_some() {
            self.first = Some(Instant::now() + self.plan.after);
        }
        self.detector = Detector::new(self.plan.method, self.plan.limit);
        self.tracee.go_on(Event::Exec);
    }

    fn note(&mut self, text: &str) {
        if !self.outcome.notes.iter().any(|note| note == text) {
            self.outcome.notes.push(text.into());
        }
    }
}
