//! Replacement policies, one small file each behind one trait, and the names by which they are
//! asked for.
//!
//! All start with empty memory and bring pages in on demand. A policy sees every reference; those
//! that a real machine without reference bits could run count what the knowledge costs as reclaims.
//! LRU and MIN cannot be built; they are the yardsticks, and cost no reclaims.

mod clock;
mod fifo;
mod local;
mod lru;
mod min;
mod moves;
mod pff;
mod rand;
mod sets;
mod slots;
mod spec;
mod sws;
mod unix;
mod vms;

use std::sync::Arc;

use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::{Batch, Page, Summary};

use slots::Slotted;

pub use local::Division;
pub use moves::{Bits, Settings as MovesSettings};
pub use spec::{ParseError, Spec, NAMES};

/// One policy with one size of memory (LRU: with several).
pub trait Replacement: Send {
    /// Pages that will be referenced from now on, numbered on from those before, by their
    /// processes.
    fn grow(&mut self, owners: &[Owner]);
    /// One reference.
    fn touch(&mut self, page: Page, write: bool);
    /// A process enters or leaves an anomalous phase; most policies take no advice.
    fn advise(&mut self, _owner: Owner, _on: bool) {}
    /// Counts with `frames` of memory; `references` is left 0.
    fn tally(&self, frames: u32) -> Tally;
}

/// A policy at work on a trace, whose pieces come one after the other.
pub trait Run: Send {
    /// The next piece.
    fn feed(&mut self, batch: &Arc<Batch>);
    /// The end of the trace; policies that need the future do their work here.
    fn finish(&mut self) {}
    /// Counts for every size of memory asked for.
    fn tallies(&self) -> Vec<(u32, Tally)>;
}

/// Feeds a replacement.
struct Online<R> {
    policy: R,
    frames: Vec<u32>,
    references: u64,
}

impl<R: Replacement> Run for Online<R> {
    fn feed(&mut self, batch: &Arc<Batch>) {
        self.policy.grow(&batch.new_pages);
        let mut done = 0;
        for mark in &batch.marks {
            for reference in &batch.references[done..mark.at] {
                self.policy.touch(reference.page(), reference.is_write());
            }
            done = mark.at;
            self.policy.advise(mark.owner, mark.on);
        }
        for reference in &batch.references[done..] {
            self.policy.touch(reference.page(), reference.is_write());
        }
        self.references += batch.references.len() as u64;
    }

    fn tallies(&self) -> Vec<(u32, Tally)> {
        let tally = |&frames: &u32| {
            (frames, Tally { references: self.references, ..self.policy.tally(frames) })
        };
        self.frames.iter().map(tally).collect()
    }
}

fn online<R: Replacement + 'static>(policy: R, frames: Vec<u32>) -> Box<dyn Run> {
    Box::new(Online { policy, frames, references: 0 })
}

/// Sets the policy up for each size of memory; `frames` are above 0. As few runs as the policy
/// allows: one for LRU, else one a size. `whole` is needed where [`Spec::needs_whole`] says so.
pub fn runs(spec: &Spec, frames: &[u32], whole: &Summary) -> Vec<Box<dyn Run>> {
    match spec {
        Spec::Lru { local: None } => vec![online(lru::Lru::new(), frames.to_vec())],
        Spec::Min => min::runs(frames),
        _ => frames.iter().map(|&frames| one(spec, frames, whole)).collect(),
    }
}

fn one(spec: &Spec, frames: u32, whole: &Summary) -> Box<dyn Run> {
    let sizes = vec![frames];
    macro_rules! divided {
        ($local:expr, $make:expr) => {
            match $local {
                None => online($make(frames), sizes),
                Some(division) => online(local::Local::new(division, frames, whole, $make), sizes),
            }
        };
    }
    match *spec {
        Spec::Fifo { local } => {
            divided!(local, |frames| Slotted::new(frames, fifo::Fifo::default()))
        }
        Spec::Rand { seed, local } => {
            divided!(local, |frames| Slotted::new(frames, rand::Rand::new(seed)))
        }
        Spec::Lru { local } => divided!(local, |_| lru::Lru::new()),
        Spec::Clock { insert, local } => {
            divided!(local, |frames| Slotted::new(frames, clock::Clock::new(insert)))
        }
        Spec::Sws { window } => online(sws::Sws::new(frames, window), sizes),
        Spec::Pff { threshold } => online(pff::Pff::new(frames, threshold), sizes),
        Spec::Vms { limit } => online(vms::Vms::new(frames, limit, whole), sizes),
        Spec::Unix(settings) => online(unix::Unix::new(frames, settings), sizes),
        Spec::Moves(settings) => online(moves::Moves::new(frames, settings), sizes),
        Spec::Min => min::runs(&sizes).remove(0),
    }
}

/// What policies keep of each page, as bits of a byte.
mod bits {
    pub const IN: u8 = 1;
    pub const BIT: u8 = 2;
    pub const DIRTY: u8 = 4;
    /// On the global free list (with `IN`).
    pub const FREE: u8 = 8;
}

/// `DIRTY` for a write, without a branch.
#[inline]
fn dirty_if(write: bool) -> u8 {
    u8::from(write) * bits::DIRTY
}
