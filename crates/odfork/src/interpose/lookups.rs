//! dlsym(3), dlvsym(3), dlopen(3), dlmopen(3): ways to the C library's functions that pass by the
//! wrappers. And dlclose(3), after which other code may lie where known code was.
//!
//! Owns what a program gets instead of the function that a wrapper stands before: the wrapper.
//! `dlsym` finds libc's own in libc's handle (Python's ctypes, Ruby's Fiddle) and, from a library
//! behind this one, with `RTLD_NEXT`. What is loaded with `RTLD_DEEPBIND`, or into a namespace of
//! its own, is bound to libc's without being asked: then memory is thawed, and stays so.
//!
//! The loader asks who called: from there `RTLD_NEXT` and `RTLD_DEFAULT` search, and `dlopen` finds
//! the caller's `$ORIGIN`. So these do not call the C library's functions but jump to them,
//! with the stack and the arguments as they were. Rust has no such jump before its version 1.88.

use core::arch::global_asm;
use core::ffi::{c_char, c_int, CStr};

use super::next::{dlsym as dlsym_of_libc, leads_to};
use super::symbols;
use crate::engine;

/// What the code below does: jumps, with the caller's arguments, or answers that.
#[repr(C)]
struct Way {
    /// Where to jump; 0: nowhere.
    goes_to: usize,
    answer: usize,
}

#[cfg(target_arch = "x86_64")]
macro_rules! jumps {
    ($($name:literal asks $ask:ident,)*) => {$(
        global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".globl ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "endbr64",
            "push rdi",
            "push rsi",
            "push rdx",
            ".cfi_adjust_cfa_offset 24",
            "mov rcx, [rsp + 24]",
            "call {ask}",
            "mov rcx, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -24",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "mov rax, rcx",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            ask = sym $ask,
        );
    )*};
}

#[cfg(target_arch = "aarch64")]
macro_rules! jumps {
    ($($name:literal asks $ask:ident,)*) => {$(
        global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".globl ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            ".cfi_startproc",
            // bti c
            "hint #34",
            "stp x29, x30, [sp, #-48]!",
            ".cfi_def_cfa_offset 48",
            ".cfi_offset x29, -48",
            ".cfi_offset x30, -40",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x3, x30",
            "bl {ask}",
            "mov x16, x0",
            "mov x17, x1",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            ".cfi_restore x30",
            ".cfi_restore x29",
            ".cfi_def_cfa_offset 0",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov x0, x17",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            ask = sym $ask,
        );
    )*};
}

jumps! {
    "dlsym" asks ask_symbol,
    "dlvsym" asks ask_version,
    "dlopen" asks ask_open,
    "dlmopen" asks ask_open_in,
    "dlclose" asks ask_close,
}

/// The compiler tells the linker which names of the shared library others may see. It does not know
/// those of the code above, but the linker takes names for patterns.
macro_rules! exports {
    ($($pattern:literal $function:ident,)*) => {$(
        const _: () = {
            extern "C" {
                fn $function();
            }
            #[export_name = $pattern]
            #[used]
            static EXPORTED: unsafe extern "C" fn() = $function;
        };
    )*};
}

exports! {
    "dlsy[m]" dlsym,
    "dlvsy[m]" dlvsym,
    "dlope[n]" dlopen,
    "dlmope[n]" dlmopen,
    "dlclos[e]" dlclose,
}

type Find = unsafe extern "C" fn(usize, *const c_char, *const c_char) -> usize;

const DEFAULT: usize = 0;
const NEXT: usize = usize::MAX;

/// The C library's dlsym, for which this library is the caller.
fn find(handle: usize, name: &CStr) -> usize {
    match dlsym_of_libc() {
        0 => 0,
        // SAFETY: of this type, but for the third argument, which it does not take.
        libcs => unsafe {
            core::mem::transmute::<usize, Find>(libcs)(handle, name.as_ptr(), core::ptr::null())
        },
    }
}

/// The next function of that name.
fn next(name: &CStr) -> usize {
    match find(NEXT, name) {
        // glibc before 2.34: loaded for a plug-in alone.
        0 => symbols::behind(name).unwrap_or(0),
        at => at,
    }
}

extern "C" fn ask_symbol(handle: usize, name: *const c_char, _: usize, caller: usize) -> Way {
    instead(next(c"dlsym"), (handle, name, core::ptr::null()), caller)
}

extern "C" fn ask_version(
    handle: usize,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Way {
    instead(next(c"dlvsym"), (handle, name, version), caller)
}

/// `next`: dlsym or dlvsym, of which a library behind this one may have its own.
fn instead(
    next: usize,
    (handle, name, version): (usize, *const c_char, *const c_char),
    caller: usize,
) -> Way {
    if next == 0 || name.is_null() || !engine::is_libcs(next) {
        return Way { goes_to: next, answer: 0 };
    }
    // SAFETY: one of the two.
    let find: Find = unsafe { core::mem::transmute(next) };
    // SAFETY: the caller's text.
    let text = unsafe { CStr::from_ptr(name) };
    // SAFETY: the caller's name and version; and a handle of its own, or this library's search.
    let found = |handle| unsafe { find(handle, name, version) };
    match wrapper((handle, text, !version.is_null()), caller, found) {
        Some(answer) => Way { goes_to: 0, answer },
        None => Way { goes_to: next, answer: 0 },
    }
}

/// The wrapper of that name, if what the program would get is the function it stands before.
fn wrapper(
    (handle, name, has_version): (usize, &CStr, bool),
    caller: usize,
    found: impl Fn(usize) -> usize,
) -> Option<usize> {
    if handle == DEFAULT && !has_version {
        return None;
    }
    let wrapper = symbols::own()?.function(name)?;
    let function = match handle {
        NEXT if engine::is_behind(caller) => found(NEXT),
        // The wrapper has no version: the loader would pass by it.
        NEXT if has_version => found(DEFAULT),
        NEXT => return None,
        _ => found(handle),
    };
    // A library behind this one need not give its function a version.
    let is_next = || {
        function == found(NEXT)
            && (!has_version || function == find(NEXT, name))
            && engine::is_libcs(function)
    };
    // A library that stands behind this one may look up what it goes on to: it would get what goes
    // on to itself.
    (function != 0 && is_next() && leads_to(name, function)).then_some(wrapper)
}

extern "C" fn ask_open(path: usize, flags: c_int) -> Way {
    before_loading(path, false, flags);
    Way { goes_to: next(c"dlopen"), answer: 0 }
}

extern "C" fn ask_open_in(namespace: isize, path: usize, flags: c_int) -> Way {
    /// LM_ID_BASE.
    const PROGRAM: isize = 0;
    before_loading(path, namespace != PROGRAM, flags);
    Way { goes_to: next(c"dlmopen"), answer: 0 }
}

extern "C" fn ask_close(_handle: usize) -> Way {
    engine::before_unloading();
    Way { goes_to: next(c"dlclose"), answer: 0 }
}

/// Code is about to be loaded; its calls may pass by the wrappers.
fn before_loading(path: usize, elsewhere: bool, flags: c_int) {
    // What is loaded already stays bound as it is; so does the program itself.
    let loads = path != 0 && flags & libc::RTLD_NOLOAD == 0;
    if loads {
        engine::before_loading();
    }
    if loads && (elsewhere || flags & libc::RTLD_DEEPBIND != 0) {
        engine::before_unseen_code();
    }
}
