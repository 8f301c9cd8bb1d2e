//! The pager of all memory as its description reads: lists of pages, searched from end to end.

use std::collections::{BTreeMap, BTreeSet};

/// A page in the pool: its number, the slot of an earlier content, and whether it was read ahead.
type Parked = Option<(u64, Option<u64>, bool)>;

struct Present {
    is_written: bool,
    slot: Option<u64>,
}

/// What is walked: where the next touch is expected, and what the last one brought.
type Walk = (u64, u64);

pub struct Pager {
    frames: u64,
    own: u64,
    spares: bool,
    present: BTreeMap<u64, Present>,
    /// All that ever was in the pool, in this order.
    pool: Vec<Parked>,
    /// So many of them left.
    tail: usize,
    stored: BTreeMap<u64, u64>,
    changed: BTreeSet<u64>,
    untouched: BTreeSet<u64>,
    /// Slots, and the search for free ones.
    slots: Vec<bool>,
    next: usize,
    given: usize,
    /// Pages that exist.
    known: u64,
    hand: u64,
    pause: u32,
    fills: Vec<Walk>,
    reads: Vec<Walk>,
    backs: Vec<Walk>,
    /// Of each kind of walk: the one touched last, and the one to be replaced.
    last: [usize; 3],
    oldest: [usize; 3],
    block: u64,
    block_touches: u64,
    outcomes: Vec<bool>,
    pub faults: u64,
    pub reclaims: u64,
    pub written: u64,
    pub read: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Fill,
    Read,
    Back,
}

impl Pager {
    pub fn new(frames: u64, own: u64, spares: bool, known: u64) -> Pager {
        Pager {
            frames,
            own: own.min(frames - 1),
            spares,
            present: BTreeMap::new(),
            pool: Vec::new(),
            tail: 0,
            stored: BTreeMap::new(),
            changed: BTreeSet::new(),
            untouched: BTreeSet::new(),
            slots: Vec::new(),
            next: 0,
            given: 0,
            known,
            hand: 0,
            pause: 0,
            fills: vec![(0, 0)],
            reads: vec![(0, 0); 8],
            backs: vec![(0, 0)],
            last: [0; 3],
            oldest: [0; 3],
            block: 4,
            block_touches: 0,
            outcomes: Vec::new(),
            faults: 0,
            reclaims: 0,
            written: 0,
            read: 0,
        }
    }

    pub fn touch(&mut self, page: u64, write: bool) {
        if !self.present.contains_key(&page) {
            let parked = (self.tail..self.pool.len())
                .find(|&at| self.pool[at].is_some_and(|parked| parked.0 == page));
            match (parked, self.stored.get(&page).copied()) {
                (Some(at), _) => self.take_back(page, at),
                (None, Some(slot)) => self.read_in(page, slot),
                (None, None) => self.fill(page),
            }
        }
        // The first touch brings content.
        if write | self.untouched.remove(&page) {
            self.changed.insert(page);
            self.present.get_mut(&page).unwrap().is_written = true;
        }
    }

    fn walks(&mut self, kind: Kind) -> &mut Vec<Walk> {
        match kind {
            Kind::Fill => &mut self.fills,
            Kind::Read => &mut self.reads,
            Kind::Back => &mut self.backs,
        }
    }

    fn walk(&mut self, kind: Kind, page: u64, most: u64) -> u64 {
        let found = self.walks(kind).iter().position(|walk| walk.0 == page);
        let at = found.unwrap_or(self.oldest[kind as usize]);
        let count = self.walks(kind).len();
        let walk = &mut self.walks(kind)[at];
        *walk = match found {
            Some(_) => (page, (walk.1 * 2).max(1).min(most)),
            None => (page, 1),
        };
        let run = walk.1;
        self.last[kind as usize] = at;
        if found.is_none() {
            self.oldest[kind as usize] = (at + 1) % count;
        }
        run
    }

    fn expect(&mut self, kind: Kind, page: u64) {
        let last = self.last[kind as usize];
        self.walks(kind)[last].0 = page;
    }

    /// Not more than half of what there is.
    fn at_most(&self, pages: u64) -> u64 {
        pages.min(((self.frames - self.own) / 2).max(1))
    }

    fn parked(&self) -> u64 {
        self.pool[self.tail..].iter().flatten().count() as u64
    }

    fn resident(&self) -> u64 {
        self.own + self.present.len() as u64 + self.parked()
    }

    fn take_back(&mut self, page: u64, at: usize) {
        self.reclaims += 1;
        let mut most = self.walk(Kind::Back, page, 16).max(4);
        if self.pool[at].unwrap().2 {
            self.outcome(true);
            most = most.max(self.block / 2);
        }
        // Neighbours by page and by place, behind first; a run does not cross the ring's end.
        let ring = self.frames as usize;
        let is_one = |at: usize, page: u64| {
            self.pool.get(at).is_some_and(|it| it.is_some_and(|parked| parked.0 == page))
        };
        let (mut first, mut end) = (at, at + 1);
        while ((end - first) as u64) < most
            && end % ring != 0
            && is_one(end, page + (end - at) as u64)
        {
            end += 1;
        }
        while ((end - first) as u64) < most
            && first % ring != 0
            && page > (at - first) as u64
            && is_one(first - 1, page - (at - first) as u64 - 1)
        {
            first -= 1;
        }
        for one in first..end {
            let (page, slot, _) = self.pool[one].take().unwrap();
            self.present.insert(page, Present { is_written: true, slot });
        }
        self.expect(Kind::Back, page + (end - at) as u64);
    }

    fn outcome(&mut self, was_touched: bool) {
        self.outcomes.push(was_touched);
        if self.outcomes.len() == 64 {
            let good = self.outcomes.iter().filter(|&&good| good).count();
            self.block = match good {
                16.. => (self.block * 2).min(16),
                6.. => self.block,
                _ => (self.block / 2).max(1),
            };
            self.outcomes.clear();
        }
    }

    fn read_in(&mut self, page: u64, slot: u64) {
        self.faults += 1;
        let is_stored =
            |pager: &Pager, page: u64, slot: u64| pager.stored.get(&page) == Some(&slot);
        let most = self.walk(Kind::Read, page, self.at_most(256));
        let run = (0..most).take_while(|&at| is_stored(self, page + at, slot + at)).count() as u64;
        let (mut first, mut end) = (page, page + run);
        if most == 1 {
            self.block_touches += 1;
            let is_trial = self.block == 1 && self.block_touches % 32 == 0;
            let size = self.at_most(if is_trial { 4 } else { self.block });
            let start = page - page % size.next_power_of_two();
            while first > start
                && slot > page - first
                && is_stored(self, first - 1, slot + first - page - 1)
            {
                first -= 1;
            }
            while end < start + size && is_stored(self, end, slot + end - page) {
                end += 1;
            }
        }
        self.make_room(end - first);
        for at in page..page + run {
            let slot = self.stored.remove(&at);
            self.present.insert(at, Present { is_written: true, slot });
            self.read += 1;
        }
        self.expect(Kind::Read, end);
        for at in (first..page).chain(page + run..end) {
            if self.places() == 0 {
                break;
            }
            let slot = self.stored.remove(&at);
            self.pool.push(Some((at, slot, true)));
            self.read += 1;
        }
    }

    fn fill(&mut self, page: u64) {
        self.faults += 1;
        let most = self.walk(Kind::Fill, page, self.at_most(32));
        self.make_room(most);
        let mut at = page;
        while at < page + most && self.is_fresh(at) {
            self.present.insert(at, Present { is_written: true, slot: None });
            self.untouched.insert(at);
            at += 1;
        }
        self.known = self.known.max(at);
        self.expect(Kind::Fill, at);
    }

    fn is_fresh(&self, page: u64) -> bool {
        let is_parked = self.pool[self.tail..].iter().flatten().any(|parked| parked.0 == page);
        !is_parked && !self.present.contains_key(&page) && !self.stored.contains_key(&page)
    }

    fn make_room(&mut self, count: u64) {
        for _ in 0..4 {
            if self.resident() + count > self.frames {
                self.reduce(count);
            }
        }
    }

    fn reduce(&mut self, more: u64) {
        let full = if self.pause > 0 { 0 } else { self.frames / 16 };
        self.pause = self.pause.saturating_sub(1);
        let pool = if self.parked() < full - full / 4 { full } else { 0 };
        let goal = self.frames - self.frames / 32;
        for _ in 0..256 {
            if self.resident() + more <= goal {
                return;
            }
            let over = self.resident() + more - goal;
            if self.parked() < over + pool {
                self.sweep(over + pool - self.parked());
            }
            if self.leave(over.min(128)) == 0 {
                return;
            }
        }
    }

    fn sweep(&mut self, want: u64) {
        let (mut left, mut spared, mut turns) = (want, (want * 8).max(1024), 0);
        while left > 0 && turns < 2 {
            if self.hand >= self.known {
                (self.hand, turns) = (0, turns + 1);
                continue;
            }
            // Runs as they are now; 64 of them, or 1,024 pages.
            let mut runs: Vec<(u64, u64, bool)> = Vec::new();
            let mut end = self.known;
            for (&page, present) in self.present.range(self.hand..).take(1024) {
                let is_last =
                    runs.last().is_some_and(|it| (it.1, it.2) == (page, present.is_written));
                if !is_last && runs.len() == 64 {
                    break;
                }
                if is_last {
                    runs.last_mut().unwrap().1 += 1;
                } else {
                    runs.push((page, page + 1, present.is_written));
                }
            }
            if runs.len() == 64 || runs.iter().map(|it| it.1 - it.0).sum::<u64>() == 1024 {
                end = runs.last().unwrap().1;
            }
            for (from, to, is_written) in runs {
                for page in from..to {
                    if is_written && self.spares && spared > 0 {
                        spared -= 1;
                        self.present.get_mut(&page).unwrap().is_written = false;
                    } else if left > 0 {
                        self.park(page);
                        left -= 1;
                        self.hand = page + 1;
                    }
                }
                if left == 0 {
                    break;
                }
            }
            if left > 0 {
                self.hand = end;
            }
        }
        if left > 0 {
            self.pause = 100;
        }
    }

    /// Places of the ring from its head on.
    fn places(&self) -> u64 {
        let head = self.pool.len() as u64;
        (self.frames - (head - self.tail as u64)).min(self.frames - head % self.frames)
    }

    fn park(&mut self, page: u64) {
        if self.places() == 0 {
            self.leave(256);
        }
        let slot = self.present.remove(&page).unwrap().slot;
        self.pool.push(Some((page, slot, false)));
    }

    fn leave(&mut self, count: u64) -> u64 {
        let mut gone = 0;
        while gone < count {
            let mut list = Vec::new();
            while self.tail < self.pool.len() && (list.len() as u64) < (count - gone).min(256) {
                list.extend(self.pool[self.tail].take());
                self.tail += 1;
            }
            if list.is_empty() {
                break;
            }
            gone += list.len() as u64;
            self.save(list);
        }
        gone
    }

    fn save(&mut self, list: Vec<(u64, Option<u64>, bool)>) {
        let is_new = |pager: &Pager, page: &u64| pager.changed.contains(page);
        let count = list.iter().filter(|it| is_new(self, &it.0)).count();
        let mut slot = if count > 0 { self.find(count) } else { 0 };
        for (page, old, ahead) in list {
            if ahead {
                self.outcome(false);
            }
            if self.changed.remove(&page) {
                old.into_iter().for_each(|old| self.slots[old as usize] = false);
                self.stored.insert(page, slot);
                self.written += 1;
                slot += 1;
            } else if !self.untouched.remove(&page) {
                self.stored.insert(page, old.unwrap());
            }
        }
    }

    /// So many free slots in a row.
    fn find(&mut self, count: usize) -> u64 {
        let (end, used) = (self.slots.len(), self.slots.iter().filter(|&&used| used).count());
        if self.next >= end && used < end / 2 && self.given >= end / 4 {
            (self.next, self.given) = (0, 0);
        }
        let is_free = |slot: usize| !self.slots.get(slot).is_some_and(|&used| used);
        let first = (self.next..).find(|&at| (at..at + count).all(is_free)).unwrap();
        self.slots.resize(end.max(first + count), false);
        self.slots[first..first + count].fill(true);
        (self.next, self.given) = (first + count, self.given + count);
        first as u64
    }
}
