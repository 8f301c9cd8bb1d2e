//! The `odfork` command: runs programs with libodfork.so preloaded, and says what this machine can
//! do for them.
//!
//! This file reads the command line, carries out one request and gives the exit status. The way of
//! `odfork run` is in `launch`; nothing here may change the process before that (see main.rs).

mod carried;
mod check;
pub mod cli;
mod counted;
mod elf;
mod eligibility;
mod engine;
mod environment;
mod image;
mod launch;
mod library;
mod lookup;
mod message;
mod options;
mod page;
pub mod pages;
mod privilege;
mod script;
mod stats;
mod usage;
mod zygote;

use std::ffi::{c_int, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use cli::Request;
use environment::Environment;
use message::say;
use usage::Reply;

const FAILURE: c_int = 1;
const WRONG_USAGE: c_int = 2;

/// The program; returns the exit status unless it became another program.
pub fn main() -> c_int {
    let words: Vec<OsString> = std::env::args_os().collect();
    match cli::parse(words.iter().cloned()) {
        Ok(request) => carry_out(request),
        Err(error) => {
            let typed: Vec<String> =
                words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            match usage::reply(&error, &typed) {
                Reply::Page(page) => print(page.as_bytes()),
                Reply::Complaint(line) => {
                    say(&line);
                    WRONG_USAGE
                }
            }
        }
    }
}

fn carry_out(request: Request) -> c_int {
    carried::unpack();
    let environment = Environment::inherited();
    match request {
        Request::Run(run) => launch::run(run, &environment),
        Request::Check { program, json } => {
            let report = check::report::check(program.as_deref(), json, &environment);
            match print(report.text.as_bytes()) {
                0 => report.status,
                failure => failure,
            }
        }
        Request::Completions(shell) => print(&pages::completions(shell)),
        Request::Man { folder: Some(folder), .. } => write_manuals(&folder),
        Request::Man { page, folder: None } => match pages::manual(&page) {
            Ok(text) => print(&text),
            Err(error) => fail(&format!("the page '{page}' could not be made: {error}")),
        },
        Request::Tool(one, matches) => {
            occupy_standard_descriptors();
            end_when_output_fails();
            c_int::from((one.run)(&matches))
        }
        Request::Options => print(pages::options_markdown().as_bytes()),
    }
}

/// A file opened in the place of a closed standard output would get what is printed. A program
/// executed finds them closed again.
fn occupy_standard_descriptors() {
    while let Ok(file) = File::options().read(true).write(true).open("/dev/null") {
        if file.as_raw_fd() > 2 {
            break;
        }
        // Open as long as this program runs.
        std::mem::forget(file);
    }
}

/// `print!` panics where its output cannot be written (a full disk): one line says so instead.
fn end_when_output_fails() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>();
        match said.and_then(|said| said.strip_prefix("failed printing to stdout: ")) {
            Some(why) => {
                say(&format!("cannot write to standard output: {why}"));
                std::process::exit(FAILURE)
            }
            None => usual(info),
        }
    }));
}

fn write_manuals(folder: &Path) -> c_int {
    match pages::write_manuals(folder) {
        Ok(()) => 0,
        Err(error) => {
            fail(&format!("cannot write manual pages into {}: {error}", folder.display()))
        }
    }
}

fn fail(line: &str) -> c_int {
    say(line);
    FAILURE
}

/// Everything at once; a reader that went away (`odfork man | head`) is not worth a word.
fn print(text: &[u8]) -> c_int {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => FAILURE,
        Err(error) => fail(&format!("cannot write to standard output: {error}")),
    }
}
