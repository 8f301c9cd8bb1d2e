//! The program that is spawned: says what it finds itself to be, one `key value` in a line.
//!
//! Owns the reading, in the probe, and the parsing, in the case. Rust's start ignores SIGPIPE,
//! opens closed standard descriptors and handles SIGSEGV: cases about those spawn other programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use odfork_spawn::{Command, Stdio};

pub type Found = BTreeMap<String, String>;

/// To start the probe.
pub fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--probe").stdout(Stdio::piped());
    command
}

/// Starts it and reads what it says.
pub fn found(command: &mut Command) -> Found {
    let child = command.spawn().expect("the probe starts");
    let output = child.wait_with_output().expect("the probe's words");
    assert!(output.status.success(), "{output:?}");
    parse(&String::from_utf8(output.stdout).unwrap())
}

pub fn parse(text: &str) -> Found {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// What this process is, in the same words.
pub fn own() -> Found {
    parse(&words())
}

pub fn report() -> ExitCode {
    print!("{}", words());
    ExitCode::SUCCESS
}

fn words() -> String {
    let mut text = String::new();
    let listed: Vec<String> = crate::kernel::descriptors().iter().map(i32::to_string).collect();
    writeln!(text, "fds {}", listed.join(" ")).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    for key in [
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "SigPnd",
        "ShdPnd",
        "Umask",
        "NoNewPrivs",
        "Groups",
        "Uid",
        "Gid",
        "Seccomp",
    ] {
        let value = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        writeln!(
            text,
            "{key} {}",
            value.unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
        )
        .unwrap();
    }
    // SAFETY: no arguments, or numbers only.
    unsafe {
        writeln!(text, "pid {}", libc::getpid()).unwrap();
        writeln!(text, "sid {}", libc::getsid(0)).unwrap();
        writeln!(text, "pgid {}", libc::getpgid(0)).unwrap();
        writeln!(text, "dumpable {}", libc::prctl(libc::PR_GET_DUMPABLE)).unwrap();
        let mut timer: libc::itimerval = std::mem::zeroed();
        libc::getitimer(libc::ITIMER_REAL, &mut timer);
        writeln!(text, "timer {} {}", timer.it_value.tv_sec, timer.it_value.tv_usec).unwrap();
        let mut signal = 0i32;
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal);
        writeln!(text, "pdeath {signal}").unwrap();
        for resource in 0..16u32 {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(resource, &mut limit);
            writeln!(text, "limit{resource} {} {}", limit.rlim_cur, limit.rlim_max).unwrap();
        }
    }
    writeln!(text, "cwd {}", std::env::current_dir().unwrap().display()).unwrap();
    text
}
