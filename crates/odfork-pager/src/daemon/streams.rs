//! How much to read at a miss: sequential streams, and whether neighbours of a random miss turn out
//! to be wanted.
//!
//! A miss right behind what a stream has read last doubles that stream's cluster; any other miss
//! begins a stream of one page. (Asking only whether a neighbour is in memory takes 3-5 % of random
//! misses for streams.) Beside that, the size of the block read around a random miss follows what
//! became of such pages before: more than half of them touched before they left memory doubles it,
//! less than a quarter halves it; now and then a small block is read as a probe.

use crate::table::Page;

const STREAMS: usize = 16;
/// Outcomes after which the block's size is looked at.
const JUDGED: u32 = 32;
/// At block size 1, every so many random misses read a block of 4.
const PROBE_EVERY: u32 = 16;
const PROBE: u32 = 4;
const MOST_BLOCK: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    next: Page,
    run: u32,
    used: u64,
}

#[derive(Debug)]
pub struct Streams {
    items: [Stream; STREAMS],
    clock: u64,
    block: u32,
    misses: u32,
    wanted: u32,
    wasted: u32,
}

impl Default for Streams {
    fn default() -> Streams {
        let items = [Stream::default(); STREAMS];
        Streams { items, clock: 0, block: 1, misses: 0, wanted: 0, wasted: 0 }
    }
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This page and the ones behind it, so many in all.
    Ahead(u32),
    /// The aligned block of so many pages around it.
    Around(u32),
}

impl Streams {
    /// A miss; at most `most` pages are to be read.
    pub fn miss(&mut self, page: Page, most: u32) -> Reach {
        self.clock += 1;
        let near = |stream: &&mut Stream| {
            stream.run > 0 && page >= stream.next && page - stream.next <= u64::from(stream.run)
        };
        if let Some(stream) = self.items.iter_mut().find(near) {
            stream.run = (stream.run * 2).min(most.max(1));
            stream.next = page + u64::from(stream.run);
            stream.used = self.clock;
            return Reach::Ahead(stream.run);
        }
        let oldest = self.items.iter_mut().min_by_key(|stream| stream.used);
        if let Some(stream) = oldest {
            *stream = Stream { next: page + 1, run: 1, used: self.clock };
        }
        self.misses = self.misses.wrapping_add(1);
        let probe = self.block == 1 && self.misses % PROBE_EVERY == 0;
        Reach::Around(if probe { PROBE } else { self.block }.min(most.max(1)))
    }

    /// Pages behind a touched one that are worth mapping with it.
    pub fn around(&self, page: Page) -> u32 {
        let covers =
            |stream: &&Stream| page < stream.next && stream.next - page <= u64::from(stream.run);
        self.items.iter().find(covers).map_or(0, |stream| stream.run / 2)
    }

    /// What became of a page read around a random miss.
    pub fn judge(&mut self, touched: bool) {
        if touched {
            self.wanted += 1;
        } else {
            self.wasted += 1;
        }
        let all = self.wanted + self.wasted;
        if all >= JUDGED {
            if self.wanted * 2 > all {
                self.block = (self.block * 2).min(MOST_BLOCK);
            } else if self.wanted * 4 < all {
                self.block = (self.block / 2).max(1);
            }
            (self.wanted, self.wasted) = (0, 0);
        }
    }

    pub fn block(&self) -> u32 {
        self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_doubles_and_others_do_not_disturb_it() {
        let mut streams = Streams::default();
        let mut page = 100;
        let mut sizes = Vec::new();
        for n in 0..6 {
            let Reach::Ahead(size) = streams.miss(page, 16) else {
                assert_eq!(n, 0);
                page += 1;
                continue;
            };
            sizes.push(size);
            page += u64::from(size);
            assert_eq!(streams.miss(90_000 + n * 777, 16), Reach::Around(1));
        }
        assert_eq!(sizes, [2, 4, 8, 16, 16]);
        assert_eq!(streams.around(page - 1), 8);
        assert_eq!(streams.around(5), 0);
    }

    #[test]
    fn the_block_follows_what_became_of_neighbours() {
        let mut streams = Streams::default();
        let random = |n: u64| n.wrapping_mul(0x9E37_79B9) % (1 << 40) * 1000;
        let probes = (0..160).filter(|&n| streams.miss(random(n), 64) == Reach::Around(4)).count();
        assert_eq!(probes, 10);
        (0..64).for_each(|_| streams.judge(true));
        assert_eq!(streams.block(), 4);
        (0..320).for_each(|_| streams.judge(true));
        assert_eq!(streams.block(), 16);
        (0..320).for_each(|_| streams.judge(false));
        assert_eq!(streams.block(), 1);
    }
}
