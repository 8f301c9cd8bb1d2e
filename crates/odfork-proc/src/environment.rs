//! Variables that say where files are.

use std::ffi::OsString;

/// The value of a variable; none in a program that has more rights than whoever runs it (a
/// set-user-ID bit, file capabilities): the caller must not choose its files.
pub fn trusted(name: &str) -> Option<OsString> {
    // SAFETY: asks for a number.
    match unsafe { libc::getauxval(libc::AT_SECURE) } {
        0 => std::env::var_os(name),
        _ => None,
    }
}
