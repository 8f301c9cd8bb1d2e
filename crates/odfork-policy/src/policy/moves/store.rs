//! Which slots of the store are used: neighbours are read together only where their slots are
//! neighbours, too.

/// Slots by number; what is behind the list was never used.
#[derive(Default)]
pub struct Store {
    used: Vec<bool>,
    next: usize,
    /// Given out since the search last began anew.
    given: usize,
    taken: usize,
}

impl Store {
    /// So many free slots in a row; the first. Where half of all are free again, those are used
    /// first.
    pub fn take(&mut self, count: usize) -> u32 {
        let end = self.used.len();
        if self.next >= end && self.taken < end / 2 && self.given >= end / 4 {
            (self.next, self.given) = (0, 0);
        }
        let (mut at, mut run) = (self.next, 0);
        while run < count {
            run = if self.used.get(at) == Some(&true) { 0 } else { run + 1 };
            at += 1;
        }
        self.used.resize(end.max(at), false);
        self.used[at - count..at].fill(true);
        self.next = at;
        self.given += count;
        self.taken += count;
        (at - count) as u32
    }

    pub fn free(&mut self, slot: u32) {
        self.used[slot as usize] = false;
        self.taken -= 1;
    }
}
