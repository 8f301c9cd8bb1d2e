//! odfork image: memory saved to files, and files shown, compared and made whole.
//!
//! The work is the crate odfork-image's; here a request is read (`options`), another process is
//! held still (`hold`), and what was done is said (`show`). This file connects them.

mod hold;
mod options;
mod show;

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ArgMatches;
use odfork_image::{Delta, Error, Image, Result, SaveOptions, Saved};
use odfork_proc::command::Subcommand;
use odfork_proc::interrupt;

use options::{Request, Wish};

/// As `odfork` takes it.
pub const SUBCOMMAND: Subcommand = Subcommand { name: "image", command: options::command, run };

/// The file for a program that asks for its image without naming one.
pub const FILE: &str = "ODFORK_IMAGE_FILE";

const COULD_NOT: u8 = 1;
const WRONG_USAGE: u8 = 2;
const INTERRUPTED: u8 = 130;

/// Carries out one request; returns the exit status.
pub fn run(matches: &ArgMatches) -> u8 {
    let request = match options::request(matches) {
        Ok(request) => request,
        Err(error) => return fail(&error, WRONG_USAGE),
    };
    match request {
        Request::Load { file, bases, words } => load(&file, &bases, &words),
        other => {
            interrupt::listen();
            match carry_out(&other) {
                Ok(()) => 0,
                Err(Error::Interrupted) => fail(&Error::Interrupted, INTERRUPTED),
                Err(error) => fail(&error, COULD_NOT),
            }
        }
    }
}

fn fail(error: &Error, status: u8) -> u8 {
    eprintln!("odfork image: {error}");
    status
}

fn carry_out(request: &Request) -> Result<()> {
    match request {
        Request::Save { pid, regions, file, base, bases, wish } => {
            let base = base.as_ref().map(|base| Image::open_with(base, bases)).transpose()?;
            hold::save(*pid, regions, file, base.as_ref(), wish)
        }
        Request::Delta { base, new, file, bases, wish } => {
            let (base, new) = (Image::open_with(base, bases)?, Image::open_with(new, bases)?);
            let delta = Delta { base: &base, trust_checksums: wish.by_checksum };
            done(file, &with_progress(wish, |options| new.save_delta(file, delta, options))?)
        }
        Request::Apply { delta, file, bases, wish } => {
            let delta = Image::open_with(delta, bases)?;
            done(file, &with_progress(wish, |options| delta.save_whole(file, options))?)
        }
        Request::Show { files, bases, json, verify } => {
            files.iter().try_for_each(|file| show::show(file, bases, *json, *verify))
        }
        Request::Load { .. } => Ok(()),
    }
}

/// Saves with the options of the command line, a display of progress, and Ctrl-C.
fn with_progress<T>(wish: &Wish, act: impl FnOnce(SaveOptions) -> Result<T>) -> Result<T> {
    let mut progress = Progress::new();
    let mut each = |done, total| progress.step(done, total);
    let result = act(SaveOptions {
        codec: wish.codec,
        cluster_pages: wish.cluster_pages,
        delta: None,
        sync: true,
        progress: Some(&mut each),
    });
    progress.clear();
    result
}

/// A line on a terminal, rewritten, that vanishes; nothing elsewhere.
struct Progress {
    shown: bool,
    percent: u64,
}

impl Progress {
    fn new() -> Progress {
        Progress { shown: std::io::stderr().is_terminal(), percent: u64::MAX }
    }

    /// False when the user asked to stop.
    fn step(&mut self, done: u64, total: u64) -> bool {
        let percent = done * 100 / total.max(1);
        if self.shown && percent != self.percent {
            self.percent = percent;
            eprint!("\r{percent:3} % of {} MB", total >> 8);
        }
        !interrupt::asked()
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn done(file: &Path, saved: &Saved) -> Result<()> {
    let like_base = match saved.base_pages {
        0 => String::new(),
        pages => format!(", {pages} as in the base"),
    };
    show::print(&format!(
        "{}: {} pages: {} stored{like_base}, {} of zeros; {} in the file; id {}\n",
        file.display(),
        saved.pages,
        saved.stored_pages,
        saved.zero_pages,
        show::size(saved.file_bytes),
        saved.id
    ))
}

/// Sees to it that the file can be opened, then becomes the program.
fn load(file: &Path, bases: &[PathBuf], words: &[std::ffi::OsString]) -> u8 {
    let absolute = Image::open_with(file, bases)
        .and_then(|_| std::path::absolute(file).map_err(|e| cannot("find", file, e)));
    let path = match absolute {
        Ok(path) => path,
        Err(error) => return fail(&error, COULD_NOT),
    };
    let error = Command::new(&words[0]).args(&words[1..]).env(FILE, path).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    fail(&cannot("run", Path::new(&words[0]), error), status)
}

fn cannot(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { what: format!("cannot {what} {}", path.display()), source }
}
