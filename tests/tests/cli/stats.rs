//! `odfork stats` as a user runs it: a living process, its forked child, the formats, the switch to
//! plain, and one line for every process that cannot be asked.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::stage::{
    bare, compiled, finish, mode, odfork, odfork_path, scratch, skip, start, Outcome,
};

/// The library beside the binary; other tests use a stub in its place.
fn library() -> Option<PathBuf> {
    let path = PathBuf::from(odfork_path()).with_file_name("libodfork.so");
    path.is_file().then_some(path)
}

/// A process that forks when it is told to, under the library.
struct Forker {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Forker {
    fn begin() -> Option<Forker> {
        let library = library()?;
        let mut command = Command::new(compiled("forker", "forker.c", &[]));
        command.env("LD_PRELOAD", library).env("ODFORK_FREEZE", "eager");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = start(&mut command).unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut forker = Forker { child, answers };
        forker.answer();
        Some(forker)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// `f`: forks, the child ends. `k`: forks, the child stays; tells its number.
    fn tell(&mut self, what: &str) -> String {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(what.as_bytes()).unwrap();
        self.answer()
    }

    fn stats(&self, words: &[&str]) -> Outcome {
        stats(&self.child.id().to_string(), words)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stats(&["--format", "json"]).silent().out).unwrap()
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stats(pid: &str, words: &[&str]) -> Outcome {
    finish(odfork(&["stats", pid]).args(words))
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {value}"))
}

#[test]
fn a_living_process_is_shown_and_made_plain() {
    let Some(mut forker) = Forker::begin() else { return skip("stats", "libodfork.so not built") };
    assert_eq!(forker.tell("f"), "done");
    let first = forker.json();
    assert_eq!(number(&first, "/fork/count"), 1);
    assert!(number(&first, "/stall/count") > 0);
    let text = forker.stats(&[]).silent().out;
    assert!(text.starts_with("odfork: forker (pid "), "{text}");
    if number(&first, "/frozen_bytes") == 0 {
        return skip("stats", "memory is not frozen here");
    }
    forker.stats(&["--plain"]).silent();
    assert_eq!(forker.tell("f"), "done");
    let plain = forker.json();
    assert_eq!((number(&plain, "/frozen_bytes"), &plain["engine"]), (0, &"plain".into()));
    assert_eq!(forker.tell("f"), "done");
    let text = forker.stats(&[]).silent().out;
    assert!(text.contains("unfrozen on demand"), "{text}");
    assert!(forker.stats(&["--plain"]).silent().out.contains("before"));
}

#[test]
fn a_forked_child_is_asked_like_any_other() {
    let Some(mut forker) = Forker::begin() else { return skip("stats", "libodfork.so not built") };
    let child = forker.tell("k");
    let found = stats(&child, &[]).silent().out;
    assert!(found.contains(&format!("(pid {child})")) && found.contains("parent's figures"));
    // SAFETY: ends the child this test made.
    unsafe { libc::kill(child.parse().unwrap(), libc::SIGKILL) };
}

#[test]
fn a_collector_reads_a_file_that_is_replaced_at_once() {
    let Some(mut forker) = Forker::begin() else { return skip("stats", "libodfork.so not built") };
    forker.tell("f");
    let folder = scratch();
    let file = folder.path().join("odfork.prom");
    fs::write(&file, "old").unwrap();
    mode(&file, 0o640);
    let words = ["--format", "prometheus", "--output", file.to_str().unwrap()];
    assert_eq!(forker.stats(&words).silent().out, "");
    let text = fs::read_to_string(&file).unwrap();
    let pid = forker.child.id();
    assert!(text.contains(&format!("odfork_forks_total{{pid=\"{pid}\",program=\"forker\"}} 1\n")));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let refused = forker.stats(&["--output", link.to_str().unwrap()]);
    assert!(one_line(&refused).contains("is a link") && link.is_symlink(), "{refused:?}");
    let pipe = folder.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: a valid path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut reader = start(bare("cat").arg(&pipe).stdout(Stdio::piped())).unwrap();
    forker.stats(&["--format", "json", "--output", pipe.to_str().unwrap()]).silent();
    let read = std::io::read_to_string(reader.stdout.take().unwrap()).unwrap();
    assert!(reader.wait().unwrap().success() && read.contains("forker"), "{read}");
    assert!(pipe.metadata().unwrap().file_type().is_fifo());
    let all = finish(&mut odfork(&["stats", "--all"])).silent().out;
    assert!(all.contains(&format!("forker (pid {pid})")), "{all}");
}

#[test]
fn who_cannot_be_asked_is_told_in_one_line() {
    let mut sleeper = start(bare("sleep").arg("60")).unwrap();
    let outcome = stats(&sleeper.id().to_string(), &[]);
    assert!(one_line(&outcome).contains("does not have odfork"), "{outcome:?}");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let gone = stats(&sleeper.id().to_string(), &[]);
    assert!(one_line(&gone).contains("cannot be read") && gone.code == Some(2), "{gone:?}");
}

/// The one line on standard error.
fn one_line(outcome: &Outcome) -> &str {
    assert!(outcome.err.starts_with("odfork stats: "), "{outcome:?}");
    assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
    &outcome.err
}

/// The report at the end is written where nobody reads, or where no file may be so long: on stock
/// the program would have ended well.
#[test]
fn a_report_that_cannot_be_written_ends_no_program() {
    let Some(library) = library() else {
        return skip("a_report_that_cannot_be_written", "libodfork.so is not built");
    };
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    let mut silent = Command::new("true");
    silent.stderr(std::os::fd::OwnedFd::from(writer));
    let mut small = Command::new("sh");
    let folder = scratch();
    small.args(["-c", "ulimit -f 0; exec true"]);
    small.env("ODFORK_STATS_FILE", folder.path().join("report"));
    for command in [&mut silent, &mut small] {
        let status = command.env("LD_PRELOAD", &library).env("ODFORK_STATS", "json").status();
        assert_eq!(status.unwrap().code(), Some(0));
    }
}

#[test]
fn a_program_that_writes_over_its_arguments_keeps_its_name() {
    let Some(library) = library() else { return skip("stats", "libodfork.so not built") };
    let mut command = Command::new(compiled("titled", "titled.c", &[]));
    command.env("LD_PRELOAD", library).env("ODFORK_STATS", "json");
    let report: Value = serde_json::from_str(&finish(&mut command).err).unwrap();
    assert_eq!(report["program"], "titled");
}
