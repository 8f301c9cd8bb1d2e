//! The list of what is paged: address, place in the backing, length; sorted by address. Under the
//! agent's lock.

use odfork_pager_protocol::control::{Span, REGIONS};
use odfork_pager_protocol::{BACKING_BYTES, PAGE};

/// KeptFd free for regions that an unmapping splits.
const SLACK: usize = 64;

pub struct Regions {
    list: [Span; REGIONS],
    count: usize,
    /// Where the search for a place in the backing memfd begins.
    next: u64,
}

/// A part of a range: paged (its place), or not.
#[derive(Clone, Copy)]
pub struct Piece {
    pub address: u64,
    pub len: u64,
    pub offset: Option<u64>,
}

impl Regions {
    pub const fn new() -> Regions {
        Regions {
            list: [Span { address: 0, offset: 0, len: 0, flags: 0 }; REGIONS],
            count: 0,
            next: 0,
        }
    }

    pub fn list(&self) -> &[Span] {
        &self.list[..self.count]
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        self.count = 0;
        self.next = 0;
    }

    /// Room for one more, and for splits.
    pub fn has_room(&self) -> bool {
        self.count + SLACK < REGIONS
    }

    fn first_behind(&self, address: u64) -> usize {
        self.list().partition_point(|span| span.address + span.len <= address)
    }

    pub fn overlaps(&self, address: u64, len: u64) -> bool {
        let next = self.list().get(self.first_behind(address));
        next.is_some_and(|span| span.address < address.saturating_add(len))
    }

    /// The region that holds all of the range.
    pub fn holding(&self, address: u64, len: u64) -> Option<Span> {
        let span = *self.list().get(self.first_behind(address))?;
        let fits = span.address <= address && address + len <= span.address + span.len;
        fits.then_some(span)
    }

    /// The first part of the range that is wholly paged or wholly not.
    pub fn piece(&self, address: u64, len: u64) -> Piece {
        let end = address + len;
        match self.list().get(self.first_behind(address)) {
            Some(span) if span.address <= address => Piece {
                address,
                len: (span.address + span.len).min(end) - address,
                offset: Some(span.offset + (address - span.address)),
            },
            Some(span) if span.address < end => {
                Piece { address, len: span.address - address, offset: None }
            }
            _ => Piece { address, len, offset: None },
        }
    }

    /// A free place of so many bytes in the backing memfd.
    pub fn place(&mut self, len: u64) -> Option<u64> {
        let mut at = self.next;
        let mut wrapped = false;
        loop {
            if len > BACKING_BYTES || at > BACKING_BYTES - len {
                if wrapped {
                    return None;
                }
                (at, wrapped) = (0, true);
            }
            let over = |span: &&Span| at < span.offset + span.len && span.offset < at + len;
            match self.list().iter().find(over) {
                Some(span) => at = span.offset + span.len,
                None => {
                    self.next = at + len;
                    return Some(at);
                }
            }
        }
    }

    /// Adds a region that overlaps none.
    pub fn add(&mut self, span: Span) {
        if self.count < REGIONS {
            let at = self.first_behind(span.address);
            self.list.copy_within(at..self.count, at + 1);
            self.list[at] = span;
            self.count += 1;
        }
    }

    /// Makes region borders at the ends of the range. False: no room for more regions.
    pub fn split(&mut self, address: u64, len: u64) -> bool {
        if self.count + 2 > REGIONS {
            return false;
        }
        for border in [address, address + len] {
            let at = self.first_behind(border);
            let Some(span) = self.list().get(at).copied() else { continue };
            if span.address < border {
                let before = border - span.address;
                self.list[at].len = before;
                self.add(Span {
                    address: border,
                    offset: span.offset + before,
                    len: span.len - before,
                    flags: span.flags,
                });
            }
        }
        true
    }

    /// Takes one region out of the range; borders must lie at its ends. None when there is no more.
    pub fn remove_one(&mut self, address: u64, len: u64) -> Option<Span> {
        let at = self.first_behind(address);
        let span = *self.list().get(at)?;
        if span.address >= address + len {
            return None;
        }
        self.list.copy_within(at + 1..self.count, at);
        self.count -= 1;
        Some(span)
    }

    /// Changes flags of the regions in the range; borders must lie at its ends.
    pub fn mark(&mut self, address: u64, len: u64, set: u64, clear: u64) {
        let from = self.first_behind(address);
        for span in &mut self.list[from..self.count] {
            if span.address >= address + len {
                break;
            }
            span.flags = span.flags & !clear | set;
        }
    }
}

/// Bytes up to the end of the last page; None beyond the address space.
pub fn whole_pages(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(PAGE)
}
