//! The tiny program that Exec starts.
//!
//! Owns: the bytes of a static program of two system calls (write a short text, exit), made
//! here because no compiler is at hand at run time, and the file in memory that holds them. Does
//! not own: the methods to start it (`spawn`), timing, and judging how a child ended.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use rustix::fs::{memfd_create, MemfdFlags};

use super::children::Failure;
use super::extensions::Extensions;

pub(super) const TEXT: &[u8] = b"Hello world\n";
/// Where the file is mapped; the code follows the headers.
const BASE: u64 = 0x40_0000;
const FILE_HEADER: u16 = 64;
const SEGMENT_HEADER: u16 = 56;

/// A file in memory that can be run, and where its output goes.
#[derive(Debug)]
pub struct Program {
    _file: File,
    pub(super) output: File,
    pub(super) path: CString,
    /// Looked up here, so that no start has to.
    pub(super) extensions: Extensions,
}

impl Program {
    /// Output goes to /dev/null.
    pub fn make() -> Result<Program, Failure> {
        let null = File::options().write(true).open("/dev/null");
        Program::with_output(null.map_err(|error| refused("/dev/null", &error))?)
    }

    pub(super) fn with_output(output: File) -> Result<Program, Failure> {
        let mut file = memory_file()?;
        file.write_all(&image()).map_err(|error| refused("a file in memory", &error))?;
        // By this process's number: a child that has closed its descriptors still finds the file.
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let path = CString::new(path).map_err(|error| Failure::Unavailable(error.to_string()))?;
        Ok(Program { _file: file, output, path, extensions: Extensions::find() })
    }
}

pub(super) fn refused(what: &str, error: &std::io::Error) -> Failure {
    Failure::Unavailable(format!("{what}: {error}"))
}

/// An empty file without a name. It stays open for writing, which the kernel allows for files in
/// memory that run.
fn memory_file() -> Result<File, Failure> {
    // EXEC (Linux 6.3) says that the file is meant to be run.
    let file = memfd_create(c"tiny", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(c"tiny", MemfdFlags::CLOEXEC));
    file.map(File::from).map_err(|error| refused("memfd_create", &error.into()))
}

/// The whole file: one header, one segment, the code, the text.
pub(crate) fn image() -> Vec<u8> {
    let code = code();
    let headers = u64::from(FILE_HEADER + SEGMENT_HEADER);
    let length = headers + (code.len() + TEXT.len()) as u64;
    let mut file = file_header(BASE + headers);
    file.extend(segment_header(length));
    file.extend(code);
    file.extend(TEXT);
    file
}

/// Elf64_Ehdr.
fn file_header(entry: u64) -> Vec<u8> {
    let mut header = b"\x7fELF".to_vec();
    // 64 bits, little-endian, version 1, System V; then padding.
    header.extend([2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Type: executable. Machine: x86-64 or aarch64.
    put(&mut header, &[2, if cfg!(target_arch = "aarch64") { 183 } else { 62 }], 2);
    // Version.
    put(&mut header, &[1], 4);
    // Entry, offset of the segment headers, no section headers.
    put(&mut header, &[entry, u64::from(FILE_HEADER), 0], 8);
    // Flags.
    put(&mut header, &[0], 4);
    // Sizes of this header and of a segment header, one segment; no sections.
    put(&mut header, &[u64::from(FILE_HEADER), u64::from(SEGMENT_HEADER), 1, 0, 0, 0], 2);
    header
}

/// Elf64_Phdr: the whole file, readable and executable.
fn segment_header(length: u64) -> Vec<u8> {
    let (load, read_and_run, page) = (1, 5, 4096);
    let mut header = Vec::new();
    put(&mut header, &[load, read_and_run], 4);
    // Offset, virtual and physical address, size in the file and in memory, alignment.
    put(&mut header, &[0, BASE, BASE, length, length, page], 8);
    header
}

/// write(1, TEXT, length); exit(0).
#[cfg(target_arch = "aarch64")]
fn code() -> Vec<u8> {
    let write_and_exit: [u32; 8] = [
        0xd280_0808,                            // mov x8, 64 (write)
        0xd280_0020,                            // mov x0, 1 (stdout)
        0x1000_00c1,                            // adr x1, 24: behind the last instruction
        0xd280_0002 | (TEXT.len() as u32) << 5, // mov x2, length
        0xd400_0001,                            // svc 0
        0xd280_0ba8,                            // mov x8, 93 (exit)
        0xd280_0000,                            // mov x0, 0
        0xd400_0001,                            // svc 0
    ];
    write_and_exit.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
}

/// The same.
#[cfg(target_arch = "x86_64")]
fn code() -> Vec<u8> {
    let write_and_exit: [&[u8]; 7] = [
        &[0xB8, 1, 0, 0, 0],                // mov eax, 1 (write)
        &[0xBF, 1, 0, 0, 0],                // mov edi, 1 (stdout)
        &[0x48, 0x8D, 0x35, 16, 0, 0, 0],   // lea rsi, [rip + 16]: behind the last instruction
        &[0xBA, TEXT.len() as u8, 0, 0, 0], // mov edx, length
        &[0x0F, 0x05],                      // syscall
        &[0xB8, 60, 0, 0, 0, 0x31, 0xFF],   // mov eax, 60 (exit); xor edi, edi
        &[0x0F, 0x05],                      // syscall
    ];
    write_and_exit.concat()
}

/// Appends numbers of `width` bytes, little-endian.
fn put(bytes: &mut Vec<u8>, numbers: &[u64], width: usize) {
    for number in numbers {
        bytes.extend(&number.to_le_bytes()[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_file_has_the_layout_of_an_elf_program() {
        let file = image();
        assert_eq!(file.len(), 64 + 56 + code().len() + TEXT.len());
        let entry = u64::from_le_bytes(file[24..32].try_into().unwrap());
        assert_eq!(entry, BASE + 120);
        // lea is 7 bytes and begins at 10: what it points to is the text.
        let text = 120 + 17 + usize::from(code()[13]);
        assert_eq!(&file[text..], TEXT);
    }
}
