//! A control group that bounds (or only counts) the memory of the processes in it; version 1 or 2, whatever is mounted.
//!
//! It is made beside this process's own group, or at the root when that one may not have children.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ledger::{Debt, Shared, Undo};
use super::{read, write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where memory groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    version: Version,
    folder: PathBuf,
}

/// What a group does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Counts only.
    None,
    /// At most so many bytes; when the kernel cannot make room fast enough it kills, as it does by default.
    Kill(u64),
    /// At most so many bytes; then processes wait for room (version 1: no OOM killer; version 2: `memory.high`).
    Wait(u64),
}

/// A group; dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Group {
    version: Version,
    path: PathBuf,
    _debt: Debt,
}

impl Place {
    /// Looks for the memory controller.
    ///
    /// # Errors
    /// One line: no controller, or no right to make a group.
    pub fn find() -> Result<Place, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let places = candidates(&mounts, &own);
        if places.is_empty() {
            return Err("no memory controller of control groups is mounted".into());
        }
        places.into_iter().find(Place::is_usable).ok_or_else(|| {
            "no control group below which a memory limit can be set; run it as root, or in a delegated group (systemd-run --user --scope -p Delegate=yes)".into()
        })
    }

    fn is_usable(&self) -> bool {
        if self.version == Version::Two {
            let control = self.folder.join("cgroup.subtree_control");
            let has = || read(&control).split(' ').any(|word| word == "memory");
            if !has() && (fs::write(&control, "+memory").is_err() || !has()) {
                return false;
            }
        }
        let name = CString::new(self.folder.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: a valid path.
        unsafe { libc::access(name.as_ptr(), libc::W_OK) == 0 }
    }

    /// A new group.
    ///
    /// # Errors
    /// It cannot be made or bounded: one line.
    pub fn make(&self, ledger: &Shared, name: &str, bound: Bound) -> Result<Group, String> {
        let path = self.folder.join(format!("odfork-{}-{name}", std::process::id()));
        let debt = ledger.owe(Undo::RemoveGroup(path.clone()));
        fs::create_dir(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let group = Group { version: self.version, path, _debt: debt };
        let set =
            |one: &str, two: &str, value: u64| write(&group.file(one, two), &value.to_string());
        match (bound, self.version) {
            (Bound::None, _) => {}
            (Bound::Kill(bytes), _) => set("memory.limit_in_bytes", "memory.max", bytes)?,
            (Bound::Wait(bytes), Version::One) => {
                set("memory.limit_in_bytes", "", bytes)?;
                set("memory.oom_control", "", 1)?;
            }
            (Bound::Wait(bytes), Version::Two) => set("", "memory.high", bytes)?,
        }
        Ok(group)
    }
}

/// Places in the order they are tried: the own group, its parents, the root.
fn candidates(mounts: &str, own: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, folder, kind, options, ..] = words[..] else { continue };
        let version = match kind {
            "cgroup" if options.split(',').any(|word| word == "memory") => Version::One,
            "cgroup2" if Path::new(folder).join("cgroup.controllers").exists() => {
                if !read(&Path::new(folder).join("cgroup.controllers"))
                    .split(' ')
                    .any(|w| w == "memory")
                {
                    continue;
                }
                Version::Two
            }
            _ => continue,
        };
        let below = own_path(own, version);
        let mut inner = Some(Path::new(below));
        while let Some(path) = inner {
            let path_below = path.strip_prefix("/").unwrap_or(path);
            places.push(Place { version, folder: Path::new(folder).join(path_below) });
            inner = path.parent();
        }
    }
    places
}

/// The path of this process's group in the hierarchy with the memory controller.
fn own_path(own: &str, version: Version) -> &str {
    own.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let fits = match version {
                Version::One => controllers.split(',').any(|word| word == "memory"),
                Version::Two => number == "0",
            };
            fits.then_some(path)
        })
        .next()
        .unwrap_or("/")
}

impl Group {
    fn file(&self, one: &str, two: &str) -> PathBuf {
        self.path.join(if self.version == Version::One { one } else { two })
    }

    /// Makes `command` start inside the group.
    pub fn enter(&self, command: &mut Command) -> Result<(), String> {
        let path = self.path.join("cgroup.procs");
        let file = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: CHILD: open, write, close of a path made before; no heap, no locks.
        unsafe {
            command.pre_exec(move || {
                let descriptor = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                let written = libc::write(descriptor, b"0".as_ptr().cast(), 1);
                let error = std::io::Error::last_os_error();
                libc::close(descriptor);
                if written == 1 {
                    Ok(())
                } else {
                    Err(error)
                }
            });
        }
        Ok(())
    }

    /// The most memory charged to it so far, page cache included, in bytes; None: this kernel does not say.
    pub fn peak(&self) -> Option<u64> {
        read(&self.file("memory.max_usage_in_bytes", "memory.peak")).parse().ok()
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
            candidates(mounts, own).into_iter().map(|place| place.folder).collect();
        let expected: Vec<PathBuf> =
            ["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]
                .map(PathBuf::from)
                .into();
        assert_eq!(folders, expected);
        assert_eq!(own_path(own, Version::Two), "/unified");
        assert!(candidates("proc /proc proc rw 0 0\n", own).is_empty());
    }
}
