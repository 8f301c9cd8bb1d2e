//! Where each page of the program is: a tree over addresses, 16 KB for every 8 MB that was used.
//!
//! A page without an entry is the kernel's: present, or never touched.

use odfork_pager_protocol::PAGE;

use super::room::Room;

const LEAF: usize = 2048;
const NODE: usize = 4096;

/// Where a page is. Numbers of slots are below 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// With the kernel: present, or never touched.
    Here,
    /// Present, and its content of an earlier time is in this slot.
    Kept(u64),
    /// In the pool, under this number.
    Parked(u64),
    /// In the store, in this slot.
    Stored(u64),
    /// All zeros, and not in memory.
    Zero,
}

/// One page. Stale: the program is giving its content up just now, so it must not be saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub place: Place,
    pub stale: bool,
}

const STALE: u64 = 8;

impl Entry {
    pub const fn at(place: Place) -> Entry {
        Entry { place, stale: false }
    }

    fn decode(word: u64) -> Entry {
        let number = word >> 4;
        let place = match word & 7 {
            1 => Place::Kept(number),
            2 => Place::Parked(number),
            3 => Place::Stored(number),
            4 => Place::Zero,
            _ => Place::Here,
        };
        Entry { place, stale: word & STALE != 0 }
    }

    fn encode(self) -> u64 {
        let stale = if self.stale { STALE } else { 0 };
        stale
            | match self.place {
                Place::Here => 0,
                Place::Kept(slot) => 1 | slot << 4,
                Place::Parked(number) => 2 | number << 4,
                Place::Stored(slot) => 3 | slot << 4,
                Place::Zero => 4,
            }
    }
}

pub struct Table {
    /// Nodes, or null; a node holds leaves, or null.
    root: *mut *mut *mut u64,
}

impl Table {
    pub fn new(room: &mut Room) -> Option<Table> {
        Some(Table { root: room.take(NODE)? })
    }

    fn split(page: u64) -> (usize, usize, usize) {
        let number = page as usize / PAGE;
        (number / LEAF / NODE % NODE, number / LEAF % NODE, number % LEAF)
    }

    fn leaf(&self, page: u64) -> *mut u64 {
        let (node, leaf, _) = Table::split(page);
        // SAFETY: the root has NODE places, and so has every node.
        unsafe {
            match *self.root.add(node) {
                node if node.is_null() => core::ptr::null_mut(),
                node => *node.add(leaf),
            }
        }
    }

    pub fn get(&self, page: u64) -> Entry {
        let leaf = self.leaf(page);
        if leaf.is_null() {
            return Entry::at(Place::Here);
        }
        // SAFETY: a leaf has LEAF places.
        Entry::decode(unsafe { *leaf.add(Table::split(page).2) })
    }

    /// Makes the entries of a page and its neighbours settable; false when there is no room.
    pub fn prepare(&mut self, page: u64, room: &mut Room) -> bool {
        let (node, leaf, _) = Table::split(page);
        // SAFETY: as for `leaf`; what is taken is as large as said, and zero.
        unsafe {
            let node = &mut *self.root.add(node);
            if node.is_null() {
                let Some(fresh) = room.take(NODE) else { return false };
                *node = fresh;
            }
            let leaf = &mut *node.add(leaf);
            if leaf.is_null() {
                let Some(fresh) = room.take(LEAF) else { return false };
                *leaf = fresh;
            }
        }
        true
    }

    /// Sets an entry that was prepared; another one is left.
    pub fn set(&mut self, page: u64, entry: Entry) {
        let leaf = self.leaf(page);
        if !leaf.is_null() {
            // SAFETY: a leaf has LEAF places.
            unsafe { *leaf.add(Table::split(page).2) = entry.encode() };
        }
    }

    /// The first page from `at` on, below `end`, that has an entry worth the name.
    pub fn next(&self, mut at: u64, end: u64) -> Option<(u64, Entry)> {
        let end = end.min(1 << 47);
        while at < end {
            let (node, _, index) = Table::split(at);
            // SAFETY: the root has NODE places.
            if unsafe { (*self.root.add(node)).is_null() } {
                at = (at | (NODE * LEAF * PAGE - 1) as u64) + 1;
                continue;
            }
            let leaf = self.leaf(at);
            if leaf.is_null() {
                at = (at | (LEAF * PAGE - 1) as u64) + 1;
                continue;
            }
            for one in index..LEAF {
                // SAFETY: below LEAF.
                let word = unsafe { *leaf.add(one) };
                let page = at + ((one - index) * PAGE) as u64;
                if word != 0 && page < end {
                    return Some((page, Entry::decode(word)));
                }
            }
            at = (at | (LEAF * PAGE - 1) as u64) + 1;
        }
        None
    }
}
