//! File actions of posix_spawn that not every libc has, looked up once.

use std::ffi::{c_char, c_int};

use super::interface::function;

pub type FileActions = libc::posix_spawn_file_actions_t;
type AddChdir = unsafe extern "C" fn(*mut FileActions, *const c_char) -> c_int;
type AddClosefrom = unsafe extern "C" fn(*mut FileActions, c_int) -> c_int;

/// Actions that came with glibc 2.29 and 2.34.
#[derive(Clone, Copy, Debug)]
pub struct Extensions {
    pub add_chdir: Option<AddChdir>,
    pub add_closefrom: Option<AddClosefrom>,
}

impl Extensions {
    pub fn find() -> Extensions {
        // SAFETY: symbols of these names have these types in every libc that has them.
        unsafe {
            Extensions {
                add_chdir: function(c"posix_spawn_file_actions_addchdir_np"),
                add_closefrom: function(c"posix_spawn_file_actions_addclosefrom_np"),
            }
        }
    }
}
