//! Functions of what the loader has loaded, by their names.
//!
//! Owns reading the symbol tables of loaded objects. Not by dlsym: before glibc 2.34 that is in a
//! library which most programs do not load. And for a name that is nowhere it allocates the text of
//! an error, which stays for the program's dlerror().
//!
//! Rules: the loader's lock is taken while objects are visited: in the constructor, and where the
//! program asks the loader itself.

use core::arch::global_asm;
use core::ffi::{c_int, c_void, CStr};

/// How its path ends.
const GLIBC: &[u8] = b"libc.so.6";
/// What the C library calls itself, and the part of it that had dlsym before glibc 2.34.
const LIBC: [&CStr; 2] = [c"libc.so.6", c"libdl.so.2"];
/// What the shared library calls itself.
const OWN: &[u8] = b"libodfork.so";

// What the linker knows of the object that this code is part of: its table for the loader, and its
// first byte. Weak: a static program has no such table.
global_asm!(
    ".pushsection .data.rel.ro.odfork_own,\"aw\",@progbits",
    ".balign 8",
    ".globl odfork_own",
    ".hidden odfork_own",
    ".type odfork_own,@object",
    "odfork_own:",
    ".weak _DYNAMIC",
    ".hidden _DYNAMIC",
    ".quad _DYNAMIC",
    ".weak __ehdr_start",
    ".hidden __ehdr_start",
    ".quad __ehdr_start",
    // The loader's, for debuggers: where its list of objects begins.
    ".weak _r_debug",
    ".quad _r_debug",
    ".size odfork_own, . - odfork_own",
    ".popsection",
);

/// A loaded program or library, as long as it is visited.
pub struct Object {
    /// The C library, if it is glibc.
    pub is_glibc: bool,
    base: usize,
    hash: *const u32,
    symbols: *const libc::Elf64_Sym,
    names: *const u8,
    /// Of each symbol; null in an object without versions.
    versions: *const u16,
    /// Where its name is among the names; 0: it has none.
    title: usize,
}

/// Which objects, in the order in which the loader searches them.
#[derive(Clone, Copy, PartialEq)]
pub enum Which {
    /// Behind the one that this library is part of.
    Behind,
    /// Before it: those that a program had when it loaded this library by dlopen.
    Before,
}

struct Visit<'a> {
    which: Which,
    /// Ours was met.
    passed: bool,
    visitor: &'a mut dyn FnMut(&Object),
}

/// Calls `visitor` with each of these objects.
pub fn visit(which: Which, visitor: &mut dyn FnMut(&Object)) {
    let mut visit = Visit { which, passed: false, visitor };
    // SAFETY: the callback gets a pointer to `visit`, alive during the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut visit).cast()) };
}

extern "C" {
    static odfork_own: [usize; 3];
}

/// The C library's function of that name, by the loader's list for debuggers: no lock is taken, no
/// function called. What comes before the C library there is never unloaded.
pub fn of_libc(name: &CStr) -> Option<usize> {
    /// In `struct r_debug`.
    const FIRST: usize = 1;
    /// In `struct link_map`.
    const OFFSET: usize = 0;
    const DYNAMIC: usize = 2;
    const NEXT: usize = 3;
    // SAFETY: words written by the loader before any constructor; null where it has no such list.
    let list = unsafe { odfork_own[2] as *const usize };
    if list.is_null() {
        return None;
    }
    // SAFETY: the loader's list, and tables of objects in it.
    unsafe {
        let mut map = *list.add(FIRST) as *const usize;
        while !map.is_null() {
            if let Some(object) = Object::read(*map.add(OFFSET), *map.add(DYNAMIC)) {
                if LIBC.contains(&object.title()) {
                    if let found @ Some(_) = object.function(name) {
                        return found;
                    }
                }
            }
            map = *map.add(NEXT) as *const usize;
        }
    }
    None
}

/// The shared library itself. None where its code was linked into a program or another library:
/// the names there are not ours alone. Takes no lock.
pub fn own() -> Option<Object> {
    // SAFETY: words written by the loader before any constructor.
    let [dynamic, base, _] = unsafe { odfork_own };
    if dynamic == 0 {
        return None;
    }
    // SAFETY: this object's own tables.
    let object = unsafe { Object::read(base, dynamic) }?;
    (object.title().to_bytes() == OWN).then_some(object)
}

/// The first function of that name behind the library.
pub fn behind(name: &CStr) -> Option<usize> {
    let mut found = None;
    visit(Which::Behind, &mut |object| found = found.or_else(|| object.function(name)));
    found
}

unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    visit: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes valid headers of a loaded object, and `visit` is the caller's.
    let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit>()) };
    if contains(info, look as *const () as usize) {
        visit.passed = true;
    } else if visit.passed == (visit.which == Which::Behind) {
        // SAFETY: as above.
        if let Some(object) = unsafe { Object::of(info) } {
            (visit.visitor)(&object);
        }
    }
    0
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the loader's word for them; they stay as long as the object.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
}

fn contains(info: &libc::dl_phdr_info, address: usize) -> bool {
    headers(info).iter().any(|header| {
        let start = info.dlpi_addr as usize + header.p_vaddr as usize;
        let range = start..start + header.p_memsz as usize;
        header.p_type == libc::PT_LOAD && range.contains(&address)
    })
}

impl Object {
    /// None for one without a table of this kind: the kernel's own, or one made before 2006.
    ///
    /// # Safety
    /// The loader's description of a loaded object.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Object> {
        let base = info.dlpi_addr as usize;
        let dynamic = headers(info).iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        // SAFETY: the caller's word.
        let object = unsafe { Object::read(base, base + dynamic.p_vaddr as usize) }?;
        let is_glibc = !info.dlpi_name.is_null()
            // SAFETY: the loader's text.
            && unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes().ends_with(GLIBC);
        Some(Object { is_glibc, ..object })
    }

    /// The same, of which only the tables are known.
    ///
    /// # Safety
    /// Where an object begins, and the table that it has for the loader.
    unsafe fn read(base: usize, dynamic: usize) -> Option<Object> {
        const STRINGS: usize = 5;
        const SYMBOLS: usize = 6;
        const TITLE: usize = 14;
        const HASH: usize = 0x6fff_fef5;
        const VERSIONS: usize = 0x6fff_fff0;
        let mut entry = dynamic as *const [usize; 2];
        let (mut names, mut symbols, mut hash, mut versions, mut title) = (0, 0, 0, 0, 0);
        loop {
            // SAFETY: a table of the object that ends with a zero.
            let [tag, value] = unsafe { *entry };
            // glibc's loader has added the base, except where it may not write; musl's does not.
            let at = if value < base { base + value } else { value };
            match tag {
                0 => break,
                STRINGS => names = at,
                SYMBOLS => symbols = at,
                HASH => hash = at,
                VERSIONS => versions = at,
                TITLE => title = value,
                _ => {}
            }
            // SAFETY: not the end.
            entry = unsafe { entry.add(1) };
        }
        (hash != 0 && symbols != 0 && names != 0).then_some(Object {
            is_glibc: false,
            base,
            hash: hash as *const u32,
            symbols: symbols as *const libc::Elf64_Sym,
            names: names as *const u8,
            versions: versions as *const u16,
            title,
        })
    }

    /// What it calls itself; empty where it does not.
    fn title(&self) -> &CStr {
        // SAFETY: a text among the object's own.
        unsafe { CStr::from_ptr(self.names.add(self.title).cast()) }
    }

    /// Where its function of that name is, in the newest version.
    pub fn function(&self, name: &CStr) -> Option<usize> {
        let hash = hash_of(name);
        // SAFETY: the object's table: four counts, the filter's words, a chain's start for each
        // remainder, and behind them the hash of each symbol; the lowest bit ends a chain.
        unsafe {
            let [chains, first, words, shift] = *self.hash.cast::<[u32; 4]>();
            let filter = self.hash.add(4).cast::<u64>();
            let word = *filter.add((hash / 64 % words) as usize);
            if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 {
                return None;
            }
            let starts = filter.add(words as usize).cast::<u32>();
            let mut at = *starts.add((hash % chains) as usize);
            if at < first {
                return None;
            }
            let hashes = starts.add(chains as usize);
            loop {
                let other = *hashes.add((at - first) as usize);
                if other | 1 == hash | 1 && self.is_named(at as usize, name) {
                    return Some(self.address(at as usize));
                }
                if other & 1 != 0 {
                    return None;
                }
                at += 1;
            }
        }
    }

    /// # Safety
    /// The number of a symbol.
    unsafe fn is_named(&self, at: usize, name: &CStr) -> bool {
        /// An older version's, for programs that were linked with that.
        const HIDDEN: u16 = 0x8000;
        // SAFETY: the caller's word.
        unsafe {
            let symbol = &*self.symbols.add(at);
            let is_old = !self.versions.is_null() && *self.versions.add(at) & HIDDEN != 0;
            let other = self.names.add(symbol.st_name as usize);
            // Byte by byte: memcmp is a page of the C library that short programs do not touch.
            let mut bytes = name.to_bytes_with_nul().iter().enumerate();
            symbol.st_shndx != 0 && !is_old && bytes.all(|(i, &byte)| *other.add(i) == byte)
        }
    }

    /// # Safety
    /// The number of a symbol that is a function.
    unsafe fn address(&self, at: usize) -> usize {
        /// STT_GNU_IFUNC: a function that answers with the function.
        const CHOOSES: u8 = 10;
        // SAFETY: the caller's word.
        let symbol = unsafe { &*self.symbols.add(at) };
        let address = self.base + symbol.st_value as usize;
        if symbol.st_info & 15 != CHOOSES {
            return address;
        }
        // SAFETY: of this type; where it takes no argument, one does not harm.
        let choose: extern "C" fn(u64) -> usize = unsafe { core::mem::transmute(address) };
        // SAFETY: reads what the kernel said at the start.
        choose(unsafe { libc::getauxval(libc::AT_HWCAP) })
    }
}

fn hash_of(name: &CStr) -> u32 {
    name.to_bytes()
        .iter()
        .fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &CStr) -> usize {
        let mut at = 0;
        visit(Which::Behind, &mut |object| {
            if at == 0 {
                at = object.function(name).unwrap_or(0);
            }
        });
        at
    }

    /// One version, several versions, chosen by the processor, several libraries, nowhere.
    #[test]
    #[cfg_attr(miri, ignore = "reads what the loader has loaded")]
    fn the_loader_gives_the_same_answers() {
        for name in [c"fork", c"pthread_create", c"sem_init", c"strlen", c"memcpy", c"_nowhere"] {
            // SAFETY: a valid name.
            let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert_eq!(find(name), expected, "{name:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads what the loader has loaded")]
    fn a_program_is_the_first_object() {
        let mut before = 0;
        visit(Which::Before, &mut |_| before += 1);
        assert_eq!(before, 0);
    }
}
