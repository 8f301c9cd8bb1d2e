//! The agent's options: variables of the environment, read once while constructors run.
//!
//! Owns our own copy of the socket's path: programs write titles over the strings of their
//! environment.

use core::cell::UnsafeCell;
use core::ffi::CStr;

/// Path of the supervisor's socket; without it the library does nothing.
const SOCKET: &CStr = c"ODFORK_PAGE_SOCKET";

/// As long as an address can be.
const LONGEST: usize = 108;

struct Path(UnsafeCell<[u8; LONGEST]>);

// SAFETY: written while constructors run, only read afterwards.
unsafe impl Sync for Path {}

static PATH: Path = Path(UnsafeCell::new([0; LONGEST]));

/// The program has more rights than who started it, and the environment is theirs: nothing is read.
pub fn is_privileged() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Copies the socket's path; false when none is named. A path that is no address is kept as empty.
pub fn read_socket_path() -> bool {
    // SAFETY: the environment is not changed by anybody while constructors run.
    let path = unsafe { libc::getenv(SOCKET.as_ptr()) };
    if path.is_null() || is_privileged() {
        return false;
    }
    // SAFETY: a string of the environment; nobody else is here.
    unsafe {
        let path = CStr::from_ptr(path).to_bytes();
        if path.len() < LONGEST {
            (&mut *PATH.0.get())[..path.len()].copy_from_slice(path);
        }
    }
    true
}

/// A variable's value, when it is a number.
pub fn number(name: &CStr) -> Option<usize> {
    // SAFETY: as for the path.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string of the environment.
    unsafe { CStr::from_ptr(value) }.to_str().ok()?.parse().ok()
}

/// Empty: none was named, or one that is no address.
pub fn socket_path() -> &'static CStr {
    // SAFETY: nobody writes it any more.
    CStr::from_bytes_until_nul(unsafe { &*PATH.0.get() }).unwrap_or_default()
}
