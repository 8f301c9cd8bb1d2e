//! The guest's initial file system: a cpio archive (format "newc") in memory, with the first
//! process and its orders.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// An archive being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entry(name, 0o100_000 | mode, content);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let name_size = name.len() as u32 + 1;
        // inode, mode, uid, gid, links, time, size, device (2), special device (2), size of the
        // name, checksum
        let fields =
            [self.entries, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name_size, 0];
        let mut head = String::from("070701");
        for field in fields {
            let _ = write!(head, "{field:08x}");
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while self.bytes.len() % 4 != 0 {
            self.bytes.push(0);
        }
    }
}

/// Words with a zero byte after each, as the guest's first process reads them.
pub fn nul_terminated(list: &[OsString]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in list {
        bytes.extend_from_slice(word.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_reads_it_back() {
        let mut archive = Archive::default();
        archive.folder("session");
        archive.file("session/arguments", 0o644, &nul_terminated(&["echo".into(), "a b".into()]));
        archive.file("init", 0o755, b"binary");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(9).any(|part| part == b"echo\0a b\0"));
        let folder = tempfile::tempdir().unwrap();
        let started = Command::new("cpio")
            .args(["-id", "--quiet"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn();
        let Ok(mut cpio) = started else {
            eprintln!("SKIPPED cpio_reads_it_back: cpio is not installed");
            return;
        };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(cpio.wait().unwrap().success());
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(
            (read("init"), read("session/arguments")),
            (b"binary".into(), b"echo\0a b\0".into())
        );
    }
}
