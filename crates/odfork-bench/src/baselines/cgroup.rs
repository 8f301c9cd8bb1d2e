//! A control group that bounds (or only counts) the memory of its processes; version 1 or 2,
//! whichever is mounted.
//!
//! It is made below this process's own group, or the nearest parent that may have children.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::journal::{Cleanup, Journal, Undo};
use super::{read, write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group below which memory groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    version: Version,
    folder: PathBuf,
}

/// What a group does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Counts only.
    None,
    /// At most so many bytes; when the kernel cannot make room fast enough, it kills.
    Kill(u64),
    /// At most so many bytes; then processes wait (version 1: no OOM killer; 2: `memory.high`).
    Wait(u64),
}

/// A group; dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Group {
    version: Version,
    path: PathBuf,
    _cleanup: Cleanup,
}

impl Parent {
    /// Looks for the memory controller.
    pub fn find() -> Result<Parent, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let parents = candidates(&mounts, &own);
        if parents.is_empty() {
            return Err("no memory controller of control groups is mounted".into());
        }
        parents.into_iter().find(Parent::is_usable).ok_or_else(|| {
            "no control group below which a memory limit can be set; run it as root, or in a \
             delegated group (systemd-run --user --scope -p Delegate=yes)"
                .into()
        })
    }

    fn is_usable(&self) -> bool {
        if self.version == Version::Two {
            let control = self.folder.join("cgroup.subtree_control");
            let has = || controls_memory(&control);
            if !has() && (fs::write(&control, "+memory").is_err() || !has()) {
                return false;
            }
        }
        rustix::fs::access(&self.folder, rustix::fs::Access::WRITE_OK).is_ok()
    }

    /// A new group.
    pub fn make(&self, journal: &Journal, name: &str, limit: Limit) -> Result<Group, String> {
        let path = self.folder.join(format!("odfork-{}-{name}", std::process::id()));
        let cleanup = journal.record(Undo::RemoveGroup(path.clone()));
        fs::create_dir(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let group = Group { version: self.version, path, _cleanup: cleanup };
        let set = |name: &str, value: u64| write(&group.path.join(name), &value.to_string());
        match (limit, self.version) {
            (Limit::None, _) => {}
            (Limit::Kill(bytes), Version::One) => set("memory.limit_in_bytes", bytes)?,
            (Limit::Kill(bytes), Version::Two) => set("memory.max", bytes)?,
            (Limit::Wait(bytes), Version::One) => {
                set("memory.limit_in_bytes", bytes)?;
                set("memory.oom_control", 1)?;
            }
            (Limit::Wait(bytes), Version::Two) => set("memory.high", bytes)?,
        }
        Ok(group)
    }
}

fn controls_memory(file: &Path) -> bool {
    read(file).split(' ').any(|word| word == "memory")
}

/// In the order they are tried: the own group, its parents, the root.
fn candidates(mounts: &str, own: &str) -> Vec<Parent> {
    let mut parents = Vec::new();
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, mount, kind, options, ..] = words[..] else { continue };
        let mount = Path::new(mount);
        let version = match kind {
            "cgroup" if options.split(',').any(|word| word == "memory") => Version::One,
            "cgroup2" if controls_memory(&mount.join("cgroup.controllers")) => Version::Two,
            _ => continue,
        };
        let below = Path::new(own_path(own, version)).ancestors();
        let folders = below.map(|path| mount.join(path.strip_prefix("/").unwrap_or(path)));
        parents.extend(folders.map(|folder| Parent { version, folder }));
    }
    parents
}

/// The path of this process's group in the hierarchy with the memory controller.
fn own_path(own: &str, version: Version) -> &str {
    let mut paths = own.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let fits = match version {
            Version::One => controllers.split(',').any(|word| word == "memory"),
            Version::Two => number == "0",
        };
        fits.then_some(path)
    });
    paths.next().unwrap_or("/")
}

impl Group {
    fn file(&self, one: &str, two: &str) -> PathBuf {
        self.path.join(if self.version == Version::One { one } else { two })
    }

    /// Makes `command` start inside the group.
    pub fn enter(&self, command: &mut Command) -> Result<(), String> {
        let path = self.path.join("cgroup.procs");
        let file = File::options().write(true).open(&path);
        let file = file.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        // SAFETY: CHILD: one write to a descriptor opened before; no heap, no locks.
        unsafe { command.pre_exec(move || Ok(rustix::io::write(&file, b"0").map(drop)?)) };
        Ok(())
    }

    /// The most memory charged to it so far, page cache included; None: this kernel does not say.
    pub fn peak(&self) -> Option<u64> {
        read(&self.file("memory.max_usage_in_bytes", "memory.peak")).parse().ok()
    }

    /// Anonymous and shared memory of it now, in bytes: backing files count, page cache of files on
    /// disks does not. 0: this kernel does not say.
    pub fn held(&self) -> u64 {
        let names = match self.version {
            Version::One => ["total_rss ", "total_shmem "],
            Version::Two => ["anon ", "shmem "],
        };
        let text = read(&self.path.join("memory.stat"));
        let number = |line: &str| -> Option<u64> {
            names.iter().find_map(|name| line.strip_prefix(name)?.trim().parse().ok())
        };
        text.lines().filter_map(number).sum()
    }

    /// Processes killed because it had no memory left.
    pub fn kills(&self) -> u64 {
        let text = read(&self.file("memory.oom_control", "memory.events"));
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    pub fn processes(&self) -> Vec<u32> {
        let text = read(&self.path.join("cgroup.procs"));
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_comes_before_the_root() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\nproc /proc proc rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let own = "5:cpu:/other\n4:memory:/a/b\n0::/unified\n";
        let folders: Vec<PathBuf> =
            candidates(mounts, own).into_iter().map(|parent| parent.folder).collect();
        let expected: Vec<PathBuf> =
            ["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]
                .map(PathBuf::from)
                .into();
        assert_eq!(folders, expected);
        assert_eq!(own_path(own, Version::Two), "/unified");
        assert!(candidates("proc /proc proc rw 0 0\n", own).is_empty());
    }
}
