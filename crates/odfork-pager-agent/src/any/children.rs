//! Children of a fork: each gets all that is away from the parent, and then is on its own.
//!
//! A child runs as soon as the event of its fork is read, so it may change its mappings, or fork,
//! before it has everything. It tells on a descriptor of its own, and waits until that is read;
//! meanwhile nothing can be put into it (EAGAIN). So every page goes to where the child has it by
//! now, and a child of the child gets what its parent had at that moment.
//!
//! ```text
//!   event of fork read -> child runs, waits where pages are missing
//!   every page: to its address there, by all changes told so far; EAGAIN: read, again
//!   at last the gate: the handler of a libc fork waits for that page
//!   descriptor closed: what is still missing was never there
//! ```
//!
//! Who holds the descriptor meanwhile if this task is killed: see `holder`.

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::{Message, EVENT_FORK, EVENT_REMAP, EVENT_REMOVE, EVENT_UNMAP};
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{Errno, SysResult};

use super::pager::Pager;
use super::room::Room;
use super::store::MOST;
use super::table::Place;
use crate::close;
use crate::messages::die;
use crate::proc_lines::{range_of, Lines};

const BYTES: u64 = PAGE as u64;
/// Most children at a time, with children of theirs.
const MOST_CHILDREN: usize = 256;
/// Most changes of their mappings meanwhile.
const MOST_CHANGES: usize = 65536;
const NOBODY: usize = usize::MAX;

/// The range that a message takes away, and the one it brings content to.
pub fn ranges(message: &Message) -> ((u64, u64), (u64, u64)) {
    let (first, second, third) = (message.flags, message.address, message.thread);
    match message.event {
        EVENT_UNMAP | EVENT_REMOVE => ((first, second), (0, 0)),
        EVENT_REMAP => ((first, first + third), (second, second + third)),
        _ => ((0, 0), (0, 0)),
    }
}

#[derive(Clone, Copy)]
struct Child {
    uffd: Userfaultfd,
    /// It had its parent's mappings as they were after so many changes.
    parent: usize,
    changes: usize,
}

/// What a child did to its mappings.
#[derive(Clone, Copy)]
struct Change {
    child: usize,
    /// Taken away.
    source: (u64, u64),
    /// Where its content is now; empty: nowhere.
    target: (u64, u64),
}

impl Change {
    fn apply(&self, page: u64) -> Option<u64> {
        let holds = |(start, end): (u64, u64)| start <= page && page < end;
        match self.target.0 < self.target.1 {
            true if holds(self.source) => Some(page - self.source.0 + self.target.0),
            true if holds(self.target) => None,
            false if holds(self.source) => None,
            _ => Some(page),
        }
    }
}

pub struct Children {
    list: [Child; MOST_CHILDREN],
    count: usize,
    changes: *mut Change,
    changed: usize,
    /// A page that all children have, watched and present.
    probe: u64,
}

impl Children {
    pub fn new(room: &mut Room, probe: u64) -> Option<Children> {
        let none = Child { uffd: Userfaultfd(-1), parent: NOBODY, changes: 0 };
        let changes = room.take(MOST_CHANGES)?;
        Some(Children { list: [none; MOST_CHILDREN], count: 0, changes, changed: 0, probe })
    }

    fn changes(&self) -> &[Change] {
        // SAFETY: so many of MOST_CHANGES are set.
        unsafe { core::slice::from_raw_parts(self.changes, self.changed) }
    }

    /// A child of the program, or of one of its children.
    fn add(&mut self, descriptor: i32, parent: usize) {
        if self.count == MOST_CHILDREN {
            die(b"odfork page: too many children at a time: ending\n");
        }
        let uffd = Userfaultfd(descriptor);
        self.list[self.count] = Child { uffd, parent, changes: self.changed };
        self.count += 1;
    }

    fn note(&mut self, child: usize, message: &Message) {
        match message.event {
            EVENT_FORK => self.add(message.flags as i32, child),
            EVENT_UNMAP | EVENT_REMOVE | EVENT_REMAP => {
                if self.changed == MOST_CHANGES {
                    die(b"odfork page: a child changes its mappings without end: ending\n");
                }
                let (source, target) = ranges(message);
                // SAFETY: below MOST_CHANGES.
                unsafe { self.changes.add(self.changed).write(Change { child, source, target }) };
                self.changed += 1;
            }
            _ => {}
        }
    }

    /// What it told since the last time. Touches are answered in their turn.
    fn read(&mut self, child: usize) {
        let mut messages = [Message::default(); 16];
        while let Ok(got @ 1..) = self.list[child].uffd.read(&mut messages) {
            messages.iter().take(got).for_each(|message| self.note(child, message));
        }
    }

    /// Where a child has a page that the program had here; None: it gave it up.
    fn place(&self, child: usize, page: u64) -> Option<u64> {
        self.place_after(child, self.changed, page)
    }

    fn place_after(&self, child: usize, changes: usize, page: u64) -> Option<u64> {
        let one = self.list[child];
        let mut at = match one.parent {
            NOBODY => page,
            parent => self.place_after(parent, one.changes, page)?,
        };
        for change in self.changes()[..changes].iter().filter(|change| change.child == child) {
            at = change.apply(at)?;
        }
        Some(at)
    }

    /// It has changed mappings, and has not told or not gone on yet.
    fn is_changing(&self, child: usize) -> bool {
        self.list[child].uffd.zero(self.probe, BYTES).1 == Err(Errno(libc::EAGAIN))
    }

    /// Puts content into a child. An error: that child is gone.
    fn put(&mut self, child: usize, page: u64, content: Result<&[u8], Errno>) -> SysResult<()> {
        let (uffd, mut looks) = (self.list[child].uffd, 0);
        loop {
            let Some(to) = self.place(child, page) else { return Ok(()) };
            let done = match content {
                Ok(content) => uffd.copy(to, content, 0).1,
                // It must not find zeros.
                Err(_) => uffd.poison(to, BYTES).1,
            };
            match done {
                Ok(()) | Err(Errno(libc::EEXIST)) => return Ok(()),
                // Its mapping is of a kind that never had it; or it moves just now.
                Err(Errno(libc::ENOENT)) if !self.is_changing(child) => return Ok(()),
                Err(Errno(libc::EAGAIN | libc::ENOENT)) => {
                    self.read(child);
                    looks = odfork_sys::pause(looks);
                }
                Err(Errno(libc::ESRCH)) => return done,
                Err(error) if content.is_ok() => return self.put(child, page, Err(error)),
                Err(_) => die(b"odfork page: a child cannot be given its memory: ending\n"),
            }
        }
    }
}

impl Pager {
    /// A fork was read: the child gets all that is away, except where it is to find zeros.
    pub fn forked(&mut self, children: &mut Children, descriptor: i32) {
        self.counts.forks += 1;
        let from = children.count;
        children.add(descriptor, NOBODY);
        self.give(children, from);
        self.share_with_child();
    }

    /// What is away now to all children from this one on, and to those that they make meanwhile.
    pub fn give(&mut self, children: &mut Children, from: usize) {
        let mut child = from;
        while child < children.count {
            // An error: it has ended, or executes something else.
            let _ = self.give_all(children, child);
            child += 1;
        }
    }

    /// They have everything, and are on their own.
    pub fn let_go(&mut self, children: &mut Children) {
        let mut child = 0;
        while child < children.count {
            // SAFETY: MOST pages, of this task only.
            let buffer = unsafe { core::slice::from_raw_parts_mut(self.buffer, PAGE) };
            buffer[0] = 1;
            let _ = children.put(child, self.gate, Ok(buffer));
            child += 1;
        }
        children.list[..children.count].iter().for_each(|child| close(child.uffd.0));
        (children.count, children.changed) = (0, 0);
    }

    fn give_all(&mut self, children: &mut Children, child: usize) -> SysResult<()> {
        // SAFETY: MOST pages, of this task only.
        let buffer = unsafe { core::slice::from_raw_parts_mut(self.buffer, PAGE) };
        children.put(child, self.gate + BYTES, Ok(buffer))?;
        let (mut from, mut range) = (0, (0, 0));
        if let Ok(mut lines) = Lines::again(self.smaps) {
            while let Some(line) = lines.next() {
                match range_of(line) {
                    Some(found) => range = found,
                    None if is_wiped(line) => {
                        self.give_range(children, child, (from, range.0))?;
                        from = range.1;
                    }
                    None => {}
                }
            }
        }
        self.give_range(children, child, (from, u64::MAX))
    }

    fn give_range(
        &mut self,
        children: &mut Children,
        child: usize,
        (mut at, end): (u64, u64),
    ) -> SysResult<()> {
        while let Some((page, entry)) = self.table.next(at, end) {
            at = page + BYTES;
            match entry.place {
                Place::Parked(number) => children.put(child, page, Ok(self.parked(number)))?,
                Place::Stored(slot) => {
                    let mut run = 1;
                    while run < MOST as u64
                        && at < end
                        && self.table.get(at).place == Place::Stored(slot + run)
                    {
                        run += 1;
                        at += BYTES;
                    }
                    self.give_stored(children, child, page, (slot, run))?;
                }
                Place::Here | Place::Kept(_) | Place::Zero => {}
            }
        }
        Ok(())
    }

    fn give_stored(
        &mut self,
        children: &mut Children,
        child: usize,
        page: u64,
        (slot, run): (u64, u64),
    ) -> SysResult<()> {
        // SAFETY: MOST pages, of this task only.
        let buffer = unsafe { core::slice::from_raw_parts_mut(self.buffer, run as usize * PAGE) };
        let whole = self.store.read(slot, buffer);
        if whole < run as usize {
            crate::saying::say(self.program, b"odfork page: a page cannot be read for a child\n");
        }
        for (at, content) in buffer.chunks_exact(PAGE).enumerate() {
            let content = if at < whole { Ok(content) } else { Err(Errno(libc::EIO)) };
            children.put(child, page + at as u64 * BYTES, content)?;
        }
        Ok(())
    }
}

/// MADV_WIPEONFORK.
fn is_wiped(line: &[u8]) -> bool {
    line.starts_with(b"VmFlags:") && line.windows(4).any(|part| part == b" wf ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_to_where_the_child_has_it() {
        let gone = Change { child: 0, source: (0x1000, 0x3000), target: (0, 0) };
        let moved = Change { child: 0, source: (0x1000, 0x3000), target: (0x8000, 0xa000) };
        assert_eq!(
            [0x1000, 0x2000, 0x3000].map(|page| gone.apply(page)),
            [None, None, Some(0x3000)]
        );
        assert_eq!(moved.apply(0x2000), Some(0x9000));
        assert_eq!(moved.apply(0x9000), None);
        assert_eq!(moved.apply(0xa000), Some(0xa000));
    }
}
