//! Forks that run no handlers: `_Fork`, `clone`, and fork by its number. Their children wait for
//! all of their memory, too. So if both tasks of the pager are killed meanwhile, they end, and do
//! not read zeros. A child made by an instruction of the program's own is not seen.
//!
//! Runs in the program, also in handlers of signals.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};
use core::mem::offset_of;

use odfork_sys::abi::calls;
use odfork_sys::raw;

use super::untold;
use crate::next_symbol::NextSymbol;
use crate::{as_libc, set_errno};

/// Size of the first version of what clone3 is told.
const FIRST_ARGS: usize = 64;

pub static FORK: NextSymbol = NextSymbol::named(c"_Fork");

static CLONE: NextSymbol = NextSymbol::named(c"clone");

/// For the constructor: later, the loader's lock may be held.
pub fn init() {
    FORK.get();
    CLONE.get();
}

/// What a child of clone(2) begins with, on its own stack.
#[repr(align(16))]
struct Start(Work, *mut c_void);

type Work = extern "C" fn(*mut c_void) -> c_int;

extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: what `clone` put there.
    let Start(work, arg) = unsafe { start.cast::<Start>().read() };
    super::in_plain_child();
    work(arg)
}

/// clone(2): all seven arguments are passed on, whichever of them there are.
///
/// # Safety
/// As for clone(2).
#[no_mangle]
pub unsafe extern "C" fn clone(
    work: Option<Work>,
    stack: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    parent: usize,
    storage: usize,
    child: usize,
) -> c_int {
    type Clone = unsafe extern "C" fn(
        Option<Work>,
        *mut c_void,
        c_int,
        *mut c_void,
        usize,
        usize,
        usize,
    ) -> c_int;
    // SAFETY: the C library's function.
    let next = unsafe { core::mem::transmute::<usize, Clone>(CLONE.get()) };
    let is_copy = flags & libc::CLONE_VM == 0 && (super::is_active() || untold::is_needed());
    let Some(work) = work.filter(|_| is_copy && !stack.is_null()) else {
        // SAFETY: passed on to the caller.
        return unsafe { next(work, stack, flags, arg, parent, storage, child) };
    };
    if !untold::prepare() {
        return -1;
    }
    let start = (stack as usize - size_of::<Start>()) & !(align_of::<Start>() - 1);
    let start = start as *mut Start;
    // SAFETY: the top of the child's stack, where the C library writes, too; the rest is passed on.
    let made = unsafe {
        start.write(Start(work, arg));
        next(Some(begin), start.cast(), flags, start.cast(), parent, storage, child)
    };
    untold::finish();
    made
}

/// The same by another name of the C library: no frame of its own, so the arguments are where they
/// were.
///
/// # Safety
/// As for clone(2).
#[cfg(target_arch = "x86_64")]
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn __clone() -> c_int {
    naked_asm!("jmp {clone}", clone = sym clone)
}

/// _Fork(3).
///
/// # Safety
/// As for _Fork(3).
#[no_mangle]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    if !untold::prepare() {
        return -1;
    }
    // SAFETY: the C library's function of this type.
    let child = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn() -> libc::pid_t>(FORK.get())()
    };
    is_made(child == 0);
    child
}

fn is_made(is_child: bool) {
    match is_child {
        true => super::in_plain_child(),
        false => untold::finish(),
    }
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
        "jmp 5f",
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
        // With a stack of its own a child cannot be told that it has everything.
        "5: cmp byte ptr [rip + {untold}], 0",
        "je 3f",
        "mov rdi, {refused}",
        "jmp {fail}",
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
        untold = sym untold::IS_ON,
        refused = const -libc::ENOSYS,
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
    if !untold::prepare() {
        return -1;
    }
    // SAFETY: the program's own call.
    let child = unsafe { raw(number, [a, b, c, d, e, f]) };
    is_made(child == 0);
    as_libc(child) as c_long
}

unsafe extern "C" fn fail(answer: c_long) -> c_long {
    set_errno(-answer as c_int);
    -1
}
