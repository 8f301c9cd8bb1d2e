//! What a directory must be for backing files to be made in it (`ODFORK_IMAGE_DIR`). Pure: the
//! runtime and `odfork check` ask the kernel and judge alike.
//!
//! Files made there have no name, cannot be given one (`O_EXCL`) and are open to their owner only.
//! So nobody reaches them by the directory; the rules below keep others from replacing it, and the
//! file system from treating memory in another way than anonymous memory is treated.

use crate::abi::tmpfs;

/// How an unnamed file is opened in such a directory.
pub const OPEN_FLAGS: i32 = libc::O_TMPFILE | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
/// How the directory itself is opened.
pub const DIRECTORY_FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// What the kernel says of an open directory: `fstat`, `fstatfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// User id of its owner (`st_uid`).
    pub owner: u32,
    /// Its permission bits (`st_mode`).
    pub mode: u32,
    /// Type of its file system (`f_type`).
    pub kind: i64,
    /// Mount flags of its file system (`f_flags`).
    pub flags: i64,
    /// Size of its file system in blocks; 0 for a tmpfs without a limit.
    pub blocks: u64,
}

/// Why a directory is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objection {
    /// Its owner, not root nor this user, may put another in its place.
    Owner,
    /// So may everybody who writes there (it is not sticky).
    Writable,
    /// Reading memory could ask a disk, or another process (FUSE).
    FileSystem,
    /// Memory could not be made executable later.
    NoExec,
    /// Touching a page of a file could raise SIGBUS.
    Limited,
    /// A page written there is a page of 4 KB.
    SmallPages,
}

impl Facts {
    /// The first thing that speaks against it.
    pub fn objection(&self, user: u32) -> Option<Objection> {
        let others = libc::S_IWGRP | libc::S_IWOTH;
        if self.kind != tmpfs::MAGIC {
            Some(Objection::FileSystem)
        } else if self.owner != 0 && self.owner != user {
            Some(Objection::Owner)
        } else if self.mode & others != 0 && self.mode & libc::S_ISVTX == 0 {
            Some(Objection::Writable)
        } else if self.flags & tmpfs::ST_NOEXEC != 0 {
            Some(Objection::NoExec)
        } else if self.blocks != 0 {
            Some(Objection::Limited)
        } else {
            None
        }
    }
}

impl Objection {
    /// The error number in the statistics.
    pub const fn errno(self) -> i32 {
        match self {
            Objection::Owner | Objection::Writable => libc::EPERM,
            Objection::FileSystem => libc::EMEDIUMTYPE,
            Objection::NoExec => libc::ENOEXEC,
            Objection::Limited => libc::EDQUOT,
            Objection::SmallPages => libc::EOPNOTSUPP,
        }
    }

    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Objection::Owner => "it belongs neither to root nor to this user",
            Objection::Writable => "others may write there, and it is not sticky",
            Objection::FileSystem => "it is not on a tmpfs",
            Objection::NoExec => "it is mounted noexec",
            Objection::Limited => "its tmpfs has a size limit (mount it with size=0)",
            Objection::SmallPages => "no 2 MB page came (mount it with huge=always)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_against_a_directory() {
        let good = Facts { owner: 0, mode: 0o41777, kind: tmpfs::MAGIC, flags: 0, blocks: 0 };
        assert_eq!(good.objection(1000), None);
        assert_eq!(Facts { owner: 1000, mode: 0o40700, ..good }.objection(1000), None);
        let refused = [
            (Facts { owner: 7, ..good }, Objection::Owner),
            (Facts { mode: 0o40777, ..good }, Objection::Writable),
            (Facts { mode: 0o40775, ..good }, Objection::Writable),
            (Facts { kind: 0xef53, ..good }, Objection::FileSystem),
            (Facts { flags: tmpfs::ST_NOEXEC, ..good }, Objection::NoExec),
            (Facts { blocks: 1, ..good }, Objection::Limited),
        ];
        for (facts, why) in refused {
            assert_eq!(facts.objection(1000), Some(why));
            assert!(why.errno() > 0 && !why.words().is_empty());
        }
    }
}
