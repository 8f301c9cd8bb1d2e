//! The limit of a group: all processes that one `page run` started have it together.
//!
//! Owns memory that all of them map: a forked child inherits it, what the program executes opens
//! its file. Each process has a slot, with its share of the limit. Only its own task writes there,
//! and whoever finds that a task is gone. A share is claimed first and checked then, so a task that
//! is killed at any moment leaves nothing but a slot. Wrong numbers, from a process that was broken
//! into, cost others their shares; who cuts the file off ends them, as who may kill them can.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use odfork_pager_protocol::{GROUP_BYTES, GROUP_SLOT};
use odfork_sys::{args, call, check, getpid, Errno, SysResult};

use super::made;
use super::need::{Need, MOST_WAITS};
use super::parts::Parts;
use crate::clock::now;
use crate::{close, kernel_mmap};

const SLOTS: usize = 255;
/// A process has so many pages at least, although the others have all.
pub const LEAST: u64 = 512;
/// A task that had no look for so long may have ended; after the longer time it counts as if.
const SILENCE: u64 = 2_000_000_000;
const LONG_SILENCE: u64 = 30_000_000_000;
/// What somebody wanted that long ago is not wanted any more. Longer than between two looks.
const WISH: u64 = 250_000_000;
/// A slot that is being emptied.
const EMPTYING: u64 = u64::MAX;

/// A process. All zeros: nobody.
#[repr(C, align(128))]
pub struct Slot {
    /// Its task, by process number.
    pub task: AtomicU64,
    /// In pages; so are the next three.
    share: AtomicU64,
    pub resident: AtomicU64,
    /// The same, with all of what it shares with others by a fork; and 1 if it does.
    full: AtomicU64,
    shares: AtomicU64,
    /// More that it could not have; and when.
    wish: AtomicU64,
    wished: AtomicU64,
    /// Pages that it asks for in a second.
    need: AtomicU64,
    /// When its task had its last look.
    pub looked: AtomicU64,
    /// Thousandths of the time in which somebody waits for pages that were away; and since when
    /// that is much, or 0.
    pub waits: AtomicU64,
    pub waiting: AtomicU64,
    /// When it got its turn; and when it was put out, or 0: its touches are answered.
    pub since: AtomicU64,
    pub out: AtomicU64,
    /// When it came back the last time, or 0; and 1 if a touch was not answered since it went.
    pub returned: AtomicU64,
    pub asks: AtomicU64,
    /// When the program was last seen using a processor.
    pub ran: AtomicU64,
}

#[repr(C, align(128))]
struct Memory {
    /// In pages; 0: nobody was here yet.
    limit: AtomicU64,
    /// Behind the last slot that was ever used.
    top: AtomicU64,
    /// When the last process came or went (monotonic): a group without one may still get one.
    changed: AtomicU64,
    /// When an excess was told last, and how often.
    told: AtomicU64,
    tellings: AtomicU64,
    slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Memory>() == GROUP_BYTES && size_of::<Slot>() == GROUP_SLOT);

/// What others want.
pub struct Wish {
    pub pages: u64,
    /// The most urgent one: what it asks for in a second, for each 1,024 pages it has.
    pub urgency: u64,
}

/// A process' place in a group.
#[derive(Clone, Copy)]
pub struct Group {
    memory: &'static Memory,
    /// None: all slots are taken; it has the least share.
    pub slot: Option<&'static Slot>,
}

/// Urgency of a process with so much.
pub fn urgency(need: u64, share: u64) -> u64 {
    need.saturating_mul(1024) / share.max(LEAST)
}

/// Maps the memory of a group that has this file; its address.
pub fn join_file(path: &CStr, limit: u64) -> SysResult<usize> {
    let fd = open(path)?;
    let mapped = map(limit, libc::MAP_SHARED, fd);
    close(fd);
    mapped
}

/// A new group: this process and the children that it forks.
pub fn found(limit: u64) -> SysResult<usize> {
    map(limit, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
}

fn map(limit: u64, flags: c_int, fd: c_int) -> SysResult<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let address = check(kernel_mmap(0, GROUP_BYTES, prot, flags, fd, 0))?;
    made::range(address, GROUP_BYTES);
    let _ = of(address).limit.compare_exchange(0, limit, SeqCst, Relaxed);
    Ok(address)
}

/// A file of this user's own alone, as large as it must be.
fn open(path: &CStr) -> SysResult<c_int> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let open = args![libc::AT_FDCWD, path.as_ptr(), flags, 0];
    // SAFETY: a valid path; room for what is asked; a descriptor of ours.
    unsafe {
        let fd = call(libc::SYS_openat, open)? as c_int;
        let mut stat: libc::stat = core::mem::zeroed();
        let known = call(libc::SYS_fstat, args![fd, &mut stat]).is_ok();
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let is_own = stat.st_uid == libc::geteuid() && stat.st_mode & 0o077 == 0;
        match known && is_file && is_own && stat.st_size == GROUP_BYTES as i64 {
            true => Ok(fd),
            false => {
                close(fd);
                Err(Errno(libc::EPERM))
            }
        }
    }
}

fn of(address: usize) -> &'static Memory {
    // SAFETY: mapped by `map`, as large as that, and stays until the program ends; any bytes are
    // numbers.
    unsafe { &*(address as *const Memory) }
}

impl Memory {
    fn used(&self) -> &[Slot] {
        &self.slots[..(self.top.load(Relaxed) as usize).min(SLOTS)]
    }

    fn sum(&self, of: impl Fn(&Slot) -> &AtomicU64) -> u64 {
        self.used().iter().fold(0, |sum: u64, slot| sum.saturating_add(of(slot).load(SeqCst)))
    }
}

impl Slot {
    /// Nobody's, if the task is gone that it was of.
    fn empty(&self, task: u64) {
        if self.task.compare_exchange(task, EMPTYING, SeqCst, Relaxed).is_ok() {
            let counts = [&self.share, &self.resident, &self.full, &self.wish, &self.need];
            let flags = [&self.shares, &self.waits, &self.asks];
            let times = [&self.waiting, &self.out, &self.returned];
            counts.into_iter().chain(flags).chain(times).for_each(|one| one.store(0, SeqCst));
            self.task.store(0, SeqCst);
        }
    }
}

impl Group {
    /// Of that memory, without a slot yet. None: there was no memory (0).
    pub fn at(address: usize) -> Option<Group> {
        (address != 0).then(|| Group { memory: of(address), slot: None })
    }

    /// The task that calls has a slot from now on, if there is one.
    pub fn join(&mut self) {
        let (task, time) = (getpid() as u64, now());
        let mut slots = self.memory.slots.iter();
        let is_free = |slot: &&Slot| slot.task.compare_exchange(0, task, SeqCst, Relaxed).is_ok();
        self.slot = slots.by_ref().find(is_free);
        self.memory.changed.store(time, Relaxed);
        if let Some(slot) = self.slot {
            slot.looked.store(time, Relaxed);
            slot.since.store(time, Relaxed);
            self.memory.top.fetch_max((SLOTS - slots.len()) as u64, SeqCst);
        }
    }

    /// It had none yet, or somebody took it for ended.
    pub fn is_member(&self) -> bool {
        self.slot.is_some_and(|slot| slot.task.load(Relaxed) == getpid() as u64)
    }

    /// Gives its share back.
    pub fn leave(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.empty(getpid() as u64);
        }
        self.memory.changed.store(now(), Relaxed);
    }

    /// Of all processes whose tasks had a look lately.
    pub fn slots(&self, time: u64) -> impl Iterator<Item = &'static Slot> {
        let is_there = move |slot: &&Slot| {
            let passed = time.saturating_sub(slot.looked.load(Relaxed));
            slot.task.load(Relaxed) != 0 && passed <= SILENCE
        };
        self.memory.used().iter().filter(is_there)
    }

    pub fn limit(&self) -> u64 {
        self.memory.limit.load(Relaxed).max(LEAST)
    }

    /// Pages that nobody has in memory, by what each had last.
    pub fn free(&self) -> u64 {
        self.limit().saturating_sub(self.resident())
    }

    /// Pages in memory of all processes.
    pub fn resident(&self) -> u64 {
        self.memory.sum(|slot| &slot.resident)
    }

    /// All of them fit with so many more, although each counts all of what it shares.
    pub fn is_roomy(&self, more: u64) -> bool {
        self.memory.sum(|slot| &slot.full).saturating_add(more) <= self.limit()
    }

    /// Processes that have pages in common with others.
    pub fn sharers(&self) -> u64 {
        self.memory.sum(|slot| &slot.shares)
    }

    /// What nobody has claimed.
    pub fn unclaimed(&self) -> u64 {
        self.limit().saturating_sub(self.memory.sum(|slot| &slot.share))
    }

    /// What it claimed and got.
    pub fn share(&self) -> u64 {
        self.slot.map_or(0, |slot| slot.share.load(Relaxed))
    }

    /// One process tells of an excess; the next one after a pause that doubles from 1 s on.
    pub fn may_tell(&self, time: u64) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let (told, count) = (&self.memory.told, &self.memory.tellings);
        let old = told.load(Relaxed);
        let pause = SECOND << count.load(Relaxed).min(12);
        let is_due = old == 0 || time.saturating_sub(old) > pause;
        let tells = is_due && told.compare_exchange(old, time, SeqCst, Relaxed).is_ok();
        count.fetch_add(u64::from(tells), Relaxed);
        tells
    }

    /// Nobody has more above its share.
    pub fn is_furthest(&self) -> bool {
        let above =
            |slot: &Slot| slot.resident.load(Relaxed).saturating_sub(slot.share.load(Relaxed));
        let own = self.slot.map_or(0, above);
        own > 0 && self.memory.used().iter().all(|slot| above(slot) <= own)
    }

    /// More, if there is some; what it has then. What is missing is a wish.
    pub fn claim(&self, share: u64) -> u64 {
        let Some(slot) = self.slot else { return 0 };
        let (old, share) = (slot.share.load(Relaxed), share.min(self.limit()));
        let mut got = old;
        if share > old {
            slot.share.store(share, SeqCst);
            let excess = self.memory.sum(|slot| &slot.share).saturating_sub(self.limit());
            got = share - excess.min(share - old);
            slot.share.store(got, SeqCst);
        }
        slot.wish.store(share.saturating_sub(got), Relaxed);
        slot.wished.store(now(), Relaxed);
        got
    }

    /// It keeps so much only.
    pub fn give_up(&self, share: u64) {
        if let Some(slot) = self.slot {
            slot.share.store(share.min(slot.share.load(Relaxed)), SeqCst);
        }
    }

    pub fn publish(&self, resident: u64, parts: &Parts, need: &Need, time: u64) {
        if let Some(slot) = self.slot {
            slot.resident.store(resident, Relaxed);
            slot.full.store(resident + parts.others, Relaxed);
            slot.shares.store(u64::from(parts.are_any), Relaxed);
            slot.need.store(need.rate, Relaxed);
            slot.waits.store(need.waits, Relaxed);
            let since = slot.waiting.load(Relaxed);
            slot.waiting.store(
                match need.waits >= MOST_WAITS {
                    true if since == 0 => time,
                    true => since,
                    false => 0,
                },
                Relaxed,
            );
            slot.looked.store(time, Relaxed);
        }
    }

    /// What others want at that time, and nobody has left. Those who are gone leave their slots.
    pub fn wish(&self, time: u64) -> Option<Wish> {
        let (mut pages, mut most) = (0u64, 0);
        for slot in self.memory.used() {
            let task = slot.task.load(Relaxed);
            if self.slot.is_some_and(|own| core::ptr::eq(own, slot)) || task == 0 {
                continue;
            }
            let silence = time.saturating_sub(slot.looked.load(Relaxed));
            if silence > LONG_SILENCE || silence > SILENCE && is_gone(task) {
                slot.empty(task);
            }
            let wish = slot.wish.load(Relaxed);
            if wish > 0 && time.saturating_sub(slot.wished.load(Relaxed)) < WISH {
                let share = slot.share.load(Relaxed);
                pages = pages.saturating_add(wish);
                let is_above = slot.resident.load(Relaxed) > share;
                most = most.max(match share < LEAST && is_above {
                    true => u64::MAX,
                    false => urgency(slot.need.load(Relaxed), share),
                });
            }
        }
        let left = self.unclaimed();
        (pages > left).then_some(Wish { pages: pages - left, urgency: most })
    }
}

fn is_gone(task: u64) -> bool {
    // SAFETY: signal 0 does nothing.
    unsafe { call(libc::SYS_kill, args![task as c_int, 0]) == Err(Errno(libc::ESRCH)) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn group(limit: u64) -> usize {
        found(limit).unwrap()
    }

    #[test]
    fn shares_are_never_more_than_the_limit() {
        let address = group(8192);
        let [mut one, mut other] = [(); 2].map(|()| Group::at(address).unwrap());
        one.join();
        other.join();
        assert_eq!(one.claim(6000), 6000);
        assert_eq!(other.claim(6000), 2192);
        assert_eq!(other.memory.sum(|slot| &slot.share), 8192);
        assert_eq!(one.wish(now()).unwrap().pages, 6000 - 2192);
        assert!(other.wish(now()).is_none());
        one.give_up(5000);
        assert_eq!(other.claim(6000), 3192);
        // Who does not claim any more wants nothing after a while.
        assert!(one.wish(now() + WISH).is_none());
        one.leave();
        assert_eq!(other.claim(9000), 8192);
        other.leave();
        assert_eq!(other.memory.sum(|slot| &slot.share), 0);
    }

    #[test]
    fn threads_that_claim_and_give_up_leave_nothing_and_take_no_more() {
        let address = group(4096);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..20_000u64 {
                        let mut group = Group::at(address).unwrap();
                        group.join();
                        group.claim((thread * 7919 + round * 104_729) % 4096);
                        group.give_up(round % 100);
                        group.claim(1000);
                        group.leave();
                    }
                });
            }
        });
        assert_eq!(of(address).sum(|slot| &slot.share), 0);
        assert!(of(address).top.load(Relaxed) <= 4);
    }

    #[test]
    fn a_share_of_who_is_gone_goes_to_others() {
        let address = group(4096);
        let gone = &of(address).slots[0];
        of(address).top.store(1, Relaxed);
        gone.share.store(4096, Relaxed);
        // No process has such a number.
        gone.task.store(1 << 30, Relaxed);
        let mut group = Group::at(address).unwrap();
        group.join();
        assert_eq!(group.claim(3000), 0);
        let _ = group.wish(now() + SILENCE + 1);
        assert_eq!(group.claim(3000), 3000);
    }

    #[test]
    fn a_process_without_a_slot_gets_one_later() {
        let address = group(1 << 20);
        of(address).slots.iter().for_each(|slot| slot.task.store(1, Relaxed));
        let mut group = Group::at(address).unwrap();
        group.join();
        assert!(!group.is_member());
        assert_eq!((group.claim(1 << 19), group.claim(0)), (0, 0));
        of(address).slots[7].task.store(0, Relaxed);
        group.join();
        assert!(group.is_member());
        assert_eq!(group.claim(1 << 19), 1 << 19);
        // Somebody took it for ended.
        of(address).slots[7].empty(getpid() as u64);
        assert!(!group.is_member());
    }
}
