//! `odfork page trace`: the page references of a real program, recorded by valgrind's tool lackey.
//!
//! Valgrind runs the program and writes every access into a pipe; `filter` makes page references of
//! them, `sink` writes these plain or packed. A program can mark anomalous phases by writing
//! `# anomalous on` and `# anomalous off` to the descriptor that ODFORK_PAGE_MARKS names: it is the
//! same pipe, so the marks stand where they belong.

mod filter;
mod sink;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitStatus, Stdio};

use anyhow::{bail, ensure, Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use odfork_proc::interrupt;

use filter::Filter;
use sink::Sink;

const MARKS: &str = "ODFORK_PAGE_MARKS";

const HELP: &str = "\
Examples:
  odfork page trace -- sort words.txt                   into sort.trace.gz
  odfork page trace --out cc1.zst --window 8 -- cc1 -O2 x.c -o x.s
  odfork page trace --process gc -- python3 program.py  with a process column

The program runs 50 to 200 times slower. Its children are not traced. A run of
references to one page is one line; with --window N a reference to one of the N
pages referenced last is left out (unless it is the first write): files become
much smaller, counts of LRU in memories of N frames and more stay the same, those of
other policies nearly so.

A program may write '# anomalous on' and '# anomalous off' to the descriptor
named by the variable ODFORK_PAGE_MARKS when it enters and leaves a phase for
which it would give advice (a garbage collection).

Exit status: that of the program (128 and the number when a signal ended it);
2 when it could not be traced.";

pub fn command() -> Command {
    Command::new("trace")
        .about("Record the page references of a program, by valgrind")
        .after_help(HELP)
        .override_usage("odfork page trace [OPTIONS] [--] COMMAND [ARGS]...")
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .value_parser(clap::value_parser!(PathBuf))
                .help(
                    "Trace to write; packed if it ends in .gz or .zst [default: COMMAND.trace.gz]",
                ),
        )
        .arg(
            Arg::new("window")
                .long("window")
                .value_name("N")
                .default_value("1")
                .value_parser(clap::value_parser!(u16).range(1..=1024))
                .help("Leave out references to one of the N pages referenced last"),
        )
        .arg(
            Arg::new("data").long("data").action(ArgAction::SetTrue).help("Leave out instructions"),
        )
        .arg(
            Arg::new("page-size")
                .long("page-size")
                .value_name("BYTES")
                .default_value("4096")
                .value_parser(clap::value_parser!(u64).range(1..=1 << 40))
                .help("Size of a page, a power of two"),
        )
        .arg(
            Arg::new("process")
                .long("process")
                .value_name("NAME")
                .help("Write this word into a process column"),
        )
        .arg(
            Arg::new("words")
                .value_names(["COMMAND", "ARGS"])
                .help("The program and its arguments")
                .value_parser(clap::value_parser!(OsString))
                .num_args(1..)
                .required(true)
                .trailing_var_arg(true)
                .value_hint(ValueHint::CommandWithArguments),
        )
}

pub fn run(matches: &ArgMatches) -> Result<u8> {
    let words: Vec<&OsString> = matches.get_many("words").into_iter().flatten().collect();
    let page_size: u64 = matches.get_one("page-size").copied().unwrap_or(4096);
    ensure!(
        page_size.is_power_of_two(),
        "--page-size cannot be '{page_size}': it should be a power of two, as 4096"
    );
    let process = matches.get_one::<String>("process").map(String::as_str);
    if let Some(name) = process {
        let plain = name.bytes().all(|b| b.is_ascii_graphic() && b != b',' && b != b'#');
        ensure!(
            plain && !name.is_empty() && !["r", "w", "R", "W"].contains(&name),
            "--process cannot be '{name}': it should be one word other than r and w"
        );
    }
    let out = matches.get_one::<PathBuf>("out").cloned().unwrap_or_else(|| default_name(words[0]));
    interrupt::listen();
    let mut sink = Sink::create(&out)?;
    let window: u16 = matches.get_one("window").copied().unwrap_or(1);
    let mut filter =
        Filter::new(page_size.trailing_zeros(), window.into(), matches.get_flag("data"), process);
    let words: Vec<OsString> = words.into_iter().cloned().collect();
    let done = record(start(&words, Stdio::inherit())?, &mut filter, &mut sink);
    let size = sink.finish().with_context(|| format!("cannot write {}", out.display()))?;
    let status = done?;
    if filter.written == 0 {
        let _ = std::fs::remove_file(&out);
        bail!(
            "nothing was traced: the program did not start under valgrind, or is not one that \
               valgrind can run"
        );
    }
    eprintln!(
        "odfork page trace: {}: {} references of {} accesses, {} pages, {:.1} MB{}",
        out.display(),
        filter.written,
        filter.accesses,
        filter.pages(),
        size as f64 / 1e6,
        if interrupt::asked() { "; interrupted" } else { "" }
    );
    Ok(exit_status(status))
}

fn default_name(program: &OsString) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program);
    PathBuf::from(format!("{}.trace.gz", name.to_string_lossy()))
}

fn exit_status(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8
}

/// Records a program whose output nobody reads; an error when it fails.
pub fn record_file(words: &[OsString], out: &Path, window: usize) -> Result<()> {
    let mut sink = Sink::create(out)?;
    let mut filter = Filter::new(12, window, false, None);
    let done = record(start(words, Stdio::null())?, &mut filter, &mut sink);
    sink.finish().with_context(|| format!("cannot write {}", out.display()))?;
    let status = done?;
    ensure!(status.success(), "{} failed: {status}", words[0].to_string_lossy());
    Ok(())
}

fn record(
    (mut child, log): (Child, OwnedFd),
    filter: &mut Filter,
    sink: &mut Sink,
) -> Result<ExitStatus> {
    let mut log = BufReader::with_capacity(1 << 20, File::from(log));
    let read = copy(&mut log, filter, sink);
    // Without a reader valgrind ends by SIGPIPE, so the wait cannot last.
    drop(log);
    let status = child.wait().context("cannot wait for valgrind")?;
    read?;
    Ok(status)
}

/// Lines end in a newline; valgrind's own begin with `==`.
fn copy(log: &mut impl BufRead, filter: &mut Filter, sink: &mut Sink) -> Result<()> {
    let mut line = Vec::new();
    loop {
        let buffer = match log.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read what valgrind writes"),
        };
        if buffer.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        while let Some(length) = buffer[at..].iter().position(|&byte| byte == b'\n') {
            if line.is_empty() {
                filter.line(&buffer[at..at + length], sink);
            } else {
                line.extend_from_slice(&buffer[at..at + length]);
                filter.line(&line, sink);
                line.clear();
            }
            at += length + 1;
        }
        line.extend_from_slice(&buffer[at..]);
        let used = buffer.len();
        log.consume(used);
        sink.check()?;
    }
}

/// The program under valgrind, and the end of the pipe to read.
fn start(words: &[OsString], output: Stdio) -> Result<(Child, OwnedFd)> {
    // Inherited on purpose, twice: valgrind takes the first for itself, the program finds the
    // second under its number.
    let (reader, log) = rustix::pipe::pipe().context("cannot make a pipe")?;
    let marks = rustix::io::dup(&log).context("cannot duplicate a pipe")?;
    rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::CLOEXEC)
        .context("cannot set up a pipe")?;
    let child = Process::new("valgrind")
        .args(["-q", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes"])
        .arg(format!("--log-fd={}", log.as_raw_fd()))
        .arg("--")
        .args(words)
        .stdout(output)
        .env(MARKS, marks.as_raw_fd().to_string())
        .spawn();
    match child {
        Ok(child) => Ok((child, reader)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "valgrind is needed to record a trace and is not installed (Debian: apt-get \
                   install valgrind)"
            )
        }
        Err(error) => Err(error).context("cannot start valgrind"),
    }
}
