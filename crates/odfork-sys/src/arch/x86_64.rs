//! Instructions of x86-64 that enter the kernel, start tasks, change stacks, and move bytes.

use core::arch::asm;

/// # Safety
/// As for [`crate::raw`].
#[inline(always)]
pub unsafe fn enter(nr: i64, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the x86-64 Linux calling convention: number in rax, arguments in
    // rdi rsi rdx r10 r8 r9, rcx and r11 destroyed, memory clobbered (default).
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// # Safety
/// As for [`crate::clone_vfork`]; the call gives the task a stack.
#[inline(always)]
pub unsafe fn clone_into(
    [number, first, second]: [usize; 3],
    entry: extern "C" fn(usize) -> i32,
    arg: usize,
) -> isize {
    let ret: isize;
    // SAFETY: parent and child return from the same `syscall`; the child has
    // rax = 0 and rsp = the end of its stack and never leaves this block: it calls `entry`
    // and ends with exit_group. r12/r13 are copied to the child with all other
    // registers. The parent sees an ordinary system call.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "mov edi, eax",
            "mov eax, 231",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") number as isize => ret,
            in("rdi") first, in("rsi") second, in("rdx") 0usize,
            in("r10") 0usize, in("r8") 0usize,
            in("r12") arg, in("r13") entry,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    ret
}

#[inline(always)]
pub fn stack_pointer() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// # Safety
/// As for [`crate::call_on_stack`].
#[inline(always)]
pub unsafe fn call_on_stack(stack_top: usize, f: extern "C" fn(usize), arg: usize) {
    // SAFETY: the C calling convention: r12 survives the call and brings the caller's stack back;
    // what lies below the caller's stack pointer is not used (no `nostack`).
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {f}",
            "mov rsp, r12",
            top = in(reg) stack_top,
            f = in(reg) f,
            in("rdi") arg,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// # Safety
/// As for [`crate::copy`].
#[inline(always)]
pub unsafe fn copy(from: usize, to: usize, len: usize) {
    // SAFETY: passed on to the caller. Compilers and the ABI leave the direction forward.
    unsafe {
        asm!(
            "rep movsb", inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// As for [`crate::zero`].
#[inline(always)]
pub unsafe fn zero(at: usize, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        asm!(
            "rep stosb", inout("rcx") len => _, inout("rdi") at => _, in("al") 0u8,
            options(nostack, preserves_flags)
        );
    }
}
