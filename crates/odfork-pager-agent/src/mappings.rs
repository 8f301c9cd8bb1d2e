//! Asks the kernel what is mapped where the region list expects our mapping.
//!
//! A program may change its mappings by raw system calls, which nobody intercepts. Then foreign
//! memory lies at the addresses of a region, and unmapping "its pages" would destroy that memory.
//! So the kernel is asked first. One question covers a whole mapping; before Linux 6.11 every range
//! costs one. A change between question and unmapping goes unnoticed.

use odfork_pager_protocol::control::{op, Span};
use odfork_pager_protocol::PAGE;
use odfork_sys::abi::{pagemap, procmap};
use odfork_sys::Errno;

use crate::calls;
use crate::ioctl;
use crate::state::{Locked, STATE};

/// The mapping that was asked about last; of one question, so not for long.
#[derive(Default)]
pub struct Known {
    start: u64,
    end: u64,
    /// Its start's place in the backing, when it is the backing memfd's.
    offset: Option<u64>,
}

enum Answer {
    Found,
    /// Nothing is mapped from there on.
    Nothing,
    /// The kernel does not know the question, or the descriptor is gone.
    Unknown,
}

impl Known {
    /// Asks about the mapping at this address, or the next one.
    fn ask(&mut self, address: u64) -> Answer {
        let mut query = procmap::Query {
            size: size_of::<procmap::Query>() as u64,
            flags: procmap::COVERING_OR_NEXT_VMA,
            address,
            ..procmap::Query::default()
        };
        match ioctl(STATE.maps.number(), procmap::QUERY, &mut query) {
            Ok(_) => {
                let is_space = query.inode == STATE.backing.inode();
                self.start = query.start;
                self.end = query.end;
                self.offset = is_space.then_some(query.offset);
                Answer::Found
            }
            Err(Errno(libc::ENOENT)) => Answer::Nothing,
            Err(_) => Answer::Unknown,
        }
    }

    /// How much from here on is the backing memfd's, at that place in it; or how much is not.
    fn piece(&self, address: u64, len: u64, offset: u64) -> (u64, bool) {
        if address < self.start {
            return (len.min(self.start - address), false);
        }
        let place = self.offset.map(|start| start + (address - self.start));
        (len.min(self.end - address), place == Some(offset))
    }

    /// All of the range is mapped from the backing, as the list says.
    pub fn is_ours(&mut self, span: &Span, len: u64) -> bool {
        let mut at = 0;
        while at < len {
            let address = span.address + at;
            if address < self.start || address >= self.end {
                match self.ask(address) {
                    Answer::Found => {}
                    Answer::Nothing => return false,
                    Answer::Unknown => return is_watched(span.address, len),
                }
            }
            let (more, ours) = self.piece(address, len - at, span.offset + at);
            if !ours {
                return false;
            }
            at += more;
        }
        true
    }
}

/// Whether the range lies in memory with a userfaultfd like ours: the question of before Linux
/// 6.11. Yes when it cannot be asked: a program that closes descriptors it does not know must not
/// keep all its pages in memory by that.
fn is_watched(address: u64, len: u64) -> bool {
    let mut scan = pagemap::ScanArg {
        size: size_of::<pagemap::ScanArg>() as u64,
        flags: pagemap::SCAN_CHECK_WPASYNC,
        start: address,
        end: address + len,
        category_mask: pagemap::IS_SWAPPED,
        return_mask: pagemap::IS_SWAPPED,
        ..pagemap::ScanArg::default()
    };
    let answer = ioctl(STATE.pagemap.number(), pagemap::SCAN, &mut scan);
    answer.err() != Some(Errno(libc::EPERM))
}

/// Takes out of the list what is not there any more. Where the kernel cannot be asked, nothing.
pub fn forget_foreign(locked: &mut Locked) {
    while let Some((address, len)) = first_foreign(locked) {
        if !locked.regions().split(address, len) {
            return;
        }
        while let Some(span) = locked.regions().remove_one(address, len) {
            calls::publish(locked);
            calls::ask(locked, op::RELEASE, [span.offset, span.len]);
        }
    }
}

fn first_foreign(locked: &mut Locked) -> Option<(u64, u64)> {
    let mut known = Known::default();
    for span in locked.regions().list() {
        let mut at = 0;
        while at < span.len {
            let (address, left) = (span.address + at, span.len - at);
            match known.ask(address) {
                Answer::Found => {}
                Answer::Nothing => return Some((address, left)),
                Answer::Unknown => return None,
            }
            match known.piece(address, left, span.offset + at) {
                (more, true) => at += more,
                (more, false) => return Some((address, more.next_multiple_of(PAGE as u64))),
            }
        }
    }
    None
}
