//! The hybrid of VMS: every process has a resident set of a fixed size, first in, first out; what
//! leaves it goes to one global free list, from which it is reclaimed or reused in the order of
//! leaving (nearly LRU).

use super::sets::Sets;
use super::Replacement;
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::{Page, Summary};

/// How large resident sets are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The same number of pages for every process, whatever the memory.
    Pages(u32),
    /// A share of the process's part of memory (memory divided by the number of processes).
    Fraction(f64),
}

impl Limit {
    fn pages(self, frames: u32, processes: usize) -> usize {
        let pages = match self {
            Limit::Pages(pages) => pages,
            Limit::Fraction(fraction) => {
                (f64::from(frames) / processes.max(1) as f64 * fraction) as u32
            }
        };
        pages.clamp(1, frames.max(1)) as usize
    }
}

pub(super) struct Vms {
    sets: Sets,
    limit: usize,
}

impl Vms {
    pub fn new(frames: u32, limit: Limit, whole: &Summary) -> Vms {
        let processes = whole.footprints.iter().filter(|&&pages| pages > 0).count();
        Vms { sets: Sets::new(frames), limit: limit.pages(frames, processes) }
    }
}

impl Replacement for Vms {
    fn grow(&mut self, owners: &[Owner]) {
        self.sets.grow(owners);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        if self.sets.is_resident(page) {
            // Nobody looks at reference bits here, so none is ever clear.
            self.sets.hit(page, write);
            return;
        }
        let owner = self.sets.owner[page as usize];
        // Before the frame is looked for: the page that makes room goes to the end of the list
        // first.
        let set = &mut self.sets.sets[owner as usize];
        if set.len() >= self.limit {
            if let Some(oldest) = set.pop_front() {
                self.sets.release(oldest);
            }
        }
        self.sets.bring(page, write);
    }

    fn tally(&self, _: u32) -> Tally {
        self.sets.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_fractions() {
        assert_eq!(Limit::Pages(500).pages(100, 2), 100);
        assert_eq!(Limit::Fraction(0.5).pages(100, 2), 25);
        assert_eq!(Limit::Fraction(0.001).pages(100, 2), 1);
        assert_eq!(Limit::Fraction(1.0).pages(100, 0), 100);
    }
}
