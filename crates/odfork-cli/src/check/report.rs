//! What `odfork check` prints: the table, the verdict about a program, or both as JSON.
//!
//! Layout only. The JSON object carries a schema number; a field is added freely, and the number
//! grows when one changes its meaning or goes.

use std::fmt::Write;

use serde_json::{json, Value};

use super::{image_kind, look, Finding, Mark};
use odfork_proc::cow_fork;

use crate::environment::Environment;
use crate::launch::{check_status, perhaps_runnable, refusal_line};
use crate::library::{search, Search};
use crate::options::ENGINE;
use crate::verdict::{examine, Answer, Refusal, Verdict};

pub const SCHEMA: u32 = 1;
pub const TITLE_WIDTH: usize = 26;
const WIDTH: usize = 80;
const INDENT: &str = "        ";

/// Text to print and the exit status.
pub struct Report {
    pub text: String,
    pub status: i32,
}

/// The whole command.
pub fn check(
    program: Option<&std::ffi::OsStr>,
    as_json: bool,
    environment: &Environment,
) -> Report {
    let library = search(environment);
    let verdict = program.map(|program| examine(program, environment));
    let findings = if verdict.is_none() || as_json { look() } else { Vec::new() };
    let status = match &verdict {
        Some(verdict) if by_kernel(verdict, environment) => 0,
        Some(verdict) => check_status(&verdict.answer),
        None => i32::from(image_kind(&findings) == "none"),
    };
    let text = match &verdict {
        _ if as_json => {
            format!("{}\n", as_value(&findings, &library, verdict.as_ref(), environment))
        }
        Some(verdict) => program_text(verdict, &library, environment),
        None => table(&findings, &library),
    };
    Report { text, status }
}

/// The library is kept out, and the running kernel does not need it.
fn by_kernel(verdict: &Verdict, environment: &Environment) -> bool {
    let willing = match &verdict.answer {
        Answer::No(Refusal::Privileged(_)) => false,
        Answer::No(Refusal::Foreign(header)) => perhaps_runnable(header),
        Answer::No(_) => true,
        _ => false,
    };
    let image = environment.get(ENGINE).is_some_and(|engine| engine == "image");
    willing && !image && cow_fork::support().usable()
}

fn word(mark: Mark) -> &'static str {
    match mark {
        Mark::Yes => "yes",
        Mark::Partly => "partly",
        Mark::No => "no",
    }
}

fn table(findings: &[Finding], library: &Search) -> String {
    let mut text = String::from(
        "What this machine and this user can do for odfork (each tried just now):\n\n",
    );
    for finding in findings {
        let Finding { probe, seen } = finding;
        let _ =
            writeln!(text, "{:<6}  {:<TITLE_WIDTH$}  {}", word(seen.mark), probe.title, seen.found);
        let meaning = if seen.mark == Mark::Yes { probe.if_yes } else { probe.if_not };
        wrap(&mut text, "", meaning);
        if seen.mark != Mark::Yes {
            wrap(&mut text, "To change: ", probe.change);
        }
    }
    match &library.outcome {
        Ok(path) => {
            let _ = writeln!(
                text,
                "{:<6}  {:<TITLE_WIDTH$}  {}",
                "yes",
                "libodfork.so",
                path.display()
            );
        }
        Err(problem) => {
            let _ = writeln!(
                text,
                "{:<6}  {:<TITLE_WIDTH$}  programs run with plain fork",
                "no", "libodfork.so"
            );
            wrap(&mut text, "", &library.complaint(problem));
        }
    }
    if findings.iter().any(|found| found.probe.id == "kernel" && found.seen.mark == Mark::Yes) {
        text.push_str("\nForks share page tables here (kernel engine). With --engine image:");
    }
    let _ = writeln!(text, "\n{}", conclusion(image_kind(findings)));
    text
}

fn conclusion(kind: &str) -> &'static str {
    match kind {
        "huge" => "In short: programs of this user get a huge image.",
        "huge-userns" => {
            "In short: programs of this user get a huge image, through a user namespace."
        }
        "small" => "In short: programs of this user get a 4 KB image.",
        _ => "In short: no image can be made here; every fork stays plain.",
    }
}

/// Breaks words into lines of the page's width, all indented.
fn wrap(text: &mut String, label: &str, words: &str) {
    let mut line = format!("{INDENT}{label}");
    let mut fresh = true;
    for word in words.split_whitespace() {
        if !fresh && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = INDENT.to_owned();
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    let _ = writeln!(text, "{line}");
}

fn program_text(verdict: &Verdict, library: &Search, environment: &Environment) -> String {
    let mut text = format!("{}\n", sentence(verdict, environment));
    if let [first, ..] = verdict.chain.as_slice() {
        let chain: Vec<String> =
            verdict.chain.iter().map(|path| path.display().to_string()).collect();
        if chain.len() > 1 || first.as_os_str() != verdict.name {
            let _ = writeln!(text, "  file: {}", chain.join(" -> "));
        }
    }
    if let (Err(problem), Answer::Yes | Answer::Unknown(_)) = (&library.outcome, &verdict.answer) {
        let _ = writeln!(text, "  but {}", library.complaint(problem));
    }
    text
}

fn sentence(verdict: &Verdict, environment: &Environment) -> String {
    let name = verdict.name.to_string_lossy();
    match &verdict.answer {
        Answer::Yes => format!("yes: {name} can be accelerated"),
        Answer::Unknown(why) => format!("perhaps: {why}; odfork run tries it"),
        Answer::No(refusal) if by_kernel(verdict, environment) => {
            format!("yes: {name} {}, but the kernel engine takes it", refusal.why())
        }
        Answer::No(refusal) => format!("no: {}", refusal_line(verdict, refusal)),
        Answer::CannotRun(obstacle) => {
            format!("no: '{name}' cannot run: {}", obstacle.words(&verdict.name, environment))
        }
    }
}

fn as_value(
    findings: &[Finding],
    library: &Search,
    verdict: Option<&Verdict>,
    environment: &Environment,
) -> Value {
    let probes: Vec<Value> = findings
        .iter()
        .map(|Finding { probe, seen }| {
            let meaning = if seen.mark == Mark::Yes { probe.if_yes } else { probe.if_not };
            json!({"id": probe.id, "title": probe.title, "answer": word(seen.mark), "found": seen.found,
                   "meaning": meaning, "change": probe.change})
        })
        .collect();
    let looked: Vec<String> =
        library.looked.iter().map(|place| place.display().to_string()).collect();
    json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": rustix::system::uname().release().to_string_lossy(),
        "uid": rustix::process::geteuid().as_raw(),
        "image": image_kind(findings),
        "probes": probes,
        "library": {
            "path": library.outcome.as_ref().ok().map(|path| path.display().to_string()),
            "problem": library.outcome.as_ref().err().map(|problem| library.complaint(problem)),
            "looked": looked,
        },
        "program": verdict.map(|verdict| program_value(verdict, environment)),
    })
}

fn program_value(verdict: &Verdict, environment: &Environment) -> Value {
    let (answer, kind, why, change) = match &verdict.answer {
        Answer::Yes => ("yes", "dynamic", String::new(), ""),
        Answer::Unknown(why) => ("perhaps", "unknown", why.clone(), ""),
        Answer::No(refusal) if by_kernel(verdict, environment) => {
            ("yes", refusal.kind(), refusal.why(), "")
        }
        Answer::No(refusal) => ("no", refusal.kind(), refusal.why(), refusal.advice()),
        Answer::CannotRun(obstacle) => {
            ("cannot-run", "cannot-run", obstacle.words(&verdict.name, environment), "")
        }
    };
    let chain: Vec<String> = verdict.chain.iter().map(|path| path.display().to_string()).collect();
    json!({"name": verdict.name.to_string_lossy(), "files": chain, "accelerated": answer, "kind": kind, "why": why,
           "change": change})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_the_page_width() {
        let mut text = String::new();
        wrap(&mut text, "To change: ", &"words ".repeat(40));
        assert!(text.lines().count() > 2);
        assert!(text.lines().all(|line| line.len() <= WIDTH && line.starts_with(INDENT)));
        assert_eq!(text.split_whitespace().count(), 42);
    }
}
