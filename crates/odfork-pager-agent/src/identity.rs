//! The C library's functions that change users, groups and capabilities: the worker thread follows.
//!
//! To the kernel these belong to each thread. The C library changes them in the threads it knows;
//! it does not know the worker, which would keep the rights that the program dropped.

use core::ffi::{c_char, c_int, c_void};

use libc::{gid_t, size_t, uid_t};

use crate::next_symbol::NextSymbol;
use crate::worker;

macro_rules! followed {
    ($($name:ident $text:literal ($($argument:ident: $kind:ty),*);)*) => { $(
        /// As in the C library.
        ///
        /// # Safety
        /// As in the C library.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            static NEXT: NextSymbol = NextSymbol::named($text);
            // SAFETY: the C library's function of this type.
            let answer = unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> c_int>(
                    NEXT.get(),
                )($($argument),*)
            };
            if answer == 0 {
                worker::follow_credentials();
            }
            answer
        }
    )* };
}

followed! {
    setuid c"setuid" (user: uid_t);
    seteuid c"seteuid" (user: uid_t);
    setreuid c"setreuid" (real: uid_t, effective: uid_t);
    setresuid c"setresuid" (real: uid_t, effective: uid_t, saved: uid_t);
    setgid c"setgid" (group: gid_t);
    setegid c"setegid" (group: gid_t);
    setregid c"setregid" (real: gid_t, effective: gid_t);
    setresgid c"setresgid" (real: gid_t, effective: gid_t, saved: gid_t);
    setgroups c"setgroups" (count: size_t, list: *const gid_t);
    initgroups c"initgroups" (user: *const c_char, group: gid_t);
    capset c"capset" (header: *mut c_void, data: *const c_void);
}
