//! MIN (Belady): evicts the page whose next reference is farthest away. The lower bound of faults;
//! it needs the whole trace.
//!
//! The pieces of the trace are kept (shared between sizes); one backward pass finds the next
//! references.

use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use super::{bits, dirty_if, Run};
use crate::cost::Tally;
use crate::trace::{Batch, Page};

/// No reference follows. Positions are counted modulo nothing: a trace of 4 billion references does
/// not fit into memory.
const NEVER: u32 = u32::MAX;

/// For every reference the position of the next one to its page.
type Future = Arc<OnceLock<Vec<u32>>>;

pub(super) fn runs(frames: &[u32]) -> Vec<Box<dyn Run>> {
    let future = Future::default();
    let run = |&frames: &u32| -> Box<dyn Run> {
        Box::new(Min {
            frames,
            batches: Vec::new(),
            future: future.clone(),
            tally: Tally::default(),
        })
    };
    frames.iter().map(run).collect()
}

struct Min {
    frames: u32,
    batches: Vec<Arc<Batch>>,
    future: Future,
    tally: Tally,
}

impl Run for Min {
    fn feed(&mut self, batch: &Arc<Batch>) {
        self.tally.references += batch.references.len() as u64;
        self.batches.push(batch.clone());
    }

    fn finish(&mut self) {
        let batches = std::mem::take(&mut self.batches);
        let next = self.future.get_or_init(|| next_references(&batches)).as_slice();
        let pages: usize = batches.iter().map(|batch| batch.new_pages.len()).sum();
        let mut memory = Memory {
            frames: self.frames as usize,
            held: 0,
            state: vec![0; pages],
            next: vec![0; pages],
            order: BinaryHeap::new(),
        };
        let all = batches.iter().flat_map(|batch| &batch.references);
        for (reference, &next) in all.zip(next) {
            memory.touch(reference.page(), reference.is_write(), next, &mut self.tally);
        }
    }

    fn tallies(&self) -> Vec<(u32, Tally)> {
        vec![(self.frames, self.tally)]
    }
}

fn next_references(batches: &[Arc<Batch>]) -> Vec<u32> {
    let pages: usize = batches.iter().map(|batch| batch.new_pages.len()).sum();
    let references: usize = batches.iter().map(|batch| batch.references.len()).sum();
    let mut seen = vec![NEVER; pages];
    let mut next = vec![NEVER; references];
    let mut at = references;
    for reference in batches.iter().rev().flat_map(|batch| batch.references.iter().rev()) {
        at -= 1;
        next[at] = std::mem::replace(&mut seen[reference.page() as usize], at as u32);
    }
    next
}

struct Memory {
    frames: usize,
    held: usize,
    state: Vec<u8>,
    next: Vec<u32>,
    /// Next reference and page of all pages in memory, and older entries, which are recognised by
    /// `next`.
    order: BinaryHeap<(u32, Page)>,
}

impl Memory {
    fn touch(&mut self, page: Page, write: bool, next: u32, tally: &mut Tally) {
        let at = page as usize;
        if self.state[at] == 0 {
            tally.faults += 1;
            if self.held == self.frames {
                tally.write_backs += u64::from(self.evict());
            } else {
                self.held += 1;
            }
        }
        self.state[at] |= bits::IN | dirty_if(write);
        self.next[at] = next;
        self.order.push((next, page));
        if self.order.len() > 4 * self.held + 1024 {
            self.compact();
        }
    }

    /// Returns whether the page was dirty.
    fn evict(&mut self) -> bool {
        while let Some((next, page)) = self.order.pop() {
            let state = self.state[page as usize];
            if state != 0 && self.next[page as usize] == next {
                self.state[page as usize] = 0;
                return state & bits::DIRTY != 0;
            }
        }
        false
    }

    fn compact(&mut self) {
        let (state, nexts) = (&self.state, &self.next);
        self.order
            .retain(|&(next, page)| state[page as usize] != 0 && nexts[page as usize] == next);
    }
}
