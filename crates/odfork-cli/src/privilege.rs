//! Whether executing a file changes who the process is, so that the loader runs in secure mode and
//! ignores LD_PRELOAD.
//!
//! Follows what the kernel does at execve (capability set-up in 6.x): secure mode means that the
//! new effective user or group is not the real one, or that somebody who is not root gains
//! capabilities from the file. Security modules may ask for secure mode as well; that cannot be
//! known from outside, and the program then merely runs without the library.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{getxattr, statvfs, StatVfsMountFlags};
use rustix::process::{getegid, geteuid, getgid, getuid};
use rustix::thread::{capability_is_in_bounding_set, no_new_privs, CapabilitySet};

const SETUID: u32 = 0o4000;
/// Set-group-ID counts only with group execute; without it the bit once meant mandatory locking.
const SETGID_AND_EXECUTE: u32 = 0o2010;

/// What the file gives, and the loader's secure mode comes from.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Privilege {
    User(u32),
    Group(u32),
    Capabilities,
    /// The launcher itself already runs with another effective identity.
    Inherited,
}

/// The identity of the process that is about to exec.
#[derive(Clone, Copy)]
struct Identity {
    uid: u32,
    euid: u32,
    gid: u32,
    egid: u32,
}

/// The reason for secure mode, or None when LD_PRELOAD will be heeded.
pub fn gained(path: &Path) -> Option<Privilege> {
    let about = path.metadata().ok()?;
    let who = Identity {
        uid: getuid().as_raw(),
        euid: geteuid().as_raw(),
        gid: getgid().as_raw(),
        egid: getegid().as_raw(),
    };
    let heeded = !no_new_privs().unwrap_or(false) && !mounted_nosuid(path);
    let mode = if heeded { about.mode() } else { 0 };
    identity_change(who, mode, about.uid(), about.gid()).or_else(|| {
        let gains = heeded
            && who.uid != 0
            && file_capabilities(path).is_some_and(|bytes| grants(&bytes, in_bounds));
        gains.then_some(Privilege::Capabilities)
    })
}

fn identity_change(who: Identity, mode: u32, owner: u32, group: u32) -> Option<Privilege> {
    let setuid = mode & SETUID != 0;
    let setgid = mode & SETGID_AND_EXECUTE == SETGID_AND_EXECUTE;
    let euid = if setuid { owner } else { who.euid };
    let egid = if setgid { group } else { who.egid };
    if setuid && euid != who.uid {
        Some(Privilege::User(owner))
    } else if setgid && egid != who.gid {
        Some(Privilege::Group(group))
    } else if euid != who.uid || egid != who.gid {
        Some(Privilege::Inherited)
    } else {
        None
    }
}

fn mounted_nosuid(path: &Path) -> bool {
    statvfs(path).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOSUID))
}

fn file_capabilities(path: &Path) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut value = [0u8; 64];
    let length = getxattr(path.as_c_str(), c"security.capability", &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

/// Reads the kernel's `vfs_cap_data`: a word of version and flags, then pairs of permitted and
/// inheritable masks, all little-endian. True when capabilities come out of it: the effective flag
/// is set, or a permitted one is in bounds.
fn grants(value: &[u8], in_bounds: impl Fn(u64) -> bool) -> bool {
    const EFFECTIVE: u32 = 1;
    let word = |index: usize| {
        value
            .get(index * 4..index * 4 + 4)
            .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let permitted = u64::from(word(1)) | u64::from(word(3)) << 32;
    word(0) & EFFECTIVE != 0 || in_bounds(permitted)
}

fn in_bounds(permitted: u64) -> bool {
    let known = (0..64).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    known
        .filter(|capability| capability.bits() & permitted != 0)
        .any(|capability| capability_is_in_bounding_set(capability).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Identity = Identity { uid: 1000, euid: 1000, gid: 100, egid: 100 };

    #[test]
    fn identity_counts_only_when_it_changes() {
        assert_eq!(identity_change(USER, 0o755, 0, 0), None);
        assert_eq!(identity_change(USER, 0o4755, 0, 0), Some(Privilege::User(0)));
        assert_eq!(identity_change(USER, 0o4755, 1000, 0), None);
        assert_eq!(identity_change(USER, 0o2755, 0, 5), Some(Privilege::Group(5)));
        assert_eq!(identity_change(USER, 0o2745, 0, 5), None, "no group execute");
        assert_eq!(identity_change(USER, 0o2755, 0, 100), None);
    }

    #[test]
    fn a_launcher_with_two_identities_is_secure_already() {
        let half = Identity { euid: 0, ..USER };
        assert_eq!(identity_change(half, 0o755, 7, 7), Some(Privilege::Inherited));
        assert_eq!(identity_change(half, 0o4755, 1000, 7), None, "set back to the real user");
    }

    #[test]
    fn capability_attributes() {
        let attribute = |flags: u32, permitted: u32| {
            let mut bytes = (0x0200_0000 | flags).to_le_bytes().to_vec();
            bytes.extend_from_slice(&permitted.to_le_bytes());
            bytes.resize(20, 0);
            bytes
        };
        assert!(grants(&attribute(1, 0), |_| false));
        assert!(grants(&attribute(0, 1 << 13), |mask| mask == 1 << 13));
        assert!(!grants(&attribute(0, 1 << 13), |_| false));
        assert!(!grants(&[], |mask| mask != 0));
    }
}
