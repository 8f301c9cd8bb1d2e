//! The tiny program that Exec starts, and the three ways to start it.
//!
//! Owns: the bytes of a static x86-64 program of two system calls (write a short text, exit), made here because no
//! compiler is at hand at run time, and the file in memory that holds them. Does not own: timing, and judging how a
//! child ended. fork and posix_spawn are libc's symbols, which a preloaded library may replace; vfork is the system
//! call itself, as nothing replaces that.

use std::ffi::{c_char, CString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use super::children::{await_success, fork_and_wait, is_harness_alone, Failure};
use super::protocol::Method;

/// Linux 6.3: says that the file is meant to be run.
const MFD_EXEC: libc::c_uint = 0x10;
/// Exit status of a child that could not become the program, as shells have it.
const NOT_STARTED: libc::c_int = 127;

const TEXT: &[u8] = b"Hello world\n";
/// Where the file is mapped; the code follows the headers.
const BASE: u64 = 0x40_0000;
const FILE_HEADER: u16 = 64;
const SEGMENT_HEADER: u16 = 56;

extern "C" {
    static environ: *const *mut c_char;
}

/// A file in memory that can be run, and where its output goes.
#[derive(Debug)]
pub struct Program {
    _file: File,
    output: File,
    path: CString,
}

impl Program {
    /// Output goes to /dev/null.
    pub fn make() -> Result<Program, Failure> {
        let null = File::options().write(true).open("/dev/null");
        Program::with_output(null.map_err(|error| refused("/dev/null", &error))?)
    }

    fn with_output(output: File) -> Result<Program, Failure> {
        let mut file = memory_file()?;
        file.write_all(&image()).map_err(|error| refused("a file in memory", &error))?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .map_err(|error| Failure::Unavailable(error.to_string()))?;
        Ok(Program { _file: file, output, path })
    }

    /// Starts it and waits for its end.
    pub fn run(&self, method: Method) -> Result<(), Failure> {
        if is_harness_alone() {
            std::hint::black_box(self);
            return Ok(());
        }
        match method {
            Method::ForkExec => fork_and_wait(|| self.become_it()).map(drop),
            Method::VforkExec => await_success(self.vfork()?),
            Method::PosixSpawn => await_success(self.spawn()?),
        }
    }

    fn arguments(&self) -> [*mut c_char; 2] {
        [self.path.as_ptr().cast_mut(), std::ptr::null_mut()]
    }

    /// CHILD: two system calls; does not come back.
    fn become_it(&self) -> bool {
        let arguments = self.arguments();
        // SAFETY: a descriptor and strings of ours, arrays that end with null.
        unsafe {
            libc::dup2(self.output.as_raw_fd(), libc::STDOUT_FILENO);
            libc::execve(
                self.path.as_ptr(),
                arguments.as_ptr().cast(),
                environ.cast::<*const c_char>(),
            );
            libc::_exit(NOT_STARTED)
        }
    }

    /// vfork and exec. libc's vfork returns twice, which no Rust function may see. Here the child never leaves the
    /// assembly between the two system calls and uses neither the stack nor memory it would have to give back, so
    /// that sharing both with its waiting parent is harmless. Signals are not blocked: a subject handles none.
    fn vfork(&self) -> Result<libc::pid_t, Failure> {
        let arguments = self.arguments();
        let pid: i64;
        // SAFETY: see above. All pointers outlive the block; the parent continues when the child has its own memory
        // or is gone. rdi and rsi are the child's own registers.
        unsafe {
            std::arch::asm!(
                "mov eax, {vfork}",
                "syscall",
                "test rax, rax",
                "jnz 2f",
                // CHILD: dup2(output, 1).
                "mov rdi, r8",
                "mov esi, 1",
                "mov eax, {dup2}",
                "syscall",
                // CHILD: execve(path, arguments, environ).
                "mov rdi, r9",
                "mov rsi, r10",
                "mov eax, {execve}",
                "syscall",
                // CHILD: that failed.
                "mov edi, {not_started}",
                "mov eax, {exit}",
                "syscall",
                "2:",
                vfork = const libc::SYS_vfork,
                dup2 = const libc::SYS_dup2,
                execve = const libc::SYS_execve,
                exit = const libc::SYS_exit,
                not_started = const NOT_STARTED,
                in("r8") i64::from(self.output.as_raw_fd()),
                in("r9") self.path.as_ptr(),
                in("r10") arguments.as_ptr(),
                in("rdx") environ,
                lateout("rax") pid,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        if pid < 0 {
            let error = std::io::Error::from_raw_os_error(-pid as i32);
            return Err(Failure::Unavailable(format!("vfork failed: {error}")));
        }
        Ok(pid as libc::pid_t)
    }

    fn spawn(&self) -> Result<libc::pid_t, Failure> {
        let arguments = self.arguments();
        let mut pid = 0;
        // SAFETY: the actions are initialised before they are used and destroyed once; see `become_it` for the rest.
        let error = unsafe {
            let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
            libc::posix_spawn_file_actions_init(&mut actions);
            libc::posix_spawn_file_actions_adddup2(
                &mut actions,
                self.output.as_raw_fd(),
                libc::STDOUT_FILENO,
            );
            let error = libc::posix_spawn(
                &mut pid,
                self.path.as_ptr(),
                &actions,
                std::ptr::null(),
                arguments.as_ptr(),
                environ,
            );
            libc::posix_spawn_file_actions_destroy(&mut actions);
            error
        };
        match error {
            0 => Ok(pid),
            _ => Err(refused("posix_spawn", &std::io::Error::from_raw_os_error(error))),
        }
    }
}

fn refused(what: &str, error: &std::io::Error) -> Failure {
    Failure::Unavailable(format!("{what}: {error}"))
}

/// An empty file without a name. It stays open for writing, which the kernel allows for files in memory that run.
fn memory_file() -> Result<File, Failure> {
    for flags in [libc::MFD_CLOEXEC | MFD_EXEC, libc::MFD_CLOEXEC] {
        // SAFETY: a NUL-terminated name.
        let descriptor = unsafe { libc::memfd_create(c"tiny".as_ptr(), flags) };
        if descriptor >= 0 {
            // SAFETY: a new descriptor that nobody else owns.
            return Ok(unsafe { File::from_raw_fd(descriptor) });
        }
    }
    Err(refused("memfd_create", &std::io::Error::last_os_error()))
}

/// The whole file: one header, one segment, the code, the text.
fn image() -> Vec<u8> {
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
    // Type: executable. Machine: x86-64.
    put(&mut header, &[2, 62], 2);
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
    use std::io::Read;

    #[test]
    fn the_file_has_the_layout_of_an_elf_program() {
        let file = image();
        assert_eq!(file.len(), 64 + 56 + code().len() + TEXT.len());
        let entry = u64::from_le_bytes(file[24..32].try_into().unwrap());
        assert_eq!(entry, BASE + 120);
        // lea is 7 bytes and begins at 10: what it points to is the text.
        let text = 120 + 17 + usize::from(code()[13]);
        assert_eq!(&file[text..], TEXT);
    }

    #[test]
    fn every_method_runs_the_program_and_its_text_arrives() {
        let (mut read, write) = std::os::unix::net::UnixStream::pair().unwrap();
        let program = Program::with_output(File::from(std::os::fd::OwnedFd::from(write))).unwrap();
        for method in Method::ALL {
            program.run(method).unwrap();
            let mut text = [0; TEXT.len()];
            read.read_exact(&mut text).unwrap();
            assert_eq!(text, TEXT, "{method:?}");
        }
        drop(program);
        let mut rest = Vec::new();
        read.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }

    #[test]
    fn a_program_that_cannot_start_is_an_error_of_every_method() {
        let mut program = Program::make().unwrap();
        program.path = c"/no/such/program".into();
        for method in Method::ALL {
            let failure = program.run(method).unwrap_err();
            let text = match &failure {
                Failure::Wrong(text) | Failure::Unavailable(text) => text,
            };
            assert!(text.contains("127") || text.contains("No such file"), "{method:?}: {text}");
        }
    }
}
