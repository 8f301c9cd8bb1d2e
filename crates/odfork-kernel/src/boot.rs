//! `odfork kernel boot`: one command, or a shell, in a guest; and what every caller does when a
//! guest ends.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use odfork_proc::interrupt;

use crate::accel;
use crate::console;
use crate::guest::GuestSpec;
use crate::options::{BootOptions, MachineOptions};
use crate::package::{self, Package};
use crate::places::{Places, Variant};
use crate::series;
use crate::session::{self, End, Outcome};

/// Exit statuses beside the command's own; see `odfork kernel boot --help`.
pub const SPLAT: u8 = 121;
pub const PANIC: u8 = 122;
pub const LOST: u8 = 123;
pub const TIME_OVER: u8 = 124;
pub const COULD_NOT: u8 = 125;
pub const INTERRUPTED: u8 = 130;

const SPLATS_SHOWN: usize = 5;
const TAIL_SHOWN: usize = 25;

pub fn run(options: &BootOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let kernel = match &options.kernel {
        Some(word) => given(word, &places)?,
        None => built(&Variant::of(&options.variant), &places)?,
    };
    let share = options.share.as_deref().map(shared).transpose()?;
    let spec = GuestSpec {
        kernel,
        machine: machine(options)?,
        command: options.command.clone(),
        env: options.env.clone(),
        share,
        timeout: options.timeout,
    };
    let accel = accel::choose(&spec.kernel, &spec.machine, &places)?;
    // On a terminal Ctrl-C is a key for the guest.
    if !spec.is_interactive() {
        interrupt::listen();
    }
    let outcome = session::run(&spec, accel, &places, &mut session::pass_on)?;
    let log = keep_console(&outcome, options.log.as_deref(), &places)?;
    for line in describe_end(&outcome, &log) {
        eprintln!("kernel: {line}");
    }
    Ok(status(&outcome))
}

fn machine(options: &BootOptions) -> Result<MachineOptions> {
    if options.machine.guest.memory < 128 << 20 {
        bail!("a guest needs 128 MB of memory; --memory 4G is the default");
    }
    Ok(options.machine.clone())
}

/// A file, or the kernel of a package.
fn given(word: &Path, places: &Places) -> Result<PathBuf> {
    let package = word.to_str().filter(|_| !word.exists()).and_then(Package::parse);
    match package {
        Some(package) => package::kernel(&package, places),
        None => word.canonicalize().with_context(|| format!("no kernel at {}", word.display())),
    }
}

/// The variant's kernel, or the words that build it.
pub fn built(variant: &Variant, places: &Places) -> Result<PathBuf> {
    let image = places.image(variant);
    // One tree serves all parts of the series: it may hold another one.
    if !image.exists() || (variant.first.is_some() && !series::has_series(variant, places)?) {
        bail!(
            "no kernel ({}) in {}; build it: odfork kernel build{}",
            variant.describe(),
            places.work.display(),
            variant.flags()
        );
    }
    Ok(image)
}

fn shared(folder: &Path) -> Result<PathBuf> {
    let place = folder.canonicalize().with_context(|| format!("no folder {}", folder.display()))?;
    if !place.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    Ok(place)
}

/// Where all the kernel said is to be found: the file asked for, else one in the work folder.
pub fn keep_console(outcome: &Outcome, asked: Option<&Path>, places: &Places) -> Result<PathBuf> {
    let path = asked.map_or_else(|| places.work.join("last-console.log"), Path::to_path_buf);
    fs::write(&path, &outcome.console)
        .with_context(|| format!("cannot write the console to {}", path.display()))?;
    Ok(path)
}

/// What is to be said about a guest's end; nothing when all is well.
pub fn describe_end(outcome: &Outcome, log: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let splats = console::splats(&outcome.console);
    if !splats.is_empty() {
        lines.push(format!(
            "the kernel reported {} faults (all it said: {}):",
            splats.len(),
            log.display()
        ));
        lines.extend(splats.iter().take(SPLATS_SHOWN).map(|line| format!("  {line}")));
    }
    let seconds = outcome.took.as_secs_f64();
    let (what, tail) = match &outcome.end {
        End::Exited(_) | End::Interrupted => return lines,
        End::Panicked => ("the kernel panicked".to_owned(), true),
        End::TimedOut => (
            format!(
                "the time was over after {seconds:.0} s; the guest was asked where it was, \
                 and ended"
            ),
            true,
        ),
        End::Lost(why) => (format!("the guest ended without an answer: {why}"), true),
    };
    lines.push(format!("{what} (all it said: {})", log.display()));
    if tail {
        let said: Vec<&str> = outcome.console.lines().collect();
        let from = said.len().saturating_sub(TAIL_SHOWN);
        lines.extend(said[from..].iter().map(|line| format!("  {}", line.trim_end())));
    }
    lines
}

pub fn status(outcome: &Outcome) -> u8 {
    match outcome.end {
        End::Panicked => PANIC,
        End::TimedOut => TIME_OVER,
        End::Interrupted => INTERRUPTED,
        End::Lost(_) => LOST,
        End::Exited(_) if !console::splats(&outcome.console).is_empty() => SPLAT,
        End::Exited(status) => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(end: End, console: &str) -> Outcome {
        Outcome { end, console: console.into(), took: Duration::from_secs(3) }
    }

    #[test]
    fn a_splat_outweighs_the_commands_status_and_a_panic_a_splat() {
        assert_eq!(status(&outcome(End::Exited(3), "fine")), 3);
        assert_eq!(status(&outcome(End::Exited(0), "[ 1.0] BUG: Bad page state")), SPLAT);
        assert_eq!(status(&outcome(End::Panicked, "[ 1.0] BUG: x")), PANIC);
        assert_eq!(status(&outcome(End::TimedOut, "")), TIME_OVER);
    }

    #[test]
    fn a_clean_end_says_nothing_and_a_bad_one_shows_the_log() {
        let log = Path::new("/log");
        assert!(describe_end(&outcome(End::Exited(1), "x"), log).is_empty());
        let lines =
            describe_end(&outcome(End::Exited(0), "[ 1.0] WARNING: CPU: 0 PID: 1\nx\n"), log);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let lines = describe_end(&outcome(End::TimedOut, "a\nb\n"), log);
        assert!(lines[0].contains("after 3 s") && lines[2] == "  b", "{lines:?}");
    }
}
