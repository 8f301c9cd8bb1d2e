//! Methods "scan" and "soft-dirty": the kernel marks the pages that are written; nothing is copied.
//!
//! Both count pages, not bytes, and count a page written with the bytes it held. Soft-dirty bits
//! are cleared by /proc/PID/clear_refs. A scan needs the memory registered with a userfaultfd of
//! the process itself: see `inject`.

use std::fs;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::change::{Change, Counts};
use super::inject;
use super::scan::Scan;
use odfork_proc::pagemap::{Run, FILE, PAGE, SOFT_DIRTY, WRITTEN};
use odfork_proc::tracee::Tracee;

/// What was populated at the last scan.
#[derive(Debug)]
pub struct Marks {
    /// The bit of a page that was written.
    mark: u64,
    before: Vec<Run>,
    /// Of method scan, once begun.
    faults: Option<OwnedFd>,
}

impl Marks {
    pub fn scan() -> Marks {
        Marks { mark: WRITTEN, before: Vec::new(), faults: None }
    }

    pub fn soft_dirty() -> Marks {
        Marks { mark: SOFT_DIRTY, ..Marks::scan() }
    }

    /// Counts what was written since the last scan, and clears the marks.
    pub fn update(&mut self, tracee: &mut Tracee) -> Result<Change> {
        let scan = if self.mark == WRITTEN {
            self.protect(tracee)?
        } else {
            let scan = Scan::at(tracee.pid)?;
            clear_soft_dirty(tracee.pid)?;
            scan
        };
        let now: Vec<Run> = scan.areas.iter().flat_map(|area| area.runs.iter().copied()).collect();
        let change = self.count(&scan, &now);
        self.before = now;
        Ok(change)
    }

    fn protect(&mut self, tracee: &mut Tracee) -> Result<Scan> {
        let faults = match self.faults.take() {
            Some(faults) => faults,
            None => inject::userfault(tracee)?,
        };
        // What is new since the last scan must be registered before it can be protected.
        for area in &Scan::at(tracee.pid)?.areas {
            inject::register(&faults, area.mapping.start, area.mapping.end);
        }
        self.faults = Some(faults);
        Scan::with(tracee.pid, |pagemap, mapping| {
            pagemap.runs_and_protect(mapping.start, mapping.end)
        })
    }

    fn count(&self, scan: &Scan, now: &[Run]) -> Change {
        let mut change = Change::default();
        for area in &scan.areas {
            let mut counts = Counts { pages: area.pages(), ..Counts::default() };
            for run in area.runs.iter().filter(|run| run.has(self.mark) && !run.has(FILE)) {
                counts.changed += run.pages();
                let file = area.mapping.is_of_file();
                counts.new += if file { 0 } else { run.pages() - overlap(&self.before, run) };
            }
            change.add(&area.mapping, counts);
        }
        change.gone = self.before.iter().map(|run| run.pages() - overlap(now, run)).sum();
        change
    }
}

/// Pages of `run` that lie in `runs`, which rise and do not overlap.
fn overlap(runs: &[Run], run: &Run) -> u64 {
    let first = runs.partition_point(|other| other.end <= run.start);
    let inside = runs[first..].iter().take_while(|other| other.start < run.end);
    inside.map(|other| (other.end.min(run.end) - other.start.max(run.start)) / PAGE).sum()
}

fn clear_soft_dirty(pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "4").with_context(|| format!("cannot clear soft-dirty bits by {path}"))
}

/// Tries on a page of our own whether the kernel keeps soft-dirty bits.
pub fn probe_soft_dirty() -> Result<(), String> {
    let pid = std::process::id() as i32;
    let page = vec![1u8; 4 * PAGE as usize];
    let at = (page.as_ptr() as u64).next_multiple_of(PAGE);
    let dirty = || -> Result<bool> {
        let runs = odfork_proc::pagemap::Pagemap::open(pid)?.runs(at, at + PAGE)?;
        Ok(runs.iter().any(|run| run.has(SOFT_DIRTY)))
    };
    let tried = clear_soft_dirty(pid).and_then(|()| {
        let cleared = !dirty()?;
        // SAFETY: `at` lies inside the vector, which has four pages.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at as usize).write_volatile(2) };
        Ok(cleared && dirty()?)
    });
    match tried {
        Ok(true) => Ok(()),
        Ok(false) => Err("this kernel keeps no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)".into()),
        Err(error) => Err(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, end: u64) -> Run {
        Run { start: start * PAGE, end: end * PAGE, bits: 0 }
    }

    #[test]
    fn pages_that_two_lists_share_are_counted() {
        let runs = [run(1, 3), run(5, 9), run(12, 13)];
        assert_eq!(overlap(&runs, &run(2, 6)), 2);
        assert_eq!(overlap(&runs, &run(0, 20)), 7);
        assert_eq!(overlap(&runs, &run(3, 5)), 0);
        assert_eq!(overlap(&[], &run(3, 5)), 0);
    }

    #[test]
    fn soft_dirty_is_offered_or_refused_in_one_line() {
        match probe_soft_dirty() {
            Ok(()) => eprintln!("this kernel keeps soft-dirty bits"),
            Err(why) => assert!(!why.is_empty() && !why.contains('\n')),
        }
    }
}
