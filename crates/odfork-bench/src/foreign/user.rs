//! Who a server runs as.

use std::ffi::CString;
use std::io;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub id: u32,
    pub group: u32,
}

impl User {
    /// The user of that name.
    pub fn named(name: &str) -> Result<User, String> {
        let missing = || format!("there is no user {name:?}");
        let text = CString::new(name).map_err(|_| missing())?;
        // SAFETY: a string that ends; only one thread of ours asks, and what it gets is copied.
        let entry = unsafe { libc::getpwnam(text.as_ptr()).as_ref() }.ok_or_else(missing)?;
        Ok(User { name: name.into(), id: entry.pw_uid, group: entry.pw_gid })
    }

    /// CHILD: three system calls.
    pub fn become_it(&self) -> io::Result<()> {
        // SAFETY: no pointers but null.
        let refused = unsafe {
            libc::setgroups(0, std::ptr::null()) != 0
                || libc::setgid(self.group) != 0
                || libc::setuid(self.id) != 0
        };
        match refused {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(User::named("root").map(|user| user.id), Ok(0));
        assert!(User::named("no such user").is_err() && User::named("a\0b").is_err());
    }
}
