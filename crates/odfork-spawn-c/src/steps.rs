//! The steps of starting a program, as numbers and names for C.
//!
//! Owns the constants and the names as strings of C. What a step is, and its number, is said in the
//! crate odfork-spawn; the build stops when a number here is another. The comments are the text of
//! odfspawn.h.

use core::ffi::{c_char, c_int};

use odfork_spawn::Step;

/// Reading what was asked for: strings with zero bytes, a descriptor named twice.
pub const ODF_STEP_REQUEST: c_int = 1;
/// Opening `/dev/null` or making a pipe.
pub const ODF_STEP_PIPE: c_int = 2;
/// Memory for the child's stack.
pub const ODF_STEP_STACK: c_int = 3;
/// Making the process (`clone3`, `clone`).
pub const ODF_STEP_CLONE: c_int = 4;
/// Signal handlers and default signals.
pub const ODF_STEP_SIGNALS: c_int = 5;
/// Joining the cgroup.
pub const ODF_STEP_CGROUP: c_int = 6;
/// A session of its own (`setsid`).
pub const ODF_STEP_SESSION: c_int = 7;
/// The process group (`setpgid`).
pub const ODF_STEP_PROCESS_GROUP: c_int = 8;
/// Putting descriptors in their places.
pub const ODF_STEP_DESCRIPTORS: c_int = 9;
/// The controlling terminal, or its foreground group.
pub const ODF_STEP_TERMINAL: c_int = 10;
/// Closing all other descriptors.
pub const ODF_STEP_CLOSE_OTHERS: c_int = 11;
/// Resource limits.
pub const ODF_STEP_LIMITS: c_int = 12;
/// Supplementary groups.
pub const ODF_STEP_GROUPS: c_int = 13;
/// The group.
pub const ODF_STEP_GID: c_int = 14;
/// The user.
pub const ODF_STEP_UID: c_int = 15;
/// `no_new_privs`.
pub const ODF_STEP_NO_NEW_PRIVILEGES: c_int = 16;
/// The working directory.
pub const ODF_STEP_DIRECTORY: c_int = 17;
/// The signal at the parent's death.
pub const ODF_STEP_PARENT_DEATH: c_int = 18;
/// The signal mask.
pub const ODF_STEP_SIGNAL_MASK: c_int = 19;
/// Executing the program.
pub const ODF_STEP_EXEC: c_int = 20;
/// The program is there, but not the interpreter it names (`#!` line or ELF).
pub const ODF_STEP_INTERPRETER: c_int = 21;

const NUMBERS: [(c_int, Step); Step::ALL.len()] = [
    (ODF_STEP_REQUEST, Step::Request),
    (ODF_STEP_PIPE, Step::Pipe),
    (ODF_STEP_STACK, Step::Stack),
    (ODF_STEP_CLONE, Step::Clone),
    (ODF_STEP_SIGNALS, Step::Signals),
    (ODF_STEP_CGROUP, Step::Cgroup),
    (ODF_STEP_SESSION, Step::Session),
    (ODF_STEP_PROCESS_GROUP, Step::ProcessGroup),
    (ODF_STEP_DESCRIPTORS, Step::Descriptors),
    (ODF_STEP_TERMINAL, Step::Terminal),
    (ODF_STEP_CLOSE_OTHERS, Step::CloseOthers),
    (ODF_STEP_LIMITS, Step::Limits),
    (ODF_STEP_GROUPS, Step::Groups),
    (ODF_STEP_GID, Step::Gid),
    (ODF_STEP_UID, Step::Uid),
    (ODF_STEP_NO_NEW_PRIVILEGES, Step::NoNewPrivileges),
    (ODF_STEP_DIRECTORY, Step::Directory),
    (ODF_STEP_PARENT_DEATH, Step::ParentDeath),
    (ODF_STEP_SIGNAL_MASK, Step::SignalMask),
    (ODF_STEP_EXEC, Step::Exec),
    (ODF_STEP_INTERPRETER, Step::Interpreter),
];

const _: () = {
    let mut i = 0;
    while i < NUMBERS.len() {
        assert!(NUMBERS[i].0 == NUMBERS[i].1 as c_int && NUMBERS[i].0 == i as c_int + 1);
        i += 1;
    }
};

/// The name of a step (`exec`, `descriptors`), `none` for 0, `unknown` for any other number. A
/// constant string, never freed.
#[no_mangle]
pub extern "C" fn odf_step_name(step: c_int) -> *const c_char {
    match usize::try_from(step) {
        Ok(0) => c"none".as_ptr(),
        Ok(step) => NAMES.get(step - 1).map_or(c"unknown".as_ptr(), |name| name.as_ptr().cast()),
        Err(_) => c"unknown".as_ptr(),
    }
}

const fn with_zero(text: &str) -> [u8; 24] {
    let (mut out, bytes, mut i) = ([0u8; 24], text.as_bytes(), 0);
    assert!(bytes.len() < out.len());
    while i < bytes.len() {
        out[i] = bytes[i];
        i += 1;
    }
    out
}

static NAMES: [[u8; 24]; Step::ALL.len()] = {
    let mut all = [[0u8; 24]; Step::ALL.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = with_zero(Step::ALL[i].name());
        i += 1;
    }
    all
};
