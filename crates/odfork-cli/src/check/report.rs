//! What `odfork check` prints: the table, the eligibility of a program, or both as JSON.
//!
//! Layout only. The JSON object carries a schema number; a field is added freely, and the number
//! grows when one changes its meaning or goes.

use std::fmt::Write;

use serde_json::{json, Value};

use super::remedies::{remedies, threads, Aim, Remedy};
use super::{image_kind, look, obstacle, Finding, Mark};
use odfork_proc::cow_fork;

use crate::eligibility::{inspect, Answer, Eligibility, Refusal};
use crate::environment::Environment;
use crate::launch::{check_status, perhaps_runnable, refusal_line};
use crate::library::{search, Search};
use crate::options::ENGINE;

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
    let eligibility = program.map(|program| inspect(program, environment));
    let findings = if eligibility.is_none() || as_json { look() } else { Vec::new() };
    let status = match &eligibility {
        Some(eligibility) if by_kernel(eligibility, environment) => 0,
        Some(eligibility) => check_status(&eligibility.answer),
        None => i32::from(image_kind(&findings) == "none" || library.outcome.is_err()),
    };
    let text = match &eligibility {
        _ if as_json => {
            format!("{}\n", as_value(&findings, &library, eligibility.as_ref(), environment))
        }
        Some(eligibility) => program_text(eligibility, &library, environment),
        None => table(&findings, &library),
    };
    Report { text, status }
}

/// The library is kept out, and the running kernel does not need it.
fn by_kernel(eligibility: &Eligibility, environment: &Environment) -> bool {
    let willing = match &eligibility.answer {
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
    advice(&mut text, &remedies(findings));
    let _ = writeln!(text, "\n{}", conclusion(findings, library));
    text
}

fn advice(text: &mut String, remedies: &[Remedy]) {
    for aim in [Aim::Freezing, Aim::Pages, Aim::Threads] {
        let mut changes = remedies.iter().filter(|remedy| remedy.aim == aim).peekable();
        if changes.peek().is_some() {
            let _ = writeln!(text, "\n{}, any of these:", aim.words());
            changes.for_each(|remedy| wrap(text, "- ", &remedy.change));
        }
    }
}

/// What holds for programs without threads, and for those with.
fn conclusion(findings: &[Finding], library: &Search) -> String {
    if let Some(Finding { probe, .. }) = obstacle(findings) {
        return format!("In short: every fork stays plain: {}: no.", probe.title);
    }
    if library.outcome.is_err() {
        return "In short: every fork stays plain: there is no libodfork.so.".to_owned();
    }
    let image = match image_kind(findings) {
        "huge" => "a huge image",
        "huge-userns" => "a huge image (user namespace)",
        "huge-memfd" => "a huge image (memfd)",
        "huge-dir" => "a huge image (directory)",
        "small" => "a 4 KB image",
        _ => return "In short: no image can be made here; every fork stays plain.".to_owned(),
    };
    match threads(findings) {
        true => format!("In short: {image}, for programs with threads too."),
        false => format!("In short: {image}; programs with threads stay plain."),
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

fn program_text(eligibility: &Eligibility, library: &Search, environment: &Environment) -> String {
    let mut text = format!("{}\n", sentence(eligibility, environment));
    if let [first, ..] = eligibility.chain.as_slice() {
        let chain: Vec<String> =
            eligibility.chain.iter().map(|path| path.display().to_string()).collect();
        if chain.len() > 1 || first.as_os_str() != eligibility.name {
            let _ = writeln!(text, "  file: {}", chain.join(" -> "));
        }
    }
    if let (Err(problem), Answer::Yes | Answer::Unknown(_)) =
        (&library.outcome, &eligibility.answer)
    {
        let _ = writeln!(text, "  but {}", library.complaint(problem));
    }
    text
}

fn sentence(eligibility: &Eligibility, environment: &Environment) -> String {
    let name = eligibility.name.to_string_lossy();
    match &eligibility.answer {
        Answer::Yes => format!("yes: {name} can be accelerated"),
        Answer::Unknown(why) => format!("perhaps: {why}; odfork run tries it"),
        Answer::No(refusal) if by_kernel(eligibility, environment) => {
            format!("yes: {name} {}, but the kernel engine takes it", refusal.why())
        }
        Answer::No(refusal) => format!("no: {}", refusal_line(eligibility, refusal)),
        Answer::CannotRun(obstacle) => {
            format!("no: '{name}' cannot run: {}", obstacle.words(&eligibility.name, environment))
        }
    }
}

fn as_value(
    findings: &[Finding],
    library: &Search,
    eligibility: Option<&Eligibility>,
    environment: &Environment,
) -> Value {
    let probes: Vec<Value> = findings
        .iter()
        .map(|Finding { probe, seen }| {
            let meaning = if seen.mark == Mark::Yes { probe.if_yes } else { probe.if_not };
            json!({"id": probe.id, "title": probe.title, "answer": word(seen.mark),
                   "found": seen.found,
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
        "threads": threads(findings),
        "remedies": remedies_value(findings),
        "probes": probes,
        "library": {
            "path": library.outcome.as_ref().ok().map(|path| path.display().to_string()),
            "problem": library.outcome.as_ref().err().map(|problem| library.complaint(problem)),
            "looked": looked,
        },
        "program": eligibility.map(|eligibility| program_value(eligibility, environment)),
    })
}

fn remedies_value(findings: &[Finding]) -> Vec<Value> {
    let all = remedies(findings);
    all.iter().map(|one| json!({"aim": one.aim.words(), "change": one.change})).collect()
}

fn program_value(eligibility: &Eligibility, environment: &Environment) -> Value {
    let (answer, kind, why, change) = match &eligibility.answer {
        Answer::Yes => ("yes", "dynamic", String::new(), ""),
        Answer::Unknown(why) => ("perhaps", "unknown", why.clone(), ""),
        Answer::No(refusal) if by_kernel(eligibility, environment) => {
            ("yes", refusal.kind(), refusal.why(), "")
        }
        Answer::No(refusal) => ("no", refusal.kind(), refusal.why(), refusal.advice()),
        Answer::CannotRun(obstacle) => {
            ("cannot-run", "cannot-run", obstacle.words(&eligibility.name, environment), "")
        }
    };
    let chain: Vec<String> =
        eligibility.chain.iter().map(|path| path.display().to_string()).collect();
    json!({"name": eligibility.name.to_string_lossy(), "files": chain, "accelerated": answer,
           "kind": kind, "why": why,
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
