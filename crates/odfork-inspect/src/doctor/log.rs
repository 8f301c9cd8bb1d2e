//! What an observation writes down, whoever observes: `watch` by ptrace or `sample` by /proc.

use std::time::{Duration, Instant};

use super::fork_statistics::{Call, Class, Event, ForkStatistics};
use super::snapshot::Snapshots;
use odfork_proc::process::{self, Pid};

/// How an observation ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// The time was over; the process goes on.
    Over,
    /// Ctrl-C; the process goes on.
    Interrupted,
    /// The process ended, with its wait status where we get it.
    Gone(Option<i32>),
}

pub struct Log<'a> {
    pub statistics: ForkStatistics,
    pub snapshots: Snapshots<'a>,
    start: Instant,
}

impl<'a> Log<'a> {
    pub fn begin(statistics: ForkStatistics, snapshots: Snapshots<'a>) -> Log<'a> {
        Log { statistics, snapshots, start: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// What a copy of the parent costs is estimated now: the parent may have gone on already.
    pub fn born(&mut self, parent: Pid, child: Pid, call: Call, class: Class) {
        let copies = matches!(class, Class::Fork | Class::Unknown);
        let predicted_ns = copies.then(|| self.snapshots.fork_of(parent)).flatten();
        self.take(Event::Born { parent, child, call, class }, predicted_ns);
    }

    pub fn exec(&mut self, pid: Pid, faults: Option<u64>) {
        self.take(Event::Exec { pid, name: process::short_name(pid), faults }, None);
    }

    pub fn ended(&mut self, pid: Pid) {
        self.take(Event::Ended { pid }, None);
    }

    fn take(&mut self, event: Event, predicted_ns: Option<u64>) {
        self.statistics.take(event, self.start.elapsed().as_secs_f64(), predicted_ns);
    }
}
