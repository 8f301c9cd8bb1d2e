//! Pages that are never taken: which, in a list.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use odfork_pager_protocol::adoption::{Range, MOST as RANGES};
use odfork_pager_protocol::PAGE;

use super::room::Room;

const BYTES: u64 = PAGE as u64;
/// Three for each of as many threads as a process may well have.
const MOST: usize = 1 << 17;

pub struct Protected {
    /// /proc/PID/task
    pub tasks: c_int,
    /// Two lists, one behind the other, each in the order of addresses. The pages of the first one
    /// are so for ever.
    pages: *mut u64,
    pub count: usize,
    pub always: usize,
}

/// Data of a library whose code this task runs: bytes are copied by the C library, which looks up
/// how in variables of its own.
struct Search<'a> {
    code: [usize; 2],
    found: &'a mut Protected,
    is_whole: bool,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's description of an object, and what `new` passes.
    let (info, search) = unsafe { (&*info, &mut *(search as *mut Search)) };
    // SAFETY: as many headers as said.
    let parts = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = || parts.iter().filter(|part| part.p_type == libc::PT_LOAD);
    let range = |part: &libc::Elf64_Phdr| {
        let start = info.dlpi_addr + part.p_vaddr;
        start..start + part.p_memsz
    };
    let holds = |code: &usize| loaded().any(|part| range(part).contains(&(*code as u64)));
    if search.code.iter().any(holds) {
        for part in loaded().filter(|part| part.p_flags & libc::PF_W != 0) {
            let range = range(part);
            let pages = (range.start & !(BYTES - 1)..range.end).step_by(PAGE);
            search.is_whole &= pages.into_iter().all(|page| search.found.add(page));
        }
    }
    0
}

/// The same data, if the loader cannot be asked: it does not know this library.
struct Data {
    is_set: AtomicBool,
    ranges: UnsafeCell<[Range; RANGES]>,
}

// SAFETY: the ranges are written once, before `is_set`.
unsafe impl Sync for Data {}

static DATA: Data =
    Data { is_set: AtomicBool::new(false), ranges: UnsafeCell::new([(0, 0); RANGES]) };

/// # Safety
/// Called once, before anybody asks.
pub unsafe fn set_data(ranges: [Range; RANGES]) {
    // SAFETY: passed on to the caller.
    unsafe { *DATA.ranges.get() = ranges };
    DATA.is_set.store(true, Release);
}

/// None: the loader knows. It is so in a program that had this library from the beginning.
pub fn data() -> Option<impl Iterator<Item = Range>> {
    // SAFETY: once it is set nobody writes any more.
    DATA.is_set.load(Acquire).then(|| unsafe { *DATA.ranges.get() }.into_iter())
}

impl Protected {
    pub fn new(tasks: c_int, room: &mut Room) -> Option<Protected> {
        let mut found = Protected { tasks, pages: room.take(MOST)?, count: 0, always: 0 };
        if let Some(ranges) = data() {
            let mut pages = ranges.flat_map(|(start, end)| (start..end).step_by(PAGE));
            let is_whole = pages.all(|page| found.add(page));
            found.always = found.count;
            return is_whole.then_some(found);
        }
        let code = [libc::memcpy as *const () as usize, look as *const () as usize];
        let mut search = Search { code, found: &mut found, is_whole: true };
        // SAFETY: `look` takes what is passed; the loader's list stands still meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        let is_whole = search.is_whole;
        found.always = found.count;
        is_whole.then_some(found)
    }

    fn lists(&self) -> [&[u64]; 2] {
        // SAFETY: `count` of MOST are set.
        let all = unsafe { core::slice::from_raw_parts(self.pages, self.count) };
        all.split_at(self.always).into()
    }

    pub fn add(&mut self, address: u64) -> bool {
        let page = address & !(BYTES - 1);
        if self.first(page, page + BYTES).is_some() {
            return true;
        }
        if self.count == MOST {
            return false;
        }
        let at = self.always + self.lists()[1].partition_point(|&other| other < page);
        // SAFETY: one more than `count` fits.
        unsafe {
            let place = self.pages.add(at);
            core::ptr::copy(place, place.add(1), self.count - at);
            *place = page;
        }
        self.count += 1;
        true
    }

    /// The first protected page of a range.
    pub fn first(&self, start: u64, end: u64) -> Option<u64> {
        let found = self.lists().map(|list| {
            let at = list.partition_point(|&page| page < start);
            list.get(at).copied().filter(|&page| page < end)
        });
        found.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn the_first_of_both_lists_is_found() {
        let mut room = Room::new(4 << 20).unwrap();
        let pages = room.take(MOST).unwrap();
        let mut protected = Protected { tasks: -1, pages, count: 0, always: 0 };
        let page = |number: u64| number * BYTES;
        assert!([9, 5, 7].into_iter().all(|number| protected.add(page(number) + 8)));
        protected.always = protected.count;
        assert!([6, 1, 5, 20].into_iter().all(|number| protected.add(page(number))));
        assert_eq!((protected.count, protected.always), (6, 3));
        let first = |from, to| protected.first(page(from), page(to)).map(|at| at / BYTES);
        assert_eq!([first(0, 30), first(2, 6), first(6, 30)], [Some(1), Some(5), Some(6)]);
        assert_eq!([first(7, 30), first(10, 20), first(21, 30)], [Some(7), None, None]);
    }
}
