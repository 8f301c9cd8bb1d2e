//! What the program does to its mappings while pages of them are away. Whoever does it waits until
//! the event is read; nothing is moved in between (the kernel answers EAGAIN).

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::pagemap;
use odfork_sys::abi::userfaultfd::{
    Message, EVENT_FORK, EVENT_PAGEFAULT, EVENT_REMAP, EVENT_REMOVE, EVENT_UNMAP,
    PAGEFAULT_FLAG_WRITE,
};
use odfork_sys::{Errno, SysResult};

use super::children::{ranges, Children};
use super::pager::Pager;
use super::room::Room;
use super::table::{Entry, Place};
use crate::ioctl;

const BYTES: u64 = PAGE as u64;

/// An event that was applied.
const APPLIED: u8 = 0x80;
/// Most events that are looked at together, and faults answered in one turn.
const MOST_EVENTS: usize = 64;
const MOST_FAULTS: usize = 64;
/// Most of both that are read by one call.
const MOST_READ: usize = 16;
/// Looks until changes of mappings end that nobody tells of: some seconds.
const MOST_LOOKS: u32 = 100_000;
/// Most pages of one answer about what is in memory.
const MOST_SEEN: u64 = 1024;

/// A touch of a page that is away.
#[derive(Clone, Copy)]
pub struct Touch {
    pub address: u64,
    pub writes: bool,
}

/// What was read in one turn.
pub struct Batch {
    events: [Message; MOST_EVENTS],
    count: usize,
    faults: [Touch; MOST_FAULTS],
    waiting: usize,
    children: Children,
}

impl Batch {
    pub fn new(room: &mut Room, probe: u64) -> Option<Batch> {
        let none = Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0 };
        let touch = Touch { address: 0, writes: false };
        let (events, faults) = ([none; MOST_EVENTS], [touch; MOST_FAULTS]);
        let children = Children::new(room, probe)?;
        Some(Batch { events, count: 0, faults, waiting: 0, children })
    }
}

impl Batch {
    /// A move was told after a fork, and may have happened before it.
    fn has_moved_after_fork(&self) -> bool {
        let is = |event: &Message, kind: u8| event.event & !APPLIED == kind;
        let mut events = self.events[..self.count].iter();
        events.any(|event| is(event, EVENT_FORK)) && events.any(|event| is(event, EVENT_REMAP))
    }
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0.max(other.0) < one.1.min(other.1)
}

impl Pager {
    /// Reads and answers what there is; whether there was anything.
    ///
    /// Events of two threads may come in another order than what they tell happened: one thread
    /// has unmapped a range and not told yet, another has moved memory there. So all that happened
    /// is read before anything is believed.
    pub fn turn(&mut self, batch: &mut Batch) -> bool {
        (batch.count, batch.waiting) = (0, 0);
        self.state.must_read = false;
        self.read(batch);
        while batch.events[..batch.count]
            .iter()
            .any(|event| matches!(event.event, EVENT_UNMAP | EVENT_REMAP | EVENT_FORK))
            && self.is_changing()
            && batch.count < MOST_EVENTS
        {
            odfork_sys::pause(u32::MAX / 2);
            self.read(batch);
        }
        let was_any = batch.count + batch.waiting > 0;
        let mut at = 0;
        while at < batch.count {
            self.apply(batch, at);
            at += 1;
        }
        // Once more: a child may have it where it is by now.
        if batch.has_moved_after_fork() {
            self.give(&mut batch.children, 0);
        }
        self.let_go(&mut batch.children);
        self.read_together(&batch.faults[..batch.waiting]);
        for at in 0..batch.waiting {
            self.fault(batch.faults[at]);
        }
        was_any
    }

    fn read(&mut self, batch: &mut Batch) {
        let mut messages = [Message::default(); MOST_READ];
        loop {
            let room = MOST_READ.min(MOST_EVENTS - batch.count);
            let got = match self.uffd.read(&mut messages[..room]) {
                Ok(got) if got > 0 => got.min(room),
                _ => return,
            };
            messages[..got].iter().for_each(|message| self.sort(batch, message));
            if got < room || batch.waiting >= MOST_FAULTS - MOST_READ {
                return;
            }
        }
    }

    fn sort(&self, batch: &mut Batch, message: &Message) {
        match message.event {
            EVENT_PAGEFAULT if batch.waiting < MOST_FAULTS => {
                let writes = message.flags & PAGEFAULT_FLAG_WRITE != 0;
                batch.faults[batch.waiting] = Touch { address: message.address, writes };
                batch.waiting += 1;
            }
            // It comes again.
            EVENT_PAGEFAULT => drop(self.uffd.wake(message.address & !(BYTES - 1), BYTES)),
            _ => {
                batch.events[batch.count] = *message;
                batch.count += 1;
            }
        }
    }

    /// Somebody has changed mappings, and has not told or not gone on yet.
    pub fn is_changing(&self) -> bool {
        self.uffd.zero(self.probe, BYTES).1 == Err(Errno(libc::EAGAIN))
    }

    /// Applies one event; `event` 0: done already.
    fn apply(&mut self, batch: &mut Batch, at: usize) {
        let event = core::mem::replace(&mut batch.events[at].event, 0);
        let message = batch.events[at];
        let (source, target) = ranges(&Message { event, ..message });
        match event {
            EVENT_UNMAP => {
                self.watched.remove(source.0, source.1);
                self.keep_what_came(batch, at, source);
                self.forget(source.0, source.1);
            }
            EVENT_REMOVE => {
                self.forget(source.0, source.1);
                self.mark_stale(source.0, source.1);
            }
            EVENT_REMAP => {
                self.watched.remove(source.0, source.1);
                self.watched.add(target.0, target.1);
                self.keep_what_came(batch, at, source);
                self.make_way(batch, at, target);
                self.rename(source, target.0);
            }
            EVENT_FORK => {
                self.forked(&mut batch.children, message.flags as i32);
            }
            _ => {}
        }
        batch.events[at].event = APPLIED | event;
    }

    /// What an earlier event of this batch brought into the range: if it is mapped there now, this
    /// event is about what was there before. Then it is given back at once.
    fn keep_what_came(&mut self, batch: &mut Batch, upto: usize, source: (u64, u64)) {
        for earlier in 0..upto {
            let event = batch.events[earlier];
            let (_, came) = ranges(&Message { event: event.event & !APPLIED, ..event });
            if event.event & APPLIED == 0 || !overlap(came, source) {
                continue;
            }
            let (mut at, end) = (came.0.max(source.0), came.1.min(source.1));
            while let Some((page, entry)) = self.table.next(at, end) {
                at = page + BYTES;
                let mut looks = 0;
                // While others change mappings the kernel does not answer.
                while self.give_back(page, entry) == Err(Errno(libc::EAGAIN)) {
                    self.read(batch);
                    looks = odfork_sys::pause(looks);
                    if looks > MOST_LOOKS {
                        crate::messages::die(b"odfork page: mappings change for ever: ending\n");
                    }
                }
            }
        }
    }

    /// What is noted at a place to which memory is moved was there before, and a later event tells
    /// where it went.
    fn make_way(&mut self, batch: &mut Batch, at: usize, target: (u64, u64)) {
        if self.table.next(target.0, target.1).is_none() {
            return;
        }
        for later in at + 1..batch.count {
            let (source, _) = ranges(&batch.events[later]);
            if overlap(source, target) {
                self.apply(batch, later);
            }
        }
        self.forget(target.0, target.1);
    }

    /// Puts content to its address if memory of ours is there.
    fn give_back(&mut self, page: u64, entry: Entry) -> SysResult<()> {
        let (done, error) = match entry.place {
            Place::Parked(number) => self.uffd.copy(page, self.parked(number), 0),
            Place::Stored(slot) => {
                // SAFETY: MOST pages, of this task only.
                let buffer = unsafe { core::slice::from_raw_parts_mut(self.buffer, PAGE) };
                match self.store.read(slot, buffer) {
                    1 => self.uffd.copy(page, buffer, 0),
                    _ => return Ok(()),
                }
            }
            Place::Here | Place::Kept(_) | Place::Zero => return Ok(()),
        };
        if done == PAGE {
            self.drop_entry(page, entry);
        }
        error
    }

    /// The content of the range is given up.
    fn forget(&mut self, start: u64, end: u64) {
        let mut at = start;
        while let Some((page, entry)) = self.table.next(at, end) {
            self.drop_entry(page, entry);
            at = page + BYTES;
        }
    }

    /// The caller of madvise goes on when the event is read, and only then drops the pages that are
    /// present. Until one was seen missing, its content is the old one and must not be saved.
    fn mark_stale(&mut self, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let mut found = [pagemap::Region::default(); 64];
            let (count, reached) = self.present(at, end, &mut found);
            for region in &found[..count] {
                for page in (region.start..region.end).step_by(PAGE) {
                    // Without room for the note nothing is saved any more.
                    self.state.is_blind |= !self.table.prepare(page, &mut self.room);
                    let place = self.table.get(page).place;
                    self.table.set(page, Entry { place, stale: true });
                }
            }
            at = reached;
        }
    }

    /// Runs of private pages in memory, which of them were written and are watched, and how far was
    /// looked.
    pub fn present(&self, at: u64, end: u64, found: &mut [pagemap::Region]) -> (usize, u64) {
        let unwanted = pagemap::IS_FILE | pagemap::IS_PFNZERO;
        let mut scan = pagemap::ScanArg {
            size: size_of::<pagemap::ScanArg>() as u64,
            start: at,
            end,
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            category_mask: pagemap::IS_PRESENT | unwanted,
            category_inverted: unwanted,
            return_mask: pagemap::IS_PRESENT | pagemap::IS_WRITTEN | pagemap::IS_WPALLOWED,
            max_pages: MOST_SEEN,
            ..pagemap::ScanArg::default()
        };
        let count = ioctl(self.pagemap, pagemap::SCAN, &mut scan).unwrap_or(0);
        let pages: u64 = found[..count].iter().map(|one| (one.end - one.start) / BYTES).sum();
        match count == found.len() || pages >= MOST_SEEN {
            true => (count, found[count - 1].end),
            false => (count, end),
        }
    }

    /// Clears the marks of pages that were written; the kernel sets them at the next write.
    pub fn clear_written(&self, start: u64, end: u64) {
        let unwanted = pagemap::IS_FILE | pagemap::IS_PFNZERO;
        // Only what is present: elsewhere the kernel would leave entries that stop a move.
        let mut scan = pagemap::ScanArg {
            size: size_of::<pagemap::ScanArg>() as u64,
            flags: pagemap::SCAN_WP_MATCHING,
            start,
            end,
            category_mask: pagemap::IS_PRESENT | pagemap::IS_WRITTEN | unwanted,
            category_inverted: unwanted,
            ..pagemap::ScanArg::default()
        };
        // Failed: they stay written.
        let _ = ioctl(self.pagemap, pagemap::SCAN, &mut scan);
    }

    /// mremap: pages keep their content at another address.
    fn rename(&mut self, (from, end): (u64, u64), to: u64) {
        let mut at = from;
        while let Some((page, entry)) = self.table.next(at, end) {
            at = page + BYTES;
            let target = page - from + to;
            self.table.set(page, Entry::at(Place::Here));
            if !self.table.prepare(target, &mut self.room) {
                crate::messages::die(b"odfork page: no room for the table: ending\n");
            }
            self.table.set(target, entry);
            if let Place::Parked(number) = entry.place {
                self.pool.rename(number, target);
            }
        }
    }
}
