//! What of an ELF file of this machine is needed to map it, or to call into it: its parts, its
//! functions, and the places that hold addresses. Facts only.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use anyhow::{bail, Result};
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader, Sym};
use object::read::{Object as _, ReadCache, ReadRef};
use object::{Endianness, RelocationFlags, RelocationTarget, SymbolIndex};

const PAGE: u64 = 4096;

/// A part of the file that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub offset: u64,
    pub address: u64,
    pub in_file: u64,
    pub in_memory: u64,
    pub prot: i32,
}

impl Segment {
    /// Its first page, and the one behind its last.
    pub fn pages(&self) -> (u64, u64) {
        (self.address & !(PAGE - 1), (self.address + self.in_memory).next_multiple_of(PAGE))
    }

    pub fn is_writable(&self) -> bool {
        self.prot & libc::PROT_WRITE != 0
    }
}

/// A function or variable, by its address in the file's own space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    pub address: u64,
    /// The address is that of a function which chooses the real one.
    pub is_choice: bool,
}

/// What a place is filled in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// This address of the file.
    Own(u64),
    /// What this function of the file answers.
    Chosen(u64),
    /// A symbol of the file itself or of another one.
    Named(String),
}

#[derive(Debug, Default)]
pub struct Object {
    pub segments: Vec<Segment>,
    /// What others may use of it.
    pub symbols: HashMap<String, Symbol>,
    /// Places in its memory.
    pub places: Vec<(u64, Place)>,
    /// Those of them that lead to the loader until they are called.
    pub lazy: HashSet<u64>,
}

type Parsed<'data, R> = ElfFile64<'data, Endianness, R>;

impl Object {
    /// An error: the file is damaged, or asks for what only a loader does.
    pub fn read(file: File) -> Result<Object> {
        let cache = ReadCache::new(file);
        let parsed = ElfFile64::<Endianness, _>::parse(&cache)?;
        let mut object = Object { segments: segments(&parsed), ..Object::default() };
        object.read_symbols(&parsed)?;
        object.read_places(&parsed)?;
        Ok(object)
    }

    fn read_symbols<'data, R: ReadRef<'data>>(&mut self, parsed: &Parsed<'data, R>) -> Result<()> {
        let endian = parsed.endian();
        let table = parsed.elf_dynamic_symbol_table();
        let versions = parsed.elf_section_table().versions(endian, parsed.data())?;
        for (index, symbol) in table.enumerate() {
            let is_old = |index: SymbolIndex| {
                versions.as_ref().is_some_and(|all| all.version_index(endian, index).is_hidden())
            };
            let is_there =
                symbol.st_shndx(endian) != elf::SHN_UNDEF && symbol.st_type() != elf::STT_TLS;
            if !is_there || is_old(index) {
                continue;
            }
            let name = String::from_utf8_lossy(table.symbol_name(endian, symbol)?).into_owned();
            let is_choice = symbol.st_type() == elf::STT_GNU_IFUNC;
            self.symbols.insert(name, Symbol { address: symbol.st_value(endian), is_choice });
        }
        Ok(())
    }

    fn read_places<'data, R: ReadRef<'data>>(&mut self, parsed: &Parsed<'data, R>) -> Result<()> {
        let table = parsed.elf_dynamic_symbol_table();
        for (at, place) in parsed.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = place.flags() else { continue };
            let name = || -> Result<Place> {
                let RelocationTarget::Symbol(index) = place.target() else {
                    bail!("a place of it names no symbol");
                };
                let symbol = table.symbol(index)?;
                let name = table.symbol_name(parsed.endian(), symbol)?;
                Ok(Place::Named(String::from_utf8_lossy(name).into_owned()))
            };
            let target = match r_type {
                elf::R_X86_64_RELATIVE => Place::Own(place.addend() as u64),
                elf::R_X86_64_IRELATIVE => Place::Chosen(place.addend() as u64),
                elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => name()?,
                elf::R_X86_64_64 if place.addend() == 0 => name()?,
                _ => Place::Named(String::new()),
            };
            if r_type == elf::R_X86_64_JUMP_SLOT {
                self.lazy.insert(at);
            }
            self.places.push((at, target));
        }
        Ok(())
    }

    /// Bytes from its first page to the end of its last one.
    pub fn span(&self) -> u64 {
        self.segments.iter().map(|part| part.pages().1).max().unwrap_or(0)
    }

    /// Ranges of memory that it writes, mapped at this address.
    pub fn data(&self, base: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let written = self.segments.iter().filter(|part| part.is_writable());
        written.map(move |part| (base + part.pages().0, base + part.pages().1))
    }
}

fn segments<'data, R: ReadRef<'data>>(parsed: &Parsed<'data, R>) -> Vec<Segment> {
    let endian = parsed.endian();
    let all = parsed.elf_program_headers().iter();
    let loaded = all.filter(|part| part.p_type(endian) == elf::PT_LOAD);
    let segment = |part: &elf::ProgramHeader64<Endianness>| {
        let flags = part.p_flags(endian);
        let bit = |flag: elf::ProgramFlags, prot: i32| if flags.contains(flag) { prot } else { 0 };
        Segment {
            offset: part.p_offset(endian),
            address: part.p_vaddr(endian),
            in_file: part.p_filesz(endian),
            in_memory: part.p_memsz(endian),
            prot: bit(elf::PF_R, libc::PROT_READ)
                | bit(elf::PF_W, libc::PROT_WRITE)
                | bit(elf::PF_X, libc::PROT_EXEC),
        }
    };
    loaded.map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_parts_and_places() {
        let object = Object::read(File::open("/proc/self/exe").unwrap()).unwrap();
        let code = |part: &&Segment| part.prot == libc::PROT_READ | libc::PROT_EXEC;
        assert!(object.segments.iter().find(code).is_some());
        assert!(object.data(0x1000).all(|(start, end)| start < end && start % PAGE == 0));
        let named = |name: &str| {
            let wanted = Place::Named(name.to_owned());
            object.places.iter().any(|(_, target)| *target == wanted)
        };
        assert!(named("memcpy") && !named("nobody has this name"));
        assert!(object.places.iter().any(|(_, target)| matches!(target, Place::Own(_))));
    }

    #[test]
    fn the_c_library_chooses() {
        let maps = odfork_proc::maps::of_process("self").unwrap();
        let path = maps.iter().find(|one| one.name.contains("libc.so")).unwrap().name.clone();
        let libc = Object::read(File::open(path).unwrap()).unwrap();
        assert!(libc.symbols["memcpy"].is_choice && !libc.symbols["dlsym"].is_choice);
        assert!(libc.symbols.contains_key("__register_atfork"));
    }

    #[test]
    fn text_is_an_error() {
        assert!(Object::read(File::open("/proc/self/maps").unwrap()).is_err());
    }
}
