//! Yama's `ptrace_scope` 1: only a process's ancestors trace it, or whom it names.
//!
//! Owns naming the helper task, which is a descendant: for as long as it runs, and only where it
//! was refused before. A tracer that the program has named itself cannot be read back, and its
//! number may be another's by then: nothing is named there, and threads are not held.
//!
//! Rules: called in the program, under the lock, no heap.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::report::Report;
use crate::{args, sys};

/// What is known about who may trace this process.
pub struct Tracer {
    /// A helper task was refused.
    wanted: AtomicBool,
    /// The program has named somebody.
    named: AtomicBool,
}

impl Tracer {
    pub const fn new() -> Self {
        Tracer { wanted: AtomicBool::new(false), named: AtomicBool::new(false) }
    }

    /// A helper task is named from the next one on.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Learns from what a helper task has found.
    pub fn learn(&self, report: &Report) {
        if report.untraceable.flag() {
            self.wanted.store(true, Relaxed);
        }
    }

    /// Names this process, and so its descendants, until the answer goes.
    pub fn name(&self) -> Named {
        let wanted = self.is_wanted() && !self.named.load(Relaxed);
        Named(wanted && set(sys::getpid()) == 0)
    }

    /// The program has named somebody, or nobody any more.
    pub fn note(&self, somebody: bool) {
        self.named.store(somebody, Relaxed);
    }

    /// What a process names is not inherited.
    pub fn begin_child(&self) {
        self.named.store(false, Relaxed);
    }
}

/// The helper task may trace this process.
pub struct Named(bool);

impl Drop for Named {
    fn drop(&mut self) {
        if self.0 {
            set(0);
        }
    }
}

fn set(pid: i32) -> isize {
    // SAFETY: takes no pointers.
    unsafe { sys::raw(libc::SYS_prctl, args![libc::PR_SET_PTRACER, pid, 0, 0, 0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_named_once_it_was_refused_and_nobody_else_is_named() {
        let (tracer, report) = (Tracer::new(), Report::default());
        tracer.learn(&report);
        assert!(!tracer.is_wanted() && !tracer.name().0);
        report.untraceable.set(1);
        tracer.learn(&report);
        assert!(tracer.is_wanted());
        tracer.note(true);
        assert!(!tracer.name().0);
        tracer.begin_child();
        assert!(tracer.is_wanted() && !tracer.named.load(Relaxed));
    }
}
