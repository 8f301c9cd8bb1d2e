//! Programs of others that experiments drive: where they are, how they are started, what they said
//! last, and what odfork says of them.
//!
//! `arms` says how they are compared, `seats` keeps one for each arm, `build` makes what they need,
//! `open_loop` gives servers their load, `user` is who they run as.

pub mod arms;
pub mod build;
pub mod open_loop;
pub mod seats;
pub mod user;

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Result};

use odfork_proc::interrupt;

use crate::runner::{Outcome, Reply};
use user::User;

/// A program by its name or path.
pub fn found(program: &Path, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|folder| folder.join(program));
    let own = program.components().count() > 1;
    let mut places: Vec<PathBuf> = if own { vec![program.into()] } else { folders.collect() };
    places.retain(|place| place.is_file());
    match places.into_iter().next() {
        Some(place) => Ok(std::path::absolute(place)?),
        None => bail!("{} is missing; install {package}", program.display()),
    }
}

/// Without the variables whose names begin so, and without what is preloaded into this process.
pub fn clear(command: &mut Command, prefixes: &[&str]) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if prefixes.iter().any(|prefix| text.starts_with(prefix)) && name != "ODFORK_LIB" {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_PRELOAD");
}

/// In a process group of its own (Ctrl-C is for this process), and sent `signal` when this thread
/// ends. `user` is who it becomes before.
pub fn bind(command: &mut Command, user: Option<&User>, signal: i32) {
    let parent = std::process::id() as i32;
    let user = user.cloned();
    command.process_group(0);
    // SAFETY: CHILD: system calls only.
    unsafe {
        command.pre_exec(move || {
            user.as_ref().map_or(Ok(()), User::become_it)?;
            // Behind the change of the user, which takes it back.
            libc::prctl(libc::PR_SET_PDEATHSIG, signal);
            match libc::getppid() == parent {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
}

/// A folder that belongs to the user.
pub fn make_folder(folder: &Path, user: Option<&User>) -> Result<(), String> {
    let said = |error| format!("cannot make {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(said)?;
    match user {
        Some(user) => std::os::unix::fs::chown(folder, Some(user.id), Some(user.group)),
        None => Ok(()),
    }
    .map_err(said)
}

/// A port of the loopback that nobody has now.
pub fn free_port() -> Result<u16, String> {
    let port = || io::Result::Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    port().map_err(|error| format!("no free port: {error}"))
}

/// The end of what a program printed, in one line.
pub fn last_words(log: &Path) -> String {
    last_lines(&String::from_utf8_lossy(&fs::read(log).unwrap_or_default()))
}

/// The last three lines, in one.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

/// What odfork says of a process that it was to make faster. `odfork` is this program.
pub fn engine(odfork: &Path, pid: impl ToString) -> Result<String, String> {
    let output = Command::new(odfork).args(["stats", &pid.to_string()]).output();
    let output = output.map_err(|error| format!("odfork stats: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().and_then(|line| Some(line.split_once("): ")?.1));
    Ok(line.unwrap_or("plain: odfork is not loaded there").to_owned())
}

/// Interrupted in the middle, a point has nothing that can be compared; otherwise it is wrong.
pub fn ended(why: String) -> Reply {
    match interrupt::asked() {
        true => Outcome::Interrupted.into(),
        false => Outcome::Wrong(why).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_or_path_and_a_missing_one_names_its_package() {
        assert!(found(Path::new("sh"), "dash").unwrap().is_absolute());
        assert_eq!(found(Path::new("/bin/sh"), "dash").unwrap(), Path::new("/bin/sh"));
        let why = found(Path::new("no-such-program"), "its-package").unwrap_err().to_string();
        assert!(why.contains("its-package"), "{why}");
    }

    #[test]
    fn last_words_are_the_last_three_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(last_words(&log), "");
        fs::write(&log, "one\n\ntwo\nthree\n\nfour\n").unwrap();
        assert_eq!(last_words(&log), "two / three / four");
    }
}
