//! Reading around: a touch of a page in the store brings its neighbours into the pool, in one read.
//!
//! How many goes by what became of those brought before: touched while they were in the pool, or
//! written off at its end.

/// Most pages of one block; a power of two.
const MOST_AROUND: u64 = 16;
/// Outcomes by which the size of blocks is judged. At least a quarter of them good: larger; fewer
/// than a tenth: smaller.
const OUTCOMES: u64 = 64;
/// While nothing is read ahead, one in so many touches tries it again.
const TRIAL: u64 = 32;
const TRIED: u64 = 4;

/// How large blocks are.
pub struct Ahead {
    size: u64,
    touches: u64,
    good: u64,
    bad: u64,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { size: TRIED, touches: 0, good: 0, bad: 0 }
    }
}

impl Ahead {
    /// Pages of the block around a touch.
    pub fn size(&mut self) -> u64 {
        self.touches += 1;
        match self.size == 1 && self.touches % TRIAL == 0 {
            true => TRIED,
            false => self.size,
        }
    }

    /// The same where no other size is tried.
    pub fn usual(&self) -> u64 {
        self.size
    }

    /// How many of those that lie behind one that was touched are likely to be, too.
    pub fn run(&self) -> u64 {
        self.size / 2
    }

    /// What became of a page.
    pub fn ended(&mut self, was_touched: bool) {
        match was_touched {
            true => self.good += 1,
            false => self.bad += 1,
        }
        if self.good + self.bad >= OUTCOMES {
            match self.good {
                good if good >= OUTCOMES / 4 => self.size = (self.size * 2).min(MOST_AROUND),
                good if good < OUTCOMES / 10 => self.size = (self.size / 2).max(1),
                _ => {}
            }
            (self.good, self.bad) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_while_they_are_touched_and_shrink_else() {
        let mut ahead = Ahead::default();
        (0..2 * OUTCOMES).for_each(|at| ahead.ended(at % 4 == 0));
        assert_eq!(ahead.size(), MOST_AROUND);
        (0..5 * OUTCOMES).for_each(|_| ahead.ended(false));
        assert_eq!(ahead.size, 1);
        assert!((0..TRIAL).any(|_| ahead.size() == TRIED));
    }
}
