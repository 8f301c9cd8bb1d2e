//! What the control groups above this process still give it, as the library counts it.
//!
//! Owns reading the limits of versions 1 and 2. Text in, so that groups this machine does not have
//! are tested too.

use std::fs;
use std::path::{Path, PathBuf};

/// What the groups leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Unlimited,
    /// Bytes, by the tightest limit.
    Bytes(u64),
    /// There is a group, and its limits cannot be read: nothing is frozen.
    Unknown,
}

/// The names of a version's files, and what `memory.stat` calls page cache that can go.
struct Files {
    kind: &'static str,
    used: &'static str,
    limits: &'static [&'static str],
    cache: &'static str,
}

const V1: Files = Files {
    kind: "cgroup",
    used: "memory.usage_in_bytes",
    limits: &["memory.limit_in_bytes"],
    cache: "total_inactive_file ",
};
const V2: Files = Files {
    kind: "cgroup2",
    used: "memory.current",
    limits: &["memory.max", "memory.high"],
    cache: "inactive_file ",
};

/// What version 1 says for no limit lies above this.
const NO_LIMIT: u64 = 1 << 62;

/// The link of the namespace that the kernel begins with.
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// Asks the kernel.
pub fn left() -> Left {
    let own = match fs::read_to_string("/proc/self/cgroup") {
        Ok(own) => own,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Left::Unlimited,
        Err(_) => return Left::Unknown,
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some((files, group)) = memory_group(&own) else { return Left::Unlimited };
    match folder(&mounts, files, group) {
        Some((point, below)) => least(&point, &below, files),
        // In a namespace of its own that name says nothing about the groups above.
        None if group == "/" && is_in_first_namespace() => Left::Unlimited,
        None => Left::Unknown,
    }
}

fn is_in_first_namespace() -> bool {
    fs::read_link("/proc/self/ns/cgroup").is_ok_and(|link| link == Path::new(FIRST_NAMESPACE))
}

/// The group that is charged for memory: of version 1 if its memory controller is mounted.
fn memory_group(own: &str) -> Option<(&'static Files, &str)> {
    let mut second = None;
    for line in own.lines() {
        match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            [_, list, name] if list.split(',').any(|one| one == "memory") => {
                return Some((&V1, name));
            }
            ["0", "", name] => second = Some((&V2, name)),
            _ => {}
        }
    }
    second
}

/// The first mount that shows the group, and the group's folder below it.
fn folder(mounts: &str, files: &Files, group: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let memory = kind == V2.kind || options.split(',').any(|one| one == "memory");
        let mut words = mount.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        (kind == files.kind && memory).then(|| (PathBuf::from(point), below.to_owned()))
    })
}

fn least(point: &Path, below: &Path, files: &Files) -> Left {
    let all = point.join(below);
    let groups = all.ancestors().take_while(|folder| folder.starts_with(point));
    groups.map(|folder| of_group(folder, files)).fold(Left::Unlimited, |a, b| match (a, b) {
        (Left::Unlimited, other) | (other, Left::Unlimited) => other,
        (Left::Bytes(a), Left::Bytes(b)) => Left::Bytes(a.min(b)),
        _ => Left::Unknown,
    })
}

/// What one group leaves. A file that is not there is no limit.
fn of_group(folder: &Path, files: &Files) -> Left {
    let limits = files.limits.iter().filter_map(|name| number(&folder.join(name)));
    let Some(limit) = limits.filter(|limit| *limit < NO_LIMIT).min() else {
        return if folder.is_dir() { Left::Unlimited } else { Left::Unknown };
    };
    let Some(used) = number(&folder.join(files.used)) else { return Left::Unknown };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix(files.cache)?.parse().ok());
    Left::Bytes(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
}

/// Without one, as in `max`: none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn both_versions_and_all_limits_count() {
        let scratch = tempfile::tempdir().unwrap();
        let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
        let none = ("memory.limit_in_bytes", "9223372036854771712\n");
        group(&one, &[none]);
        let used = ("memory.usage_in_bytes", "50\n");
        group(&one.join("a"), &[("memory.limit_in_bytes", "70\n"), used]);
        group(&one.join("a/b"), &[none, ("memory.stat", "total_inactive_file 20\n")]);
        group(&two, &[]);
        let high = [("memory.max", "max\n"), ("memory.high", "90\n"), ("memory.current", "80\n")];
        let stat = ("memory.stat", "active_file 9\ninactive_file 30\n");
        group(&two.join("c"), &[&high[..], &[stat]].concat());
        let mounts = format!(
            "1 1 0:1 / {} rw shared:9 - cgroup cgroup rw,memory\n\
             1 1 0:1 /x {} rw - cgroup2 cgroup rw\n",
            one.display(),
            two.display()
        );
        let left = |own: &str| {
            let (files, group) = memory_group(own).unwrap();
            folder(&mounts, files, group).map(|(point, below)| least(&point, &below, files))
        };
        assert_eq!(left("4:cpu,memory:/a/b\n0::/d\n"), Some(Left::Bytes(20)));
        assert_eq!(left("4:cpu,memory:/\n"), Some(Left::Unlimited));
        assert_eq!(left("4:memory:/gone\n"), Some(Left::Unknown));
        assert_eq!(left("0::/x/c\n"), Some(Left::Bytes(40)));
        assert_eq!(left("0::/elsewhere\n"), None);
        assert!(memory_group("1:name=systemd:/x\n").is_none());
    }
}
