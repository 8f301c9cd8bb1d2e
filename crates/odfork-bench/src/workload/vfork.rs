//! vfork and exec in one go, in assembly.
//!
//! Owns the instructions of each architecture. libc's vfork returns twice, which no Rust function
//! may see. Here the child never leaves the assembly between the two system calls and uses neither
//! the stack nor memory it would have to give back, so that sharing both with its waiting parent is
//! harmless.

use std::ffi::c_char;

/// Exit status of a child that could not become the program, as shells have it.
pub(super) const NOT_STARTED: libc::c_int = 127;

/// Number of the child, which has `output` as its standard output and executes the file; or a
/// negative error number.
///
/// # Safety
/// All pointers are valid until the child has executed the file or is gone; arguments and
/// environment end with null.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn vfork_and_exec(
    output: i64,
    path: *const c_char,
    arguments: *const *mut c_char,
    environ: *const *mut c_char,
) -> i64 {
    let pid: i64;
    // SAFETY: see above. rdi and rsi are the child's own registers.
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
            in("r8") output,
            in("r9") path,
            in("r10") arguments,
            in("rdx") environ,
            lateout("rax") pid,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    pid
}

/// The same.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn vfork_and_exec(
    output: i64,
    path: *const c_char,
    arguments: *const *mut c_char,
    environ: *const *mut c_char,
) -> i64 {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let pid: i64;
    // SAFETY: see above. x0 to x2 are the child's own registers.
    unsafe {
        std::arch::asm!(
            "mov x8, {clone}",
            "svc #0",
            "cbnz x0, 2f",
            // CHILD: dup3(output, 1, 0).
            "mov x0, x9",
            "mov x1, #1",
            "mov x2, #0",
            "mov x8, {dup3}",
            "svc #0",
            // CHILD: execve(path, arguments, environ).
            "mov x0, x10",
            "mov x1, x11",
            "mov x2, x12",
            "mov x8, {execve}",
            "svc #0",
            // CHILD: that failed.
            "mov x0, {not_started}",
            "mov x8, {exit}",
            "svc #0",
            "2:",
            clone = const libc::SYS_clone,
            dup3 = const libc::SYS_dup3,
            execve = const libc::SYS_execve,
            exit = const libc::SYS_exit,
            not_started = const NOT_STARTED,
            inlateout("x0") i64::from(flags) => pid,
            in("x1") 0,
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
            in("x9") output,
            in("x10") path,
            in("x11") arguments,
            in("x12") environ,
            out("x8") _,
            options(nostack),
        );
    }
    pid
}
