//! The C library's functions that open files or change their flags: a paged program gets no
//! O_DIRECT reads (see `pins`).

use core::ffi::{c_char, c_int};

use crate::next_symbol::NextSymbol;
use crate::pins;

// Variadic in C: on x86-64 an argument that was not passed is an unused register.
type Open = unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int;
type Control = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;

macro_rules! open {
    ($($name:ident $text:literal),*) => { $(
        /// open(2).
        ///
        /// # Safety
        /// As for open(2).
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            path: *const c_char,
            flags: c_int,
            mode: libc::mode_t,
        ) -> c_int {
            static NEXT: NextSymbol = NextSymbol::named($text);
            // SAFETY: the C library's function of this type.
            unsafe {
                let next = core::mem::transmute::<usize, Open>(NEXT.get());
                next(path, pins::without_direct(flags), mode)
            }
        }
    )* };
}

macro_rules! open_at {
    ($($name:ident $text:literal),*) => { $(
        /// openat(2).
        ///
        /// # Safety
        /// As for openat(2).
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            folder: c_int,
            path: *const c_char,
            flags: c_int,
            mode: libc::mode_t,
        ) -> c_int {
            static NEXT: NextSymbol = NextSymbol::named($text);
            // SAFETY: the C library's function of this type.
            unsafe {
                let next = core::mem::transmute::<usize, OpenAt>(NEXT.get());
                next(folder, path, pins::without_direct(flags), mode)
            }
        }
    )* };
}

macro_rules! control {
    ($($name:ident $text:literal),*) => { $(
        /// fcntl(2).
        ///
        /// # Safety
        /// As for fcntl(2).
        #[no_mangle]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
            static NEXT: NextSymbol = NextSymbol::named($text);
            let argument = match command {
                libc::F_SETFL => {
                    pins::without_direct(argument as c_int & !libc::O_ACCMODE) as usize
                }
                _ => argument,
            };
            // SAFETY: the C library's function of this type.
            unsafe {
                let next = core::mem::transmute::<usize, Control>(NEXT.get());
                next(fd, command, argument)
            }
        }
    )* };
}

open!(open c"open", open64 c"open64", __open_2 c"__open_2", __open64_2 c"__open64_2");
open_at!(
    openat c"openat", openat64 c"openat64",
    __openat_2 c"__openat_2", __openat64_2 c"__openat64_2"
);
control!(fcntl c"fcntl", fcntl64 c"fcntl64");
