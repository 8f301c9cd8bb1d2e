//! Calls that must come to the library once memory is paged: the places by which the program and
//! its libraries call them are changed, each by one aligned write.
//!
//! Where another library has a function of the name, all of that name are left alone: who comes
//! first is the loader's affair. Not reached are calls within the C library, addresses that the
//! program has noted, and libraries that it loads later.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use odfork_proc::maps::Mapping;
use odfork_proc::{memory, ptrace};

use super::image::Mapped;
use super::object::{Object, Place};
use super::target::Target;

/// None of them needs the loader, which does not know the library.
const NAMES: [&str; 12] = [
    "_Fork", "fork", "brk", "madvise", "mlockall", "mmap", "mmap64", "mprotect", "mremap", "prctl",
    "sbrk", "syscall",
];

/// The program and its libraries, without those that have the functions, and without ours.
fn others(target: &Target, libc: &Mapped, library: &Mapped) -> Vec<Mapped> {
    let mut seen = HashSet::new();
    let first = |one: &&Mapping| target.is_loaded_at(one) && seen.insert(one.name.clone());
    let firsts: Vec<&Mapping> = target.maps.iter().filter(first).collect();
    let read = |first: &Mapping| {
        let name = Path::new(&first.name).file_name()?.to_string_lossy();
        let object = Object::read(first.open(target.alive)?).ok()?;
        let base = first.start - object.segments.first()?.pages().0;
        let is_other = base != libc.base && base != library.base && !name.starts_with("ld-linux");
        is_other.then_some(Mapped { object, base })
    };
    firsts.into_iter().filter_map(read).collect()
}

/// Changes the places; how many.
pub fn redirect(target: &Target, libc: &Mapped, library: &Mapped) -> Result<usize> {
    let objects = others(target, libc, library);
    let is_taken = |name: &str| objects.iter().any(|one| one.object.symbols.contains_key(name));
    let names: Vec<&str> = NAMES.into_iter().filter(|name| !is_taken(name)).collect();
    let mut count = 0;
    for one in &objects {
        for (at, place) in &one.object.places {
            let Place::Named(name) = place else { continue };
            if !names.contains(&name.as_str()) {
                continue;
            }
            let ends = libc.address_of(name).zip(library.address_of(name));
            let Some((theirs, ours)) = ends else { continue };
            let is_lazy = one.object.lazy.contains(at);
            let at = one.base + at;
            let now = ptrace::peek(target.alive, at).unwrap_or(0);
            // Not called yet: then it leads to the loader, by code of the object itself.
            let is_open = is_lazy && now.wrapping_sub(one.base) < one.object.span();
            if now == theirs || is_open {
                memory::write(target.alive, at, &ours.to_ne_bytes())?;
                count += 1;
            }
        }
    }
    Ok(count)
}
