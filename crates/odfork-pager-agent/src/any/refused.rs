//! Pages that the kernel refused to move: they are shared with a child, or pinned.
//!
//! They cannot leave, so the rest of the limit is not meant for them. The count is of the hand's
//! last revolution or of this one, and the hand of an idle program rests. A page may be free since:
//! its child has ended. So the count is doubted now and then.

/// First step, as a part of the limit. What is really pinned costs no more than that many other
/// pages each time.
const STEP: u64 = 32;
const LONGEST_PAUSE: u64 = 15;

#[derive(Default)]
pub struct Refused {
    /// In the last revolution and in this one.
    pages: [u64; 2],
    /// By how much the count was doubted last, and what all refusals were then.
    step: u64,
    seen: u64,
    /// Calls between two doubts, and until the next one.
    pause: u64,
    wait: u64,
}

impl Refused {
    pub fn pages(&self) -> u64 {
        self.pages[0].max(self.pages[1])
    }

    pub fn add(&mut self) {
        self.pages[1] += 1;
    }

    pub fn begin_revolution(&mut self) {
        self.pages = [self.pages[1], 0];
    }

    /// So many may be taken by now: they are counted again if the kernel still refuses them.
    pub fn forget(&mut self, count: u64) {
        self.pages = self.pages.map(|pages| pages.saturating_sub(count));
    }

    /// No more than the limit is in memory.
    pub fn trust(&mut self) {
        (self.step, self.pause, self.wait) = (0, 0, 0);
    }

    /// More than the limit is in memory, a second after the last call. `refusals`: of all time.
    /// While there are none the count is doubted more and more; else ever more rarely.
    pub fn doubt(&mut self, limit: u64, refusals: u64) {
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        let least = (limit / STEP).max(1);
        (self.step, self.pause) = match refusals == self.seen {
            true => (self.step.saturating_mul(2).max(least), 0),
            false => (least, (2 * self.pause + 1).min(LONGEST_PAUSE)),
        };
        (self.seen, self.wait) = (refusals, self.pause);
        self.forget(self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_no_more_is_forgotten_soon() {
        let mut refused = Refused::default();
        (0..100_000).for_each(|_| refused.add());
        refused.begin_revolution();
        let rounds = (1..).find(|_| {
            refused.doubt(2048, 100_000);
            refused.pages() == 0
        });
        assert!(rounds.is_some_and(|rounds| rounds <= 14), "{rounds:?}");
    }

    #[test]
    fn what_is_still_refused_is_hardly_doubted() {
        let (mut refused, mut doubts) = (Refused::default(), 0);
        (0..100_000).for_each(|_| refused.add());
        for round in 1..=600 {
            let before = refused.pages();
            refused.doubt(2048, round);
            doubts += u64::from(refused.pages() < before);
            refused.begin_revolution();
            (0..100_000).for_each(|_| refused.add());
        }
        assert!(doubts <= 45, "{doubts}");
    }
}
