//! What one guest is to run: the machine, the command, the folder; and the first process that
//! carries it out.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::archive::{nul_terminated, Archive};
use crate::modules;
use crate::needs;
use crate::options::MachineOptions;
use crate::places::Places;
use crate::tool;

/// Variables of the host a program needs to find its things and its language; the guest's command
/// gets no others.
const VARIABLES: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "COLORTERM",
    "LINES",
    "COLUMNS",
];

/// What a guest is asked to do.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    pub kernel: PathBuf,
    pub machine: MachineOptions,
    /// Empty: a shell on this terminal.
    pub command: Vec<OsString>,
    pub env: Vec<OsString>,
    pub share: Option<PathBuf>,
    pub timeout: Option<Duration>,
}

impl GuestSpec {
    pub fn new(kernel: &Path, machine: &MachineOptions, words: &[&str]) -> GuestSpec {
        GuestSpec {
            kernel: kernel.to_path_buf(),
            machine: machine.clone(),
            command: words.iter().map(OsString::from).collect(),
            env: Vec::new(),
            share: None,
            timeout: None,
        }
    }

    pub fn is_interactive(&self) -> bool {
        self.command.is_empty()
    }

    /// The initial file system: /init and /session.
    pub fn archive(&self, init: &[u8]) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        archive.file("init", 0o755, init);
        archive.folder("session");
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let arguments = if self.is_interactive() { vec![shell] } else { self.command.clone() };
        archive.file("session/arguments", 0o600, &nul_terminated(&arguments));
        archive.file("session/environment", 0o600, &nul_terminated(&self.environment()?));
        let mut settings = self.settings()?;
        if let Some(folder) = modules::folder(&self.kernel) {
            let _ = writeln!(settings, "modules {}", folder.display());
            for (number, module) in modules::load_order(&folder)?.iter().enumerate() {
                archive.file(&format!("session/module{number}"), 0o600, &modules::content(module)?);
            }
        }
        archive.file("session/settings", 0o600, settings.as_bytes());
        Ok(archive.finish())
    }

    fn environment(&self) -> Result<Vec<OsString>> {
        let passed = |name: &str| {
            VARIABLES.contains(&name) || name.starts_with("LC_") || name.starts_with("ODFORK_")
        };
        let host = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(passed));
        let mut list: Vec<(OsString, OsString)> = host.collect();
        for entry in &self.env {
            let text = entry.to_string_lossy();
            let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty())
            else {
                bail!("--env takes NAME=VALUE, not {text}");
            };
            list.retain(|(other, _)| *other != *name);
            list.push((name.into(), value.into()));
        }
        if list.iter().all(|(name, _)| name != "PATH") {
            list.push((
                "PATH".into(),
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            ));
        }
        let join = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            name
        };
        Ok(list.into_iter().map(join).collect())
    }

    /// Lines "name value", as kernel/guest/init.c reads them.
    fn settings(&self) -> Result<String> {
        let mut lines = String::new();
        if let Ok(folder) = std::env::current_dir() {
            if folder.as_os_str().as_bytes().contains(&b'\n') || folder.to_str().is_none() {
                bail!(
                    "the name of the current folder cannot be handed to the guest; start from \
                     another"
                );
            }
            let _ = writeln!(lines, "folder {}", folder.display());
        }
        for (name, bytes) in [
            ("swap", self.machine.swap),
            ("zram", self.machine.zram),
            ("scratch", self.machine.scratch),
        ] {
            if let Some(bytes) = bytes {
                let _ = writeln!(lines, "{name} {bytes}");
            }
        }
        if self.share.is_some() {
            lines.push_str("share yes\n");
        }
        if self.is_interactive() {
            lines.push_str("interactive yes\n");
            if let Some((rows, columns)) = window() {
                let _ = writeln!(lines, "window {rows} {columns}");
            }
        }
        Ok(lines)
    }
}

fn window() -> Option<(u16, u16)> {
    // SAFETY: a zeroed winsize is valid; the call fills it or fails.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        let asked = libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size);
        (asked == 0 && size.ws_row > 0).then_some((size.ws_row, size.ws_col))
    }
}

/// The guest's first process.
pub fn init(places: &Places) -> Result<Vec<u8>> {
    fs::read(program("guest/init", places)?).context("cannot read the guest's first process")
}

/// A program of the kernel folder that is one C file, compiled static when its source is another
/// than last time.
pub fn program(name: &str, places: &Places) -> Result<PathBuf> {
    let from = places.tree.join(format!("{name}.c"));
    let folder = places.work.join("guest");
    let program = folder.join(Path::new(name).file_name().unwrap_or_default());
    let copy = program.with_extension("c");
    let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
    if program.exists() && fs::read(&copy).ok().as_deref() == Some(text.as_slice()) {
        return Ok(program);
    }
    if needs::program("gcc").is_none() {
        bail!("{name}.c has to be compiled; install gcc: apt-get install gcc libc6-dev");
    }
    fs::create_dir_all(&folder).context("cannot make the guest's folder")?;
    // Two at a time must not see half a file.
    let new = program.with_extension(std::process::id().to_string());
    tool::run(Command::new("gcc").args(["-O2", "-static", "-pthread", "-o"]).arg(&new).arg(&from))
        .with_context(|| format!("cannot compile {} (libc6-dev is needed)", from.display()))?;
    fs::rename(&new, &program).context("cannot put a program of the guest in its place")?;
    fs::write(&copy, &text).context("cannot write into the guest's folder")?;
    Ok(program)
}
