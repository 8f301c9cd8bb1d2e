//! One run of a guest: starts QEMU, forwards the command's output, reads the guest's report,
//! enforces the time limit, and leaves nothing behind.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use odfork_proc::interrupt;
use rustix::pipe::{pipe_with, PipeFlags};

use crate::console;
use crate::guest::{self, GuestSpec};
use crate::needs;
use crate::places::Places;
use crate::qemu::{self, Accel};

/// After the guest's report, for the console to empty and the machine to switch off.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// For a guest that hangs to say where, after it was asked to.
const NMI_DUMP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the clock and Ctrl-C are looked at.
const TICK_MS: i32 = 50;

/// Where a piece of the command's output belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    Out,
    Err,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The command's exit status as a shell has it.
    Exited(u8),
    Panicked,
    TimedOut,
    Interrupted,
    /// Ended without a report; the reason as far as it is known.
    Lost(String),
}

/// What a session left.
#[derive(Debug)]
pub struct Outcome {
    pub end: End,
    /// All the kernel said.
    pub console: String,
    pub took: Duration,
}

/// Runs a guest; `on_output` gets the command's output as it comes.
pub fn run(
    spec: &GuestSpec,
    accel: Accel,
    places: &Places,
    on_output: &mut dyn FnMut(Stream, &[u8]),
) -> Result<Outcome> {
    let Some(program) = needs::program(qemu::PROGRAM) else {
        bail!("a guest needs {}; install it: apt-get install qemu-system-x86", qemu::PROGRAM);
    };
    let folder = Folder::make(places)?;
    let init = guest::init(places)?;
    write(&folder.0.join("initrd"), &spec.archive(&init)?)?;
    for (name, size) in [("swap", spec.machine.swap), ("scratch", spec.machine.scratch)] {
        if let Some(size) = size {
            let file = File::create(folder.0.join(name)).context("cannot make a disk")?;
            file.set_len(size).context("cannot make a disk")?;
        }
    }
    let (out, err, control) = (Pipe::new()?, Pipe::new()?, Pipe::new()?);
    let (monitor, theirs) = UnixStream::pair().context("cannot make a connection to QEMU")?;
    let channels = qemu::Channels {
        out: out.write.as_raw_fd(),
        err: err.write.as_raw_fd(),
        control: control.write.as_raw_fd(),
        monitor: theirs.as_raw_fd(),
        folder: &folder.0,
    };
    let mut command = Command::new(program);
    command.args(qemu::arguments(spec, accel, &channels));
    let messages = folder.0.join("qemu");
    let begun = Instant::now();
    let child = start(&mut command, spec.is_interactive(), &messages, &channels)?;
    drop(theirs);
    let readers = [out.reader(), err.reader(), control.reader()];
    let mut watch = Watcher {
        child: KillOnDrop(child),
        begun,
        spec,
        monitor,
        report: Report::default(),
        ended: None,
    };
    let end = watch.watch(readers, on_output)?;
    let console = read_lossy(&folder.0.join("console"));
    let end = classify_end(end, &console, &messages);
    Ok(Outcome { end, console, took: begun.elapsed() })
}

fn classify_end(end: Option<End>, console: &str, messages: &Path) -> End {
    match end {
        Some(end) => end,
        None if console::panicked(console) => End::Panicked,
        None => {
            let said = read_lossy(messages);
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            End::Lost(last.unwrap_or("the machine went off before the command ended").to_owned())
        }
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn start(
    command: &mut Command,
    interactive: bool,
    messages: &Path,
    channels: &qemu::Channels,
) -> Result<Child> {
    let log = File::create(messages).context("cannot write into the session's folder")?;
    command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
    command.stdout(if interactive { Stdio::inherit() } else { Stdio::null() });
    command.stderr(log);
    let kept = [channels.out, channels.err, channels.control, channels.monitor];
    let parent = std::process::id();
    // SAFETY (CHILD): three kinds of plain system calls between fork and exec; no memory is taken.
    unsafe {
        command.pre_exec(move || {
            for end in kept {
                if libc::fcntl(end, libc::F_SETFD, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            // A guest must not outlive the one who waits for it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            if !interactive {
                // Ctrl-C is for odfork, which ends the guest.
                libc::setpgid(0, 0);
            }
            Ok(())
        });
    }
    command.spawn().context("cannot start QEMU")
}

/// What the guest said on its control port.
#[derive(Debug, Default)]
struct Report {
    text: String,
    end: Option<End>,
}

impl Report {
    fn receive(&mut self, bytes: &[u8]) {
        self.text.push_str(&String::from_utf8_lossy(bytes));
        while let Some((line, rest)) = self.text.split_once('\n') {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let number = || value.parse::<u8>().unwrap_or(u8::MAX);
            match word {
                "status" => self.end = Some(End::Exited(number())),
                "signal" => self.end = Some(End::Exited(128u8.saturating_add(number()))),
                "failed" => self.end = Some(End::Lost(value.to_owned())),
                _ => {}
            }
            self.text = rest.to_owned();
        }
    }
}

struct Watcher<'a> {
    child: KillOnDrop,
    begun: Instant,
    spec: &'a GuestSpec,
    monitor: UnixStream,
    report: Report,
    ended: Option<Instant>,
}

impl Watcher<'_> {
    /// Until QEMU has ended or was ended. None: it ended without a report.
    fn watch(
        &mut self,
        mut readers: [Option<File>; 3],
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Option<End>> {
        loop {
            self.read_ready(&mut readers, on_output);
            if self.report.end.is_some() && self.ended.is_none() {
                self.ended = Some(Instant::now());
            }
            if self.child.0.try_wait().context("cannot wait for QEMU")?.is_some() {
                self.drain(&mut readers, on_output);
                return Ok(self.report.end.take());
            }
            if let Some(end) = self.reason_to_end() {
                if end == End::TimedOut {
                    self.dump_by_nmi(&mut readers, on_output)?;
                }
                self.child.end();
                self.drain(&mut readers, on_output);
                return Ok(Some(end));
            }
        }
    }

    /// A guest that hangs gets an interrupt it cannot mask and panics: its console then says where
    /// everybody was.
    fn dump_by_nmi(
        &mut self,
        readers: &mut [Option<File>; 3],
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<()> {
        const WORDS: &[u8] = b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"inject-nmi\"}\n";
        if self.monitor.write_all(WORDS).is_err() {
            return Ok(());
        }
        let asked = Instant::now();
        while asked.elapsed() < NMI_DUMP_TIMEOUT && !interrupt::asked() {
            self.read_ready(readers, on_output);
            if self.child.0.try_wait().context("cannot wait for QEMU")?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Why the guest must be ended now.
    fn reason_to_end(&mut self) -> Option<End> {
        if self.ended.is_some_and(|at| at.elapsed() > SHUTDOWN_TIMEOUT) {
            return self.report.end.take();
        }
        if self.ended.is_some() {
            return None;
        }
        if interrupt::asked() {
            return Some(End::Interrupted);
        }
        let over = |limit: Duration| self.begun.elapsed() > limit;
        self.spec.timeout.is_some_and(over).then_some(End::TimedOut)
    }

    /// Whatever there is; waits a tick at most.
    fn read_ready(
        &mut self,
        readers: &mut [Option<File>; 3],
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) {
        for (index, is_ready) in poll(readers).into_iter().enumerate() {
            if is_ready && !self.read(index, &mut readers[index], on_output) {
                readers[index] = None;
            }
        }
    }

    fn read(
        &mut self,
        index: usize,
        reader: &mut Option<File>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) -> bool {
        let Some(file) = reader else { return false };
        let mut buffer = [0; 65536];
        let Ok(count) = file.read(&mut buffer) else { return true };
        match index {
            0 => on_output(Stream::Out, &buffer[..count]),
            1 => on_output(Stream::Err, &buffer[..count]),
            _ => self.report.receive(&buffer[..count]),
        }
        count > 0
    }

    /// What is still in the pipes when QEMU has ended: all writing ends are closed.
    fn drain(&mut self, readers: &mut [Option<File>; 3], on_output: &mut dyn FnMut(Stream, &[u8])) {
        for (index, reader) in readers.iter_mut().enumerate() {
            while reader.is_some() && self.read(index, reader, on_output) {}
        }
    }
}

/// Which of them can be read; waits a tick at most.
fn poll(readers: &[Option<File>; 3]) -> [bool; 3] {
    let entry = |reader: &Option<File>| libc::pollfd {
        fd: reader.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut entries = [entry(&readers[0]), entry(&readers[1]), entry(&readers[2])];
    // SAFETY: three valid entries; a descriptor of -1 is passed over.
    let count = unsafe { libc::poll(entries.as_mut_ptr(), 3, TICK_MS) };
    entries.map(|entry| count > 0 && entry.revents != 0)
}

/// QEMU, killed when odfork leaves early.
struct KillOnDrop(Child);

impl KillOnDrop {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.end();
    }
}

/// Both ends of a pipe; the reader gives its end away and drops the other.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn new() -> Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        Ok(Pipe { read, write })
    }

    fn reader(self) -> Option<File> {
        drop(self.write);
        Some(File::from(self.read))
    }
}

/// The session's folder, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn make(places: &Places) -> Result<Folder> {
        let sessions = places.work.join("sessions");
        remove_left(&sessions);
        let folder = sessions.join(std::process::id().to_string());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Folders of sessions whose process is gone: killed before it could clean up.
fn remove_left(sessions: &Path) {
    for entry in fs::read_dir(sessions).into_iter().flatten().flatten() {
        if !Path::new("/proc").join(entry.file_name()).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Passes output on to our own.
pub fn pass_on(stream: Stream, bytes: &[u8]) {
    // A reader that went away is the caller's business.
    let _ = match stream {
        Stream::Out => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
        Stream::Err => std::io::stderr().write_all(bytes),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_in_pieces() {
        let mut report = Report::default();
        report.receive(b"rea");
        report.receive(b"dy\nstatus 3");
        assert_eq!(report.end, None);
        report.receive(b"\n");
        assert_eq!(report.end, Some(End::Exited(3)));
        report.receive(b"signal 9\n");
        assert_eq!(report.end, Some(End::Exited(137)));
    }

    #[test]
    fn an_end_without_report_is_a_panic_or_lost() {
        let nothing = Path::new("/nonexistent");
        assert_eq!(
            classify_end(Some(End::Exited(0)), "Kernel panic - not syncing", nothing),
            End::Exited(0)
        );
        assert_eq!(
            classify_end(None, "x\nKernel panic - not syncing: y\n", nothing),
            End::Panicked
        );
        assert!(matches!(classify_end(None, "", nothing), End::Lost(_)));
    }
}
