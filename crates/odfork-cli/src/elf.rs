//! What an ELF file says about itself, as far as it decides whether a library can be preloaded into
//! it.
//!
//! Facts only; what follows from them is decided in `eligibility`. The header is read by hand,
//! because it must also be read for foreign machines and classes; the rest is read with the
//! `object` crate, part by part, never the whole file.

use std::fs::File;
use std::path::PathBuf;

use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::read::{Object, ReadCache, ReadRef};
use object::Endianness;

/// The first bytes of an ELF file, enough to tell the machine.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Header {
    pub bits: u8,
    pub machine: u16,
    pub shared: bool,
}

/// Everything else that matters of a file made for this machine.
#[derive(Debug, Default)]
pub struct Facts {
    /// PT_INTERP: the loader that the program asks for.
    pub loader: Option<PathBuf>,
    pub soname: Option<String>,
    pub needed: Vec<String>,
    pub go: bool,
    pub sanitizer: Option<&'static str>,
}

/// The machine this launcher, and so its library, was built for.
pub fn own_machine() -> u16 {
    if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64.0
    } else {
        elf::EM_X86_64.0
    }
}

/// A name for people; numbers where there is none.
pub fn machine_name(machine: u16) -> String {
    let name = match elf::Machine(machine) {
        elf::EM_X86_64 => "x86-64",
        elf::EM_386 => "i386",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "arm",
        elf::EM_RISCV => "riscv",
        elf::EM_PPC64 => "ppc64",
        elf::EM_S390 => "s390",
        elf::EM_MIPS => "mips",
        elf::EM_LOONGARCH => "loongarch",
        other => return format!("number {}", other.0),
    };
    name.to_owned()
}

/// Reads the header; None when this is not ELF at all.
pub fn header(head: &[u8]) -> Option<Header> {
    if head.len() < 20 || !head.starts_with(b"\x7fELF") {
        return None;
    }
    let field = |at: usize| {
        let bytes = [head[at], head[at + 1]];
        if head[5] == 2 {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    };
    let bits = if head[4] == 1 { 32 } else { 64 };
    Some(Header { bits, machine: field(18), shared: field(16) == elf::ET_DYN.0 })
}

/// Reads the rest of a 64-bit file; an error when the file is damaged.
pub fn facts(file: File) -> Result<Facts, object::Error> {
    let cache = ReadCache::new(file);
    let parsed = ElfFile64::<Endianness, _>::parse(&cache)?;
    let mut facts = Facts { loader: loader(&parsed)?, go: is_go(&parsed)?, ..Facts::default() };
    read_dynamic(&parsed, &mut facts)?;
    facts.sanitizer = sanitizer(&parsed, &facts.needed);
    Ok(facts)
}

type Parsed<'data, R> = ElfFile64<'data, Endianness, R>;

fn loader<'data, R: ReadRef<'data>>(
    parsed: &Parsed<'data, R>,
) -> Result<Option<PathBuf>, object::Error> {
    for segment in parsed.elf_program_headers() {
        if let Some(path) = segment.interpreter(parsed.endian(), parsed.data())? {
            return Ok(Some(PathBuf::from(String::from_utf8_lossy(path).into_owned())));
        }
    }
    Ok(None)
}

/// The Go linker leaves a note (kept by strip) and a section with build facts.
fn is_go<'data, R: ReadRef<'data>>(parsed: &Parsed<'data, R>) -> Result<bool, object::Error> {
    let named = [".go.buildinfo", ".note.go.buildid"];
    if named.iter().any(|name| parsed.section_by_name(name).is_some()) {
        return Ok(true);
    }
    for segment in parsed.elf_program_headers() {
        if let Some(mut notes) = segment.notes(parsed.endian(), parsed.data())? {
            while let Some(note) = notes.next()? {
                if note.name() == b"Go" {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

fn read_dynamic<'data, R: ReadRef<'data>>(
    parsed: &Parsed<'data, R>,
    facts: &mut Facts,
) -> Result<(), object::Error> {
    let table = parsed.elf_dynamic_table()?;
    for entry in &table {
        let text =
            || table.string(entry).map(|text| String::from_utf8_lossy(text).into_owned()).ok();
        if entry.tag == elf::DT_NEEDED {
            facts.needed.extend(text());
        } else if entry.tag == elf::DT_SONAME {
            facts.soname = text();
        }
    }
    Ok(())
}

/// Sanitizer runtimes must come first in the list of libraries and keep memory of their own in
/// strange places.
fn sanitizer<'data, R: ReadRef<'data>>(
    parsed: &Parsed<'data, R>,
    needed: &[String],
) -> Option<&'static str> {
    const RUNTIMES: [(&str, &str, &[u8]); 4] = [
        ("AddressSanitizer", "libasan.so", b"__asan_init"),
        ("ThreadSanitizer", "libtsan.so", b"__tsan_init"),
        ("MemorySanitizer", "libmsan.so", b"__msan_init"),
        ("HWAddressSanitizer", "libhwasan.so", b"__hwasan_init"),
    ];
    let symbols = parsed.elf_dynamic_symbol_table();
    let has_symbol = |wanted: &[u8]| {
        let mut names = symbols.iter().map(|symbol| symbols.symbol_name(parsed.endian(), symbol));
        names.any(|name| name.is_ok_and(|name| name == wanted))
    };
    RUNTIMES
        .iter()
        .find(|(_, library, symbol)| {
            needed.iter().any(|name| name.starts_with(library)) || has_symbol(symbol)
        })
        .map(|(name, _, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_is_dynamic_and_not_go() {
        let facts = facts(File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(facts.loader.is_some());
        assert!(facts.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", facts.needed);
        assert!(!facts.go);
        assert_eq!(facts.sanitizer, None);
        assert_eq!(facts.soname, None);
    }

    #[test]
    fn headers_of_other_machines() {
        let mut head = [0u8; 64];
        head[..6].copy_from_slice(b"\x7fELF\x01\x01");
        head[16] = 2;
        head[18] = 3;
        assert_eq!(header(&head), Some(Header { bits: 32, machine: 3, shared: false }));
        head[4..6].copy_from_slice(&[2, 2]);
        head[16..20].copy_from_slice(&[0, 3, 0, 22]);
        assert_eq!(header(&head), Some(Header { bits: 64, machine: 22, shared: true }));
        assert_eq!(machine_name(22), "s390");
        assert_eq!(header(b"\x7fELF"), None);
        assert_eq!(header(&[b'#'; 64]), None);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_a_panic() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cut");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for keep in [64, 65, 400, 4096] {
            std::fs::write(&path, &whole[..keep]).unwrap();
            let _ = facts(File::open(&path).unwrap());
        }
        std::fs::write(&path, &whole[..30]).unwrap();
        assert!(facts(File::open(&path).unwrap()).is_err());
    }
}
