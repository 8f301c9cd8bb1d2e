//! How many pages one touch brings: walks are followed, and blocks are judged by what became of
//! their pages.

/// Most pages of a block, and the size of a trial while blocks are single pages.
const MOST_AROUND: u64 = 16;
const TRIED: u64 = 4;
/// While nothing is read ahead, one in so many touches tries it again.
const TRIAL: u64 = 32;
/// Outcomes by which the size of blocks is judged.
const OUTCOMES: u64 = 64;

/// Walks in several places in turn: where each goes on, and what its last touch brought.
pub struct Walks {
    list: Vec<(u64, u64)>,
    last: usize,
    oldest: usize,
}

impl Walks {
    pub fn new(places: usize) -> Walks {
        Walks { list: vec![(0, 0); places], last: 0, oldest: 0 }
    }

    /// Pages for this touch: twice as many as last time where it was expected, else one.
    pub fn run(&mut self, page: u64, most: u64) -> u64 {
        match self.list.iter().position(|&(next, _)| next == page) {
            Some(at) => {
                self.last = at;
                self.list[at].1 = (self.list[at].1 * 2).clamp(1, most);
            }
            None => {
                self.last = self.oldest;
                self.oldest = (self.oldest + 1) % self.list.len();
                self.list[self.last] = (page, 1);
            }
        }
        self.list[self.last].1
    }

    /// Where the walk of the last touch goes on.
    pub fn expect(&mut self, page: u64) {
        self.list[self.last].0 = page;
    }
}

/// How large the block around a page is that is read.
pub struct Blocks {
    size: u64,
    touches: u64,
    good: u64,
    bad: u64,
}

impl Blocks {
    pub fn new() -> Blocks {
        Blocks { size: TRIED, touches: 0, good: 0, bad: 0 }
    }

    /// Of the block around a touch.
    pub fn size(&mut self) -> u64 {
        self.touches += 1;
        if self.size == 1 && self.touches % TRIAL == 0 {
            TRIED
        } else {
            self.size
        }
    }

    /// Pages that are taken back with one of a block.
    pub fn run(&self) -> u64 {
        self.size / 2
    }

    /// A page that was read ahead was touched, or left.
    pub fn ended(&mut self, was_touched: bool) {
        self.good += u64::from(was_touched);
        self.bad += u64::from(!was_touched);
        if self.good + self.bad < OUTCOMES {
            return;
        }
        if self.good >= OUTCOMES / 4 {
            self.size = (self.size * 2).min(MOST_AROUND);
        } else if self.good < OUTCOMES / 10 {
            self.size = (self.size / 2).max(1);
        }
        (self.good, self.bad) = (0, 0);
    }
}
