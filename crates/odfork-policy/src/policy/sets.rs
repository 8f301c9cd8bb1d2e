//! Resident sets of processes, in the order of entry, and one global free list: what SWS, PFF and
//! VMS share.
//!
//! A page that leaves its set goes to the end of the free list and can be reclaimed until its frame
//! is reused, oldest first. When the sets fill all of memory, the faulting process gives up the
//! page it has had longest (the largest set does when it has none).

use std::collections::VecDeque;

use super::{bits, dirty_if};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

const NONE: Page = Page::MAX;

pub(super) struct Sets {
    pub frames: u32,
    held: u32,
    pub state: Vec<u8>,
    pub owner: Vec<Owner>,
    pub sets: Vec<VecDeque<Page>>,
    /// References of each process since its last sample or fault, counted by the policy.
    pub since: Vec<u64>,
    /// Free list: neighbours of each page on it.
    links: Vec<(Page, Page)>,
    first: Page,
    last: Page,
    pub tally: Tally,
}

impl Sets {
    pub fn new(frames: u32) -> Sets {
        Sets {
            frames,
            held: 0,
            state: Vec::new(),
            owner: Vec::new(),
            sets: Vec::new(),
            since: Vec::new(),
            links: Vec::new(),
            first: NONE,
            last: NONE,
            tally: Tally::default(),
        }
    }

    pub fn grow(&mut self, owners: &[Owner]) {
        self.owner.extend_from_slice(owners);
        self.state.resize(self.owner.len(), 0);
        self.links.resize(self.owner.len(), (NONE, NONE));
        let most = owners.iter().copied().max().map_or(0, |owner| owner as usize + 1);
        if self.sets.len() < most {
            self.sets.resize(most, VecDeque::new());
            self.since.resize(most, 0);
        }
    }

    /// The page is in its resident set.
    #[inline]
    pub fn is_resident(&self, page: Page) -> bool {
        self.state[page as usize] & (bits::IN | bits::FREE) == bits::IN
    }

    /// Brings a page that is not resident into its set: from the free list (a reclaim), else by a
    /// fault.
    pub fn bring(&mut self, page: Page, write: bool) {
        let owner = self.owner[page as usize];
        if self.state[page as usize] & bits::FREE != 0 {
            self.tally.reclaims += 1;
            self.unlink(page);
        } else {
            self.tally.faults += 1;
            self.find_frame(owner);
        }
        let dirty = self.state[page as usize] & bits::DIRTY;
        self.state[page as usize] = bits::IN | bits::BIT | dirty | dirty_if(write);
        self.sets[owner as usize].push_back(page);
    }

    fn find_frame(&mut self, owner: Owner) {
        if self.held < self.frames {
            self.held += 1;
            return;
        }
        let victim = if self.first != NONE {
            let victim = self.first;
            self.unlink(victim);
            victim
        } else {
            let own = owner as usize;
            let sets = 0..self.sets.len();
            let from = if self.sets[own].is_empty() {
                sets.max_by_key(|&set| self.sets[set].len()).unwrap_or(own)
            } else {
                own
            };
            // Memory is full and the free list empty, so the largest set is not empty.
            let Some(victim) = self.sets[from].pop_front() else { return };
            victim
        };
        self.tally.write_backs += u64::from(self.state[victim as usize] & bits::DIRTY != 0);
        self.state[victim as usize] = 0;
    }

    /// To the end of the free list; the caller has taken it out of its set.
    pub fn release(&mut self, page: Page) {
        self.state[page as usize] = self.state[page as usize] & bits::DIRTY | bits::IN | bits::FREE;
        self.links[page as usize] = (self.last, NONE);
        match self.last {
            NONE => self.first = page,
            last => self.links[last as usize].1 = page,
        }
        self.last = page;
    }

    fn unlink(&mut self, page: Page) {
        let (before, after) = self.links[page as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].0 = before,
        }
    }

    /// Looks at all reference bits of a process: pages without leave the set, the others' are
    /// cleared.
    pub fn sample(&mut self, owner: Owner) {
        let mut set = std::mem::take(&mut self.sets[owner as usize]);
        self.tally.samples += 1;
        self.tally.sampled += set.len() as u64;
        set.retain(|&page| {
            let stays = self.state[page as usize] & bits::BIT != 0;
            if stays {
                self.state[page as usize] &= !bits::BIT;
            } else {
                self.release(page);
            }
            stays
        });
        self.sets[owner as usize] = set;
    }

    /// A touch of a resident page; setting its bit is a reclaim.
    #[inline]
    pub fn hit(&mut self, page: Page, write: bool) {
        let state = &mut self.state[page as usize];
        self.tally.reclaims += u64::from(*state & bits::BIT == 0);
        *state |= bits::BIT | dirty_if(write);
    }
}
