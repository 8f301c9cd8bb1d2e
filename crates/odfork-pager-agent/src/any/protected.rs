//! Pages that are never taken: which, in a list.

use core::ffi::{c_int, c_void};

use odfork_pager_protocol::PAGE;

use super::room::Room;

const BYTES: u64 = PAGE as u64;
const MOST: usize = 8192;

pub struct Protected {
    /// /proc/PID/task
    pub tasks: c_int,
    pages: *mut u64,
    pub count: usize,
    /// The first ones are so for ever.
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

impl Protected {
    pub fn new(tasks: c_int, room: &mut Room) -> Option<Protected> {
        let mut found = Protected { tasks, pages: room.take(MOST)?, count: 0, always: 0 };
        let code = [libc::memcpy as *const () as usize, look as *const () as usize];
        let mut search = Search { code, found: &mut found, is_whole: true };
        // SAFETY: `look` takes what is passed; the loader's list stands still meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        let is_whole = search.is_whole;
        found.always = found.count;
        is_whole.then_some(found)
    }

    fn list(&self) -> &[u64] {
        // SAFETY: `count` of MOST are set.
        unsafe { core::slice::from_raw_parts(self.pages, self.count) }
    }

    pub fn add(&mut self, address: u64) -> bool {
        let page = address & !(BYTES - 1);
        if self.list().contains(&page) {
            return true;
        }
        if self.count < MOST {
            // SAFETY: below MOST.
            unsafe { *self.pages.add(self.count) = page };
            self.count += 1;
            return true;
        }
        false
    }

    /// The first protected page of a range.
    pub fn first(&self, start: u64, end: u64) -> Option<u64> {
        self.list().iter().copied().filter(|&page| page >= start && page < end).min()
    }
}
