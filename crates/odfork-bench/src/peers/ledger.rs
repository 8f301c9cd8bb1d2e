//! What must be undone, and who does it: the one who did it, or, when that one is gone, `odfork tidy`.
//!
//! `tidy` is started before anything is made, in a session of its own, and hears on its standard input what is owed and
//! what was paid. When the input ends it pays what is left, newest first. So neither a second Ctrl-C nor kill -9 leaves swap
//! or a limit behind.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// One thing to put back. Undoing what was never done is harmless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    SwapOff(PathBuf),
    /// A device of /sys/class/zram-control.
    ZramRemove(u32),
    /// A device that was there before us.
    ZramReset(u32),
    Unlink(PathBuf),
    RemoveFolder(PathBuf),
    /// A control group: its processes are killed first.
    RemoveGroup(PathBuf),
    /// A setting and what it was.
    Write(PathBuf, String),
}

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Owed(u64, Undo),
    Paid(u64),
}

/// How long processes of a group may take to die.
const DYING: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

impl Undo {
    /// Puts it back.
    ///
    /// # Errors
    /// What is left, and the command that removes it: one line.
    pub fn carry_out(&self) -> Result<(), String> {
        let told =
            |error: std::io::Error, command: String| format!("{error}; to put it back: {command}");
        let gone = |error: &std::io::Error| {
            matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV))
        };
        let outcome = match self {
            Undo::SwapOff(path) => swap_off(path),
            Undo::ZramRemove(id) => {
                let _ = fs::write(format!("/sys/block/zram{id}/reset"), "1");
                fs::write("/sys/class/zram-control/hot_remove", id.to_string())
            }
            Undo::ZramReset(id) => fs::write(format!("/sys/block/zram{id}/reset"), "1"),
            Undo::Unlink(path) => fs::remove_file(path),
            Undo::RemoveFolder(path) => fs::remove_dir_all(path),
            Undo::RemoveGroup(path) => remove_group(path),
            Undo::Write(path, text) => fs::write(path, text),
        };
        match outcome {
            Err(error) if !gone(&error) => Err(told(error, self.words())),
            _ => Ok(()),
        }
    }

    fn words(&self) -> String {
        match self {
            Undo::SwapOff(path) => format!("swapoff {}", path.display()),
            Undo::ZramRemove(id) => format!("echo {id} > /sys/class/zram-control/hot_remove"),
            Undo::ZramReset(id) => format!("echo 1 > /sys/block/zram{id}/reset"),
            Undo::Unlink(path) => format!("rm {}", path.display()),
            Undo::RemoveFolder(path) => format!("rm -r {}", path.display()),
            Undo::RemoveGroup(path) => format!("rmdir {}", path.display()),
            Undo::Write(path, text) => format!("echo {text} > {}", path.display()),
        }
    }
}

fn swap_off(path: &Path) -> std::io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a valid path.
    match unsafe { libc::swapoff(name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn remove_group(path: &Path) -> std::io::Result<()> {
    let begin = Instant::now();
    loop {
        // Version 2 has it in one go; version 1 needs one signal for each.
        let _ = fs::write(path.join("cgroup.kill"), "1");
        for line in fs::read_to_string(path.join("cgroup.procs"))?.lines() {
            if let Ok(pid) = line.parse::<i32>() {
                // SAFETY: a process of a group that only we fill.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < DYING => {
                std::thread::sleep(LOOK);
            }
            outcome => return outcome,
        }
    }
}

/// Hears what is owed; shared by all debts.
#[derive(Debug)]
pub struct Ledger {
    tidy: Option<(Child, ChildStdin)>,
    next: u64,
}

/// Something to be undone; dropping it does.
#[derive(Debug)]
pub struct Debt {
    number: u64,
    undo: Undo,
    ledger: Shared,
}

#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    /// Starts `odfork tidy` of this program.
    ///
    /// # Errors
    /// It could not be started.
    pub fn open(program: &Path) -> Result<Shared, String> {
        let mut command = Command::new(program);
        command.arg("tidy").stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: CHILD: one system call; no signal of our terminal is to reach it.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {} tidy: {error}", program.display()))?;
        let input = child.stdin.take().ok_or("no pipe to tidy")?;
        Ok(Shared(Arc::new(Mutex::new(Ledger { tidy: Some((child, input)), next: 1 }))))
    }

    /// Notes that `undo` will be due. To be called before the thing is done.
    pub fn owe(&self, undo: Undo) -> Debt {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = ledger.next;
        ledger.next += 1;
        ledger.tell(&Entry::Owed(number, undo.clone()));
        drop(ledger);
        Debt { number, undo, ledger: self.clone() }
    }
}

impl Ledger {
    fn tell(&mut self, entry: &Entry) {
        if let Some((_, input)) = &mut self.tidy {
            let told = serde_json::to_string(entry).map(|text| writeln!(input, "{text}"));
            if !matches!(told, Ok(Ok(()))) {
                eprintln!(
                    "odfork bench: nobody is left to put back what a kill would leave behind"
                );
                self.tidy = None;
            }
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.tidy.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        match self.undo.carry_out() {
            Ok(()) => {
                let mut ledger = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
                ledger.tell(&Entry::Paid(self.number));
            }
            // It stays owed: tidy tries again at the end.
            Err(why) => eprintln!("odfork bench: {why}"),
        }
    }
}

/// `odfork tidy`: pays what is owed when its input ends; returns how many could not be paid.
pub fn tidy(input: impl BufRead) -> usize {
    let mut owed: BTreeMap<u64, Undo> = BTreeMap::new();
    for line in input.lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(Entry::Owed(number, undo)) => drop(owed.insert(number, undo)),
            Ok(Entry::Paid(number)) => drop(owed.remove(&number)),
            // The last line of a process that was killed while it wrote.
            Err(_) => {}
        }
    }
    let failures = owed.values().rev().filter_map(|undo| undo.carry_out().err());
    failures.inspect(|why| eprintln!("odfork tidy: {why}")).count()
}

pub fn command() -> clap::Command {
    clap::Command::new("tidy")
        .about("Put back what a benchmark that was killed left behind (started by it)")
        .hide(true)
        .after_help("Examples:\n  odfork bench paging starts it by itself.")
}

pub fn run(_matches: &clap::ArgMatches) -> u8 {
    // A terminal that goes away, or a service manager that ends everything: first finish.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: ignoring is always allowed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    u8::from(tidy(std::io::stdin().lock()) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("odfork-tidy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn what_was_paid_is_left_alone_and_the_rest_is_undone_newest_first() {
        let folder = folder("order");
        let (kept, gone) = (folder.join("kept"), folder.join("gone"));
        let setting = folder.join("setting");
        for file in [&kept, &gone, &setting] {
            fs::write(file, "3").unwrap();
        }
        let entries = [
            Entry::Owed(1, Undo::Unlink(kept.clone())),
            Entry::Owed(2, Undo::Unlink(gone.clone())),
            // Two changes of one setting: the first value must win.
            Entry::Owed(3, Undo::Write(setting.clone(), "first".into())),
            Entry::Owed(4, Undo::Write(setting.clone(), "second".into())),
            Entry::Paid(1),
        ];
        let mut lines: Vec<String> =
            entries.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        lines.push("{\"Owed\":[5,{\"Unl".into());
        assert_eq!(tidy(lines.join("\n").as_bytes()), 0);
        assert!(kept.exists() && !gone.exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "first");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn undoing_what_was_never_done_is_harmless() {
        for undo in [
            Undo::Unlink("/no/such/file".into()),
            Undo::RemoveFolder("/no/such/folder".into()),
            Undo::RemoveGroup("/no/such/group".into()),
        ] {
            assert_eq!(undo.carry_out(), Ok(()), "{undo:?}");
        }
    }

    #[test]
    fn what_cannot_be_undone_says_how() {
        let folder = folder("stuck");
        let undo = Undo::Unlink(folder.clone());
        let why = undo.carry_out().unwrap_err();
        assert!(why.contains("rm ") && !why.contains('\n'), "{why}");
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_debt_is_paid_when_it_is_dropped() {
        let folder = folder("debt");
        let file = folder.join("file");
        fs::write(&file, "").unwrap();
        let ledger = Shared(Arc::new(Mutex::new(Ledger { tidy: None, next: 1 })));
        drop(ledger.owe(Undo::Unlink(file.clone())));
        assert!(!file.exists());
        fs::remove_dir(folder).unwrap();
    }
}
