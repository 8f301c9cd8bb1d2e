//! Runs policies over a trace: one thread reads, as many work as there are processors.
//!
//! A piece of the trace goes to every worker and through all its policies while it is in the cache.
//! What a policy must know of the whole trace beforehand (to divide memory between processes) makes
//! a second round over the pieces kept.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use odfork_policy::cost::Tally;
use odfork_policy::policy::{runs, Run, Spec};
use odfork_policy::trace::{Batch, Summary};

use super::source::Source;

/// Pieces a worker may lag behind the reader.
const LAG: usize = 8;

/// Counts of one policy (by its place in the list given) with one size of memory.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub policy: usize,
    pub frames: u32,
    pub tally: Tally,
}

/// What came out for one trace.
pub struct Outcome {
    /// In the order of policies, then of sizes.
    pub counts: Vec<Count>,
    pub summary: Summary,
    /// Ctrl-C ended the trace early.
    pub interrupted: bool,
}

type Job = (usize, Box<dyn Run>);

/// Simulates every policy with every size of memory on one trace.
pub fn simulate(source: Source, policies: &[Spec], frames: &[u32]) -> Result<Outcome> {
    simulate_batches(Feed::Source(Box::new(source)), policies, frames)
}

/// The same on pieces in memory.
pub fn simulate_kept(pieces: &[Arc<Batch>], policies: &[Spec], frames: &[u32]) -> Result<Outcome> {
    simulate_batches(Feed::Kept(pieces.iter(), Summary::default()), policies, frames)
}

enum Feed<'a> {
    Source(Box<Source>),
    Kept(std::slice::Iter<'a, Arc<Batch>>, Summary),
}

impl Feed<'_> {
    fn next(&mut self) -> Result<Option<Arc<Batch>>> {
        match self {
            Feed::Source(source) => Ok(source.next()?.map(Arc::new)),
            Feed::Kept(pieces, summary) => {
                let piece = pieces.next().cloned();
                if let Some(piece) = &piece {
                    summary.add(piece);
                }
                Ok(piece)
            }
        }
    }

    fn end(self) -> (Summary, bool) {
        match self {
            Feed::Source(source) => (source.summary, source.interrupted),
            Feed::Kept(_, summary) => (summary, false),
        }
    }
}

fn simulate_batches(mut feed: Feed, policies: &[Spec], frames: &[u32]) -> Result<Outcome> {
    let jobs = |whole: &Summary, late: bool| -> Vec<Job> {
        let mut jobs = Vec::new();
        for (policy, spec) in policies.iter().enumerate().filter(|(_, s)| s.needs_whole() == late) {
            jobs.extend(runs(spec, frames, whole).into_iter().map(|run| (policy, run)));
        }
        jobs
    };
    let keep = policies.iter().any(Spec::needs_whole);
    let mut kept = Vec::new();
    let mut progress = Progress::new();
    let mut references = 0;
    let early = work(jobs(&Summary::default(), false), || {
        let piece = feed.next()?;
        if let Some(piece) = &piece {
            references += piece.references.len() as u64;
            progress.show(references);
            if keep {
                kept.push(piece.clone());
            }
        }
        Ok(piece)
    });
    let mut done = early?;
    let (summary, interrupted) = feed.end();
    let mut pieces = kept.into_iter();
    done.extend(work(jobs(&summary, true), || Ok(pieces.next()))?);
    progress.clear();
    Ok(Outcome { counts: sorted(done, frames), summary, interrupted })
}

fn sorted(done: Vec<Job>, frames: &[u32]) -> Vec<Count> {
    let place = |wanted: u32| frames.iter().position(|&frames| frames == wanted);
    let mut counts: Vec<Count> = done
        .iter()
        .flat_map(|(policy, run)| {
            let count = |(frames, tally)| Count { policy: *policy, frames, tally };
            run.tallies().into_iter().map(count)
        })
        .collect();
    let places: std::collections::HashMap<u32, usize> =
        frames.iter().filter_map(|&frames| Some((frames, place(frames)?))).collect();
    counts.sort_by_key(|count| (count.policy, places.get(&count.frames).copied()));
    counts
}

/// Every piece through every job; the jobs come back when all are done.
fn work(jobs: Vec<Job>, mut next: impl FnMut() -> Result<Option<Arc<Batch>>>) -> Result<Vec<Job>> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let workers = processors.min(jobs.len());
    let mut shares: Vec<Vec<Job>> = (0..workers).map(|_| Vec::new()).collect();
    for (at, job) in jobs.into_iter().enumerate() {
        shares[at % workers].push(job);
    }
    thread::scope(|scope| {
        let mut senders: Vec<SyncSender<Arc<Batch>>> = Vec::new();
        let mut handles = Vec::new();
        for mut share in shares {
            let (sender, receiver) = sync_channel::<Arc<Batch>>(LAG);
            senders.push(sender);
            handles.push(scope.spawn(move || {
                for piece in receiver {
                    share.iter_mut().for_each(|(_, run)| run.feed(&piece));
                }
                share.iter_mut().for_each(|(_, run)| run.finish());
                share
            }));
        }
        let mut failed = None;
        loop {
            match next() {
                // A worker ends only when its channel does, so sending cannot fail.
                Ok(Some(piece)) => senders.iter().for_each(|to| drop(to.send(piece.clone()))),
                Ok(None) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        drop(senders);
        let done = handles.into_iter().filter_map(|handle| handle.join().ok()).flatten().collect();
        failed.map_or(Ok(done), Err)
    })
}

/// A line on a terminal, twice a second, gone at the end.
struct Progress {
    on: bool,
    last: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { on: std::io::stderr().is_terminal(), last: Instant::now() }
    }

    fn show(&mut self, references: u64) {
        if self.on && self.last.elapsed() > Duration::from_millis(500) {
            self.last = Instant::now();
            eprint!("\r\x1b[K{:.0} million references", references as f64 / 1e6);
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.on {
            eprint!("\r\x1b[K");
        }
    }
}
