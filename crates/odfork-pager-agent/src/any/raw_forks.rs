//! Forks that run no handlers: `_Fork`, and fork by its number. Their children wait for all of
//! their memory, too. So if both tasks of the pager are killed meanwhile, they end, and do not read
//! zeros. A child made by an instruction of the program's own is not seen.
//!
//! Runs in the program, also in handlers of signals.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::mem::offset_of;

use odfork_sys::abi::calls;
use odfork_sys::raw;

use super::ORDER;
use crate::next_symbol::NextSymbol;
use crate::{as_libc, set_errno};

/// Size of the first version of what clone3 is told.
const FIRST_ARGS: usize = 64;

pub static FORK: NextSymbol = NextSymbol::named(c"_Fork");

/// For the constructor: later, the loader's lock may be held.
pub fn init() {
    FORK.get();
}

/// _Fork(3).
///
/// # Safety
/// As for _Fork(3).
#[no_mangle]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    // SAFETY: the C library's function of this type.
    let child = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn() -> libc::pid_t>(FORK.get())()
    };
    if child == 0 {
        // CHILD: nothing but a touch of a page and a system call.
        ORDER.gate.pass();
    }
    child
}

/// syscall(2), as the C library has it but for calls that copy this memory. No frame of its own:
/// a child with another stack returns through here. The other arguments are where they were.
///
/// # Safety
/// As for syscall(2).
#[cfg(target_arch = "x86_64")]
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        "cmp rdi, {fork}",
        "je {copy}",
        "cmp rdi, {clone}",
        "jne 2f",
        "test esi, {shared}",
        "jnz 3f",
        "test rdx, rdx",
        "jz {copy}",
        "jmp 3f",
        "2: cmp rdi, {clone3}",
        "jne 3f",
        "test rsi, rsi",
        "jz 3f",
        "cmp rdx, {least}",
        "jb 3f",
        "test dword ptr [rsi], {shared}",
        "jnz 3f",
        "cmp qword ptr [rsi + {stack}], 0",
        "je {copy}",
        "3: mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "ret",
        "4: mov rdi, rax",
        "jmp {fail}",
        fork = const calls::SYS_fork,
        clone = const libc::SYS_clone,
        clone3 = const libc::SYS_clone3,
        shared = const libc::CLONE_VM,
        least = const FIRST_ARGS,
        stack = const offset_of!(libc::clone_args, stack),
        copy = sym copy,
        fail = sym fail,
    )
}

unsafe extern "C" fn copy(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program's own call.
    let child = unsafe { raw(number, [a, b, c, d, e, f]) };
    if child == 0 {
        // CHILD: as above.
        ORDER.gate.pass();
    }
    as_libc(child) as c_long
}

unsafe extern "C" fn fail(answer: c_long) -> c_long {
    set_errno(-answer as c_int);
    -1
}
