//! The group of a `page run --memory any`: a file through which all its processes have one limit.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{bail, Result};
use odfork_pager_protocol::{GROUP_BYTES, GROUP_SLOT, PAGE};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// A group without a process may get one for so long: a program is about to start, or forks and
/// ends.
const EMPTY: Duration = Duration::from_secs(10);
/// The library knows no longer path.
const LONGEST: usize = 1023;

/// Of the group with this name, if there is one; else a new one.
pub fn file(name: Option<&str>, limit: u64) -> Result<PathBuf> {
    let folder = std::path::absolute(odfork_proc::folder::own()?)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let own = folder.join(format!("limit-{}-{}", std::process::id(), since.as_nanos()));
    let pages = limit / PAGE as u64;
    if own.as_os_str().len() > LONGEST - 64 {
        bail!("{} is too long a path: set XDG_RUNTIME_DIR", folder.display());
    }
    remove_what_is_left(&folder);
    let Some(name) = name else {
        create(&own, pages)?;
        return Ok(own);
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_part) {
        bail!("--group {name}: a name has up to 64 letters, digits, - and _");
    }
    let path = folder.join(format!("limit-of-{name}"));
    // It has its name when it is complete: another program may start at the same moment.
    create(&own, pages)?;
    let linked = fs::hard_link(&own, &path);
    fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    match word(&fs::read(&path)?, 0) {
        found if found == pages => Ok(path),
        found => bail!("group {name} has a limit of {}K: say the same", found * 4),
    }
}

/// Removes files of groups that are over. No process of a group knows that it is the last one: a
/// child may be about to join. So the next group that begins does it.
fn remove_what_is_left(folder: &Path) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().as_encoded_bytes().starts_with(b"limit-") {
            continue;
        }
        let Ok(words) = fs::read(&path) else { continue };
        let made = entry.metadata().and_then(|meta| meta.modified());
        let is_new = made.is_ok_and(|made| made.elapsed().unwrap_or_default() < EMPTY);
        let changed = Duration::from_nanos(word(&words, 16));
        if !is_new && !is_alive(&words) && now.saturating_sub(changed) > EMPTY {
            let _ = fs::remove_file(&path);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

/// There is a process in it.
fn is_alive(bytes: &[u8]) -> bool {
    let mut slots = (GROUP_SLOT..GROUP_BYTES).step_by(GROUP_SLOT).map(|at| word(bytes, at));
    slots.any(|task| task != 0 && Path::new(&format!("/proc/{task}")).exists())
}

fn create(path: &Path, pages: u64) -> Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Whatever limit of file sizes the program is to have.
    let given = getrlimit(Resource::Fsize);
    let is_enough = |most: Option<u64>| most.is_none_or(|most| most >= GROUP_BYTES as u64);
    let raised = match is_enough(given.maximum) {
        true => Rlimit { current: given.maximum, ..given },
        false => Rlimit { current: None, maximum: None },
    };
    if !is_enough(given.current) && setrlimit(Resource::Fsize, raised).is_err() {
        let _ = fs::remove_file(path);
        bail!("--memory any needs a file of {GROUP_BYTES} bytes: raise the limit (ulimit -f)");
    }
    file.set_len(GROUP_BYTES as u64)?;
    setrlimit(Resource::Fsize, given)?;
    Ok(file.write_all_at(&pages.to_ne_bytes(), 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_lives_while_a_process_of_it_does() {
        let mut bytes = vec![0; GROUP_BYTES];
        bytes[..8].copy_from_slice(&77u64.to_ne_bytes());
        assert!(!is_alive(&bytes) && word(&bytes, 0) == 77);
        bytes[GROUP_BYTES - GROUP_SLOT..][..8].copy_from_slice(&(1u64 << 40).to_ne_bytes());
        assert!(!is_alive(&bytes));
        let own = u64::from(std::process::id());
        bytes[GROUP_BYTES - GROUP_SLOT..][..8].copy_from_slice(&own.to_ne_bytes());
        assert!(is_alive(&bytes));
        assert!(!is_alive(&bytes[..100]) && word(&[], 0) == 0);
    }
}
