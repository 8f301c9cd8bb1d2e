//! What the thread of a session does: it reads what happened and puts pages in place.
//!
//! Owns which pages are still in the image only (`fresh`) and where the program has them now
//! (`slots`). One thread, one message at a time: a page is decided on and put in place before the
//! next message is read, and the kernel refuses (EAGAIN) to put a page in place while news about
//! the memory has not been read:
//!
//! ```text
//!  program                              thread
//!    touches page P                       reads "P is missing", reads P from the image
//!    madvise(DONTNEED) P: news, waits     puts P: EAGAIN; P waits in `deferred`
//!      .                                  reads the news: P is zeros from now on
//!    madvise goes on                      lets the toucher try again: "P is missing", puts zeros
//! ```
//!
//! So the memory behaves as anonymous memory does: what the program dropped is zeros, what it moved
//! (mremap) is there, and what it unmapped is nobody's business any more. That matters most: the
//! kernel does not ask whose userfaultfd a page belongs to. It would put ours into a mapping that
//! another session has made at the same address.

use std::io::Error as IoError;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use odfork_sys::abi::userfaultfd::{self, Message};
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{Errno, SysResult};

use super::complaint::complain;
use super::fresh::Fresh;
use super::grave::Grave;
use super::slots::{Slot, Slots, PAGE64};
use super::{kernel, mappings, Shared, STOP};
use crate::error::{Error, Result};
use crate::format::Region;
use crate::image::{Fate, Image, Lost, Room};
use crate::memory::{self, Memory};
use crate::options::MapOptions;
use crate::PAGE;

/// Pages read at once when everything is brought in, and most at a fault.
const STEP: usize = 256;
const DEFERRED: usize = 256;

pub struct Server {
    shared: Arc<Shared>,
    image: Image,
    uffd: OwnedFd,
    /// `None` where the kernel can poison pages.
    grave: Option<Grave>,
    slots: Slots,
    fresh: Fresh,
    prefetch: u64,
    content: Memory,
    fates: [Fate; STEP],
    room: Room,
    deferred: [u64; DEFERRED],
    waiting: usize,
    populating: bool,
    /// No slot has what is still fresh.
    given_up: bool,
}

/// How putting pages in place went.
enum Put {
    Done,
    /// News has to be read first, or there is no memory just now.
    Later,
}

impl Server {
    /// In the new thread, in a table of descriptors of its own from here on.
    pub fn new(
        image: &Image,
        saved: &[Region],
        now: &[Region],
        options: &MapOptions,
        shared: Arc<Shared>,
    ) -> Result<Server> {
        let cannot = |e| Error::io("cannot serve page faults", e);
        kernel::own_table().map_err(cannot)?;
        let image = image.duplicate().map_err(cannot)?;
        let (uffd, poison) = kernel::open(options.user_faults).map_err(forbidden)?;
        let mut keep: Vec<i32> = image.chain().map(|image| image.file.as_raw_fd()).collect();
        keep.push(uffd.as_raw_fd());
        kernel::close_others(&keep);
        let grave = match poison {
            true => None,
            false => Some(kernel::empty_file().and_then(Grave::dig).map_err(cannot)?),
        };
        let mut slots = Slots::new();
        let (mut left, mut bit) = (0, 0);
        for (saved, now) in saved.iter().zip(now) {
            let (now, pages, saved) = (now.address, now.pages(), saved.address);
            slots.add(Slot { now, pages, saved, bit, moves: 0 });
            left += pages;
            // Clusters count from the start of a region: `window` sees that in the bit's number.
            bit += pages.next_multiple_of(STEP as u64);
        }
        let fresh = Fresh::new(left, bit).map_err(cannot)?;
        let bell = (shared.bell.as_ptr() as u64, PAGE64);
        for (start, len) in
            slots.all().iter().map(|slot| (slot.now, slot.pages * PAGE64)).chain([bell])
        {
            memory::advise(start, len as usize, libc::MADV_DONTFORK).map_err(cannot)?;
            Userfaultfd(uffd.as_raw_fd())
                .register(start, len, userfaultfd::REGISTER_MODE_MISSING)
                .map_err(|e| cannot(kernel::io_error(e)))?;
        }
        let content = Memory::new(STEP * PAGE).map_err(cannot)?;
        Ok(Server {
            shared,
            image,
            uffd,
            grave,
            slots,
            fresh,
            prefetch: options.prefetch as u64,
            content,
            fates: [Fate::Zero; STEP],
            room: Room::new()?,
            deferred: [0; DEFERRED],
            waiting: 0,
            populating: false,
            given_up: false,
        })
    }

    /// Serves until everything is in, or nobody wants it any more.
    pub fn run(mut self) {
        let mut stop = false;
        while !stop && self.fresh.left() > 0 && !self.given_up {
            match self.news() {
                Some(message) => stop = self.take(&message),
                None if self.waiting > 0 => self.let_try_again(),
                None if self.slots.is_moving() => self.look_for_the_end(),
                None if self.populating => self.populate(),
                None => kernel::wait(self.uffd.as_fd()),
            }
        }
        self.finish();
    }

    fn news(&self) -> Option<Message> {
        let mut message = [Message::default()];
        match self.requests().read(&mut message) {
            Ok(1..) => Some(message[0]),
            Ok(0) => None,
            // Never give up: closing the descriptor would turn what is missing into zeros.
            Err(_) => {
                std::thread::yield_now();
                None
            }
        }
    }

    /// Whether somebody changes the map and will tell, or has told and not gone on.
    fn is_changing(&self) -> bool {
        // Into a buffer of ours, which is no place to put pages: the kernel sees that afterwards.
        let (_, result) =
            self.requests().copy(self.content.as_ptr() as u64, &self.content[..PAGE], 0);
        result == Err(Errno(libc::EAGAIN))
    }

    /// A move that leaves its old place as it is (MREMAP_DONTUNMAP) ends without a word.
    fn look_for_the_end(&mut self) {
        match self.is_changing() {
            true => std::thread::yield_now(),
            false => self.slots.settle(),
        }
    }

    fn requests(&self) -> Userfaultfd {
        Userfaultfd(self.uffd.as_raw_fd())
    }

    /// Whether to stop.
    fn take(&mut self, message: &Message) -> bool {
        match message.event {
            userfaultfd::EVENT_PAGEFAULT => {
                let address = message.address & !(PAGE64 - 1);
                if address == self.shared.bell.as_ptr() as u64 {
                    self.populating = true;
                    return self.shared.order.load(Acquire) >= STOP;
                }
                self.shared.faults.fetch_add(1, Relaxed);
                self.serve(address);
            }
            userfaultfd::EVENT_REMOVE => self.forget(message.flags, message.address),
            userfaultfd::EVENT_REMAP => {
                self.slots.moved(message.flags, message.address, message.thread)
            }
            userfaultfd::EVENT_UNMAP => {
                let fresh = &mut self.fresh;
                self.slots
                    .unmapped(message.flags, message.address, |part| fresh.consume_all(&part));
            }
            _ => {}
        }
        false
    }

    fn serve(&mut self, address: u64) {
        let slot = self.slots.at(address);
        let fresh = slot.filter(|slot| self.fresh.has(slot.bit + (address - slot.now) / PAGE64));
        let put = match fresh {
            Some(slot) => {
                let (first, count) = self.window(&slot, (address - slot.now) / PAGE64);
                self.bring(&slot, first, count)
            }
            // Dropped by the program, or beyond what the image has (mremap): zeros, as in anonymous
            // memory.
            None => self.zero(address),
        };
        if matches!(put, Put::Later) {
            self.defer(address);
        }
    }

    /// The fresh pages around this one that lie in one cluster of the image with it.
    fn window(&self, slot: &Slot, page: u64) -> (u64, u64) {
        let lowest = page - ((slot.bit + page) % self.prefetch).min(page);
        let highest = (page + self.prefetch - (slot.bit + page) % self.prefetch).min(slot.pages);
        let first = (lowest..page)
            .rev()
            .take_while(|&p| self.fresh.has(slot.bit + p))
            .last()
            .unwrap_or(page);
        let end =
            (page..highest).take_while(|&p| self.fresh.has(slot.bit + p)).last().unwrap_or(page)
                + 1;
        (first, end - first)
    }

    /// Reads pages of a slot from the image and puts them in place.
    fn bring(&mut self, slot: &Slot, first: u64, count: u64) -> Put {
        let pages = count as usize;
        let saved = slot.saved + first * PAGE64;
        self.image.read(
            saved,
            &mut self.content[..pages * PAGE],
            &mut self.fates[..pages],
            &mut self.room,
        );
        let (mut at, mut singly) = (0, false);
        while at < pages {
            let kind = self.fates[at];
            let run = self.fates[at..pages].iter().take_while(|&&fate| fate == kind).count();
            let run = if singly { 1 } else { run };
            let address = slot.now + (first + at as u64) * PAGE64;
            let (done, result) = match kind {
                Fate::Content => {
                    self.requests().copy(address, &self.content[at * PAGE..][..run * PAGE], 0)
                }
                Fate::Zero => self.put_zeros(address, run * PAGE),
                Fate::Lost(why) => self.lose(address, why),
            };
            let done = done / PAGE;
            for page in 0..done {
                self.fresh.consume(slot.bit + first + (at + page) as u64);
            }
            let counter = match kind {
                Fate::Content => &self.shared.pages,
                Fate::Zero => &self.shared.zero_pages,
                Fate::Lost(_) => &self.shared.lost_pages,
            };
            counter.fetch_add(done as u64, Relaxed);
            at += done;
            if done > 0 {
                continue;
            }
            match result.err().map(|Errno(number)| number) {
                // The run is in more than one mapping (mprotect and others split them), or partly
                // not ours.
                Some(libc::ENOENT) if run > 1 => singly = true,
                // There already; or not ours any more (unmapped, mapped over): whoever waits for it
                // finds out.
                Some(libc::EEXIST | libc::ENOENT) => {
                    self.fresh.consume(slot.bit + first + at as u64);
                    let _ = self.requests().wake(address, PAGE64);
                    at += 1;
                }
                // News to be read first, no memory, or nothing known: whoever waits tries again.
                _ => return Put::Later,
            }
        }
        Put::Done
    }

    fn zero(&mut self, address: u64) -> Put {
        let (done, result) = self.put_zeros(address, PAGE);
        self.shared.zero_pages.fetch_add((done / PAGE) as u64, Relaxed);
        match result.err().map(|Errno(number)| number) {
            None => {}
            Some(libc::EEXIST | libc::ENOENT) => {
                let _ = self.requests().wake(address, PAGE64);
            }
            Some(_) => return Put::Later,
        }
        Put::Done
    }

    /// Makes touching the page a SIGBUS, and says so once: before, for that may end the program.
    fn lose(&mut self, address: u64, why: Lost) -> (usize, SysResult<()>) {
        if self.shared.lost_why.load(Relaxed) == 0 {
            self.shared.lost_at.store(address, Relaxed);
            self.shared.lost_why.store(why.number(), Release);
            complain(&self.image, address, why);
        }
        if let Some(grave) = &self.grave {
            if !grave.is_busy() {
                self.shared.lost_pages.fetch_add(1, Relaxed);
                grave.bury(address);
            }
            // Until the page is unmapped, which is told as news, whoever touches it tries again.
            return (0, Err(Errno(libc::EAGAIN)));
        }
        let result = self.poison(address);
        if result.is_err() {
            return (0, result);
        }
        let _ = self.requests().wake(address, PAGE64);
        (PAGE, Ok(()))
    }

    fn put_zeros(&self, address: u64, len: usize) -> (usize, SysResult<()>) {
        let (done, result) = self.requests().zero(address, len as u64);
        (done as usize, result)
    }

    fn poison(&self, address: u64) -> SysResult<()> {
        for _ in 0..1000 {
            match self.requests().poison(address, PAGE64).1 {
                Err(Errno(libc::EAGAIN)) => std::thread::yield_now(),
                other => return other,
            }
        }
        Err(Errno(libc::EAGAIN))
    }

    fn defer(&mut self, address: u64) {
        if self.waiting == DEFERRED {
            self.let_try_again();
        }
        self.deferred[self.waiting] = address;
        self.waiting += 1;
    }

    /// The deferred touch their pages again.
    fn let_try_again(&mut self) {
        for at in 0..std::mem::take(&mut self.waiting) {
            let _ = self.requests().wake(self.deferred[at], PAGE64);
        }
        std::thread::yield_now();
    }

    /// The program drops the content of `start..end`: zeros from now on.
    fn forget(&mut self, start: u64, end: u64) {
        for part in self.slots.all().iter().filter_map(|slot| slot.cut(start, end)) {
            self.fresh.consume_all(&part);
        }
    }

    /// Brings in the next fresh pages. Not done by who runs out of them: `run` sees that nothing is
    /// left.
    fn populate(&mut self) {
        let next = self.slots.all().iter().find_map(|slot| {
            let (bit, count) = self.fresh.run(slot.bit, slot.pages, STEP as u64)?;
            Some((*slot, bit - slot.bit, count))
        });
        match next {
            Some((slot, first, count)) => {
                if matches!(self.bring(&slot, first, count), Put::Later) {
                    std::thread::yield_now();
                }
            }
            // What is fresh belongs to memory that the program moved away and lost.
            None => self.given_up = true,
        }
    }

    /// Nothing is missing any more (or wanted): the memory is the program's alone. The bell wakes
    /// by the close.
    fn finish(mut self) {
        // What moves just now is to be found where it ends; a page to be buried is still there.
        while self.is_changing() || self.grave.as_ref().is_some_and(Grave::is_busy) {
            match self.news() {
                Some(message) => drop(self.take(&message)),
                None => std::thread::yield_now(),
            }
        }
        let inherit = |start, end| {
            // Mapped over in the meantime: then this is nobody's business.
            let _ = memory::advise(start, (end - start) as usize, libc::MADV_DOFORK);
        };
        let slots = &self.slots;
        // A mapping with a part of ours is all ours, and longer where the program has let it grow.
        let seen = mappings::each(&mut self.content, |start, end| {
            if slots.all().iter().any(|slot| slot.now < end && start < slot.end()) {
                inherit(start, end);
            }
        });
        if seen.is_err() {
            slots.all().iter().for_each(|slot| inherit(slot.now, slot.end()));
        }
        self.shared.complete.store(true, Release);
        drop(self.uffd);
    }
}

fn forbidden(error: IoError) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::Refused(
            "userfaultfd is forbidden here: allow it (root, CAP_SYS_PTRACE, access to \
             /dev/userfaultfd, or sysctl vm.unprivileged_userfaultfd=1)"
                .to_owned(),
        ),
        Some(libc::ENOSYS) => Error::Refused(
            "this kernel has no userfaultfd, or a filter hides \
             it"
            .to_owned(),
        ),
        _ => Error::Refused(format!("userfaultfd does not work here ({error})")),
    }
}
