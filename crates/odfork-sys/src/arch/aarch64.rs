//! Instructions of aarch64 that enter the kernel, start tasks, change stacks, and move bytes.

use core::arch::asm;

/// # Safety
/// As for [`crate::raw`].
#[inline(always)]
pub unsafe fn enter(nr: i64, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the aarch64 Linux calling convention: number in x8, arguments in x0 to x5, the
    // answer in x0, no other register changed, memory clobbered (default).
    unsafe {
        asm!("svc #0", in("x8") nr, inlateout("x0") a[0] => ret,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack));
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
    // SAFETY: parent and child return from the same `svc`; the child has x0 = 0 and
    // sp = the end of its stack and never leaves this block: it calls `entry` and ends with
    // exit_group. x20/x21 are copied to the child with all other registers. The parent sees an
    // ordinary system call.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "mov x8, #94",
            "svc #0",
            "brk #1",
            "2:",
            in("x8") number, inlateout("x0") first => ret,
            in("x1") second, in("x2") 0usize, in("x3") 0usize, in("x4") 0usize,
            in("x20") arg, in("x21") entry,
        );
    }
    ret
}

#[inline(always)]
pub fn stack_pointer() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// # Safety
/// As for [`crate::call_on_stack`].
#[inline(always)]
pub unsafe fn call_on_stack(stack_top: usize, f: extern "C" fn(usize), arg: usize) {
    // SAFETY: the C calling convention: x20 survives the call and brings the caller's stack back;
    // what lies below the caller's stack pointer is not used (no `nostack`).
    unsafe {
        asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {f}",
            "mov sp, x20",
            top = in(reg) stack_top,
            f = in(reg) f,
            in("x0") arg,
            out("x20") _,
            clobber_abi("C"),
        );
    }
}

/// # Safety
/// As for [`crate::copy`].
#[inline(always)]
pub unsafe fn copy(from: usize, to: usize, len: usize) {
    // SAFETY: passed on to the caller; 16 bytes at a time, then what is left.
    unsafe {
        asm!(
            "2:", "subs {len}, {len}, #16", "b.lo 3f",
            "ldp {a}, {b}, [{from}], #16", "stp {a}, {b}, [{to}], #16", "b 2b",
            "3:", "adds {len}, {len}, #16", "b.eq 5f",
            "4:", "ldrb {a:w}, [{from}], #1", "strb {a:w}, [{to}], #1",
            "subs {len}, {len}, #1", "b.ne 4b",
            "5:",
            from = inout(reg) from => _, to = inout(reg) to => _, len = inout(reg) len => _,
            a = out(reg) _, b = out(reg) _,
            options(nostack)
        );
    }
}

/// # Safety
/// As for [`crate::zero`].
#[inline(always)]
pub unsafe fn zero(at: usize, len: usize) {
    // SAFETY: passed on to the caller; 16 bytes at a time, then what is left.
    unsafe {
        asm!(
            "2:", "subs {len}, {len}, #16", "b.lo 3f",
            "stp xzr, xzr, [{to}], #16", "b 2b",
            "3:", "adds {len}, {len}, #16", "b.eq 5f",
            "4:", "strb wzr, [{to}], #1", "subs {len}, {len}, #1", "b.ne 4b",
            "5:",
            to = inout(reg) at => _, len = inout(reg) len => _,
            options(nostack)
        );
    }
}
