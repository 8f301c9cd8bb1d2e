//! The clean-up journal: what an experiment must undo, and who does it when the experiment is
//! killed.
//!
//! Each change is recorded before it is made; dropping its [`Cleanup`] undoes it. `odfork cleanup`
//! runs beside the experiment, in a session of its own, and reads the journal on standard input.
//! When that ends, it undoes what is left, newest first. So neither a second Ctrl-C nor kill -9
//! leaves swap or a limit behind.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, Error, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// One thing to undo. Undoing what was never done is harmless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    SwapOff(PathBuf),
    /// A device made through /sys/class/zram-control.
    ZramRemove(u32),
    /// A device that existed before.
    ZramReset(u32),
    RemoveFile(PathBuf),
    RemoveFolder(PathBuf),
    /// A control group: its processes are killed first.
    RemoveGroup(PathBuf),
    /// A setting and its earlier value.
    Write(PathBuf, String),
}

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Due(u64, Undo),
    Done(u64),
}

/// How long processes of a group, or that write into a folder, may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

impl Undo {
    pub fn carry_out(&self) -> Result<(), String> {
        let (done, command) = match self {
            Undo::SwapOff(path) => (swap_off(path), format!("swapoff {}", path.display())),
            Undo::ZramRemove(id) => {
                let _ = reset_zram(*id);
                let control = "/sys/class/zram-control/hot_remove";
                (fs::write(control, id.to_string()), format!("echo {id} > {control}"))
            }
            Undo::ZramReset(id) => (reset_zram(*id), format!("echo 1 > /sys/block/zram{id}/reset")),
            Undo::RemoveFile(path) => (fs::remove_file(path), format!("rm {}", path.display())),
            Undo::RemoveFolder(path) => (remove_folder(path), format!("rm -r {}", path.display())),
            Undo::RemoveGroup(path) => (remove_group(path), format!("rmdir {}", path.display())),
            Undo::Write(path, text) => {
                (fs::write(path, text), format!("echo {text} > {}", path.display()))
            }
        };
        match done {
            Err(error) if !is_gone(&error) => Err(format!("{error}; to put it back: {command}")),
            _ => Ok(()),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV))
}

fn reset_zram(id: u32) -> std::io::Result<()> {
    fs::write(format!("/sys/block/zram{id}/reset"), "1")
}

fn swap_off(path: &Path) -> std::io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a valid path.
    match unsafe { libc::swapoff(name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// A program that was told to end may still write its last files.
fn remove_folder(path: &Path) -> std::io::Result<()> {
    let begin = Instant::now();
    loop {
        match fs::remove_dir_all(path) {
            Err(_) if path.exists() && begin.elapsed() < EXIT_TIMEOUT => std::thread::sleep(POLL),
            outcome => return outcome,
        }
    }
}

fn remove_group(path: &Path) -> std::io::Result<()> {
    let begin = Instant::now();
    loop {
        // Version 2 kills all at once; version 1 needs a signal for each.
        let _ = fs::write(path.join("cgroup.kill"), "1");
        for line in fs::read_to_string(path.join("cgroup.procs"))?.lines() {
            if let Ok(pid) = line.parse::<i32>() {
                // SAFETY: a process of a group that only we fill.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        match fs::remove_dir(path) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < EXIT_TIMEOUT =>
            {
                std::thread::sleep(POLL);
            }
            outcome => return outcome,
        }
    }
}

/// Shared by all [`Cleanup`]s of a run.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<Writer>>);

#[derive(Debug)]
struct Writer {
    /// `odfork cleanup` and its standard input.
    process: Option<(Child, ChildStdin)>,
    next: u64,
}

/// Something to be undone; dropping it does.
#[derive(Debug)]
pub struct Cleanup {
    number: u64,
    undo: Undo,
    journal: Journal,
}

impl Journal {
    /// Starts `odfork cleanup` of this program.
    pub fn open(program: &Path) -> Result<Journal, String> {
        let mut command = Command::new(program);
        command.arg("cleanup").stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: CHILD: one system call; no signal of our terminal is to reach it.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {} cleanup: {error}", program.display()))?;
        let input = child.stdin.take().ok_or("no pipe to odfork cleanup")?;
        Ok(Journal(Arc::new(Mutex::new(Writer { process: Some((child, input)), next: 1 }))))
    }

    /// Records that `undo` will be due. To be called before the change is made.
    pub fn record(&self, undo: Undo) -> Cleanup {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = writer.next;
        writer.next += 1;
        writer.put(&Entry::Due(number, undo.clone()));
        drop(writer);
        Cleanup { number, undo, journal: self.clone() }
    }

    /// A new folder for sockets that goes away with the run.
    pub fn folder(&self) -> Result<(PathBuf, Cleanup), String> {
        let made = tempfile::Builder::new().prefix("odfork-bench-").tempdir();
        let folder = made.map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let path = folder.keep();
        let cleanup = self.record(Undo::RemoveFolder(path.clone()));
        Ok((path, cleanup))
    }
}

impl Writer {
    fn put(&mut self, entry: &Entry) {
        if let Some((_, input)) = &mut self.process {
            let written = serde_json::to_string(entry).map(|text| writeln!(input, "{text}"));
            if !matches!(written, Ok(Ok(()))) {
                eprintln!("odfork bench: nothing is left to put back what a kill leaves behind");
                self.process = None;
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.process.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        match self.undo.carry_out() {
            Ok(()) => {
                let mut writer = self.journal.0.lock().unwrap_or_else(PoisonError::into_inner);
                writer.put(&Entry::Done(self.number));
            }
            // It stays due: `odfork cleanup` tries again at the end.
            Err(why) => eprintln!("odfork bench: {why}"),
        }
    }
}

/// Undoes what is due when the input ends; returns how many could not be undone.
pub fn clean_up(input: impl BufRead) -> usize {
    let mut due: BTreeMap<u64, Undo> = BTreeMap::new();
    for line in input.lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(Entry::Due(number, undo)) => drop(due.insert(number, undo)),
            Ok(Entry::Done(number)) => drop(due.remove(&number)),
            // The last line of a process that was killed while it wrote.
            Err(_) => {}
        }
    }
    let failures = due.values().rev().filter_map(|undo| undo.carry_out().err());
    failures.inspect(|why| eprintln!("odfork cleanup: {why}")).count()
}

pub fn command() -> clap::Command {
    clap::Command::new("cleanup")
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
    u8::from(clean_up(std::io::stdin().lock()) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("odfork-cleanup-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_folder_that_is_written_into_is_removed_when_its_writer_ends() {
        let path = folder("written");
        let inside = path.join("inside");
        fs::create_dir(&inside).unwrap();
        let many = inside.join("500");
        let writer = std::thread::spawn(move || {
            // Faster than a folder can be emptied; ends when the folder is gone.
            let names = (0..20_000).map(|number| inside.join(number.to_string()));
            names.take_while(|name| fs::write(name, "").is_ok()).count()
        });
        while !many.exists() && !writer.is_finished() {}
        Undo::RemoveFolder(path.clone()).carry_out().unwrap();
        writer.join().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_done_is_left_alone_and_the_rest_is_undone_newest_first() {
        let folder = folder("order");
        let (kept, gone) = (folder.join("kept"), folder.join("gone"));
        let setting = folder.join("setting");
        for file in [&kept, &gone, &setting] {
            fs::write(file, "3").unwrap();
        }
        let entries = [
            Entry::Due(1, Undo::RemoveFile(kept.clone())),
            Entry::Due(2, Undo::RemoveFile(gone.clone())),
            // Two changes of one setting: the first value must win.
            Entry::Due(3, Undo::Write(setting.clone(), "first".into())),
            Entry::Due(4, Undo::Write(setting.clone(), "second".into())),
            Entry::Done(1),
        ];
        let mut lines: Vec<String> =
            entries.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        lines.push("{\"Due\":[5,{\"Rem".into());
        assert_eq!(clean_up(lines.join("\n").as_bytes()), 0);
        assert!(kept.exists() && !gone.exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "first");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn undoing_what_was_never_done_is_harmless() {
        for undo in [
            Undo::RemoveFile("/no/such/file".into()),
            Undo::RemoveFolder("/no/such/folder".into()),
            Undo::RemoveGroup("/no/such/group".into()),
        ] {
            assert_eq!(undo.carry_out(), Ok(()), "{undo:?}");
        }
    }

    #[test]
    fn what_cannot_be_undone_says_how() {
        let folder = folder("stuck");
        let undo = Undo::RemoveFile(folder.clone());
        let why = undo.carry_out().unwrap_err();
        assert!(why.contains("rm ") && !why.contains('\n'), "{why}");
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_cleanup_is_carried_out_when_it_is_dropped() {
        let folder = folder("drop");
        let file = folder.join("file");
        fs::write(&file, "").unwrap();
        let journal = Journal(Arc::new(Mutex::new(Writer { process: None, next: 1 })));
        drop(journal.record(Undo::RemoveFile(file.clone())));
        assert!(!file.exists());
        fs::remove_dir(folder).unwrap();
    }
}
