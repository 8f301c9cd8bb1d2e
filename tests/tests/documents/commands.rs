//! One command line of a document: what in it does not exist.
//!
//! Knows `odfork` (its own parser judges), `make`, `cargo` and scripts of the repository. Other
//! programs are not ours.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use odfork_cli::cli;

/// What is wrong with each command of the line.
pub fn faults(line: &str, root: &Path) -> Vec<String> {
    commands_of(line).iter().filter_map(|words| fault(words, root)).collect()
}

fn fault(words: &[String], root: &Path) -> Option<String> {
    let (first, rest) = words.split_first()?;
    match first.rsplit('/').next()? {
        "sudo" | "time" | "exec" => fault(
            &rest.iter().skip_while(|word| word.starts_with('-')).cloned().collect::<Vec<_>>(),
            root,
        ),
        "odfork" => launcher(words),
        "make" => make(rest, root),
        "cargo" => cargo(rest, root),
        _ if first.contains('/') && !first.starts_with('/') && !first.starts_with("target/") => {
            let known = [".ci/", "tests/", "demo/", "kernel/", "examples/", "crates/"];
            let ours = known.iter().any(|folder| first.starts_with(folder));
            (ours && !root.join(first).is_file()).then(|| format!("there is no file {first}"))
        }
        _ => None,
    }
}

/// The launcher's own parser; where a document has a word in capitals, any value may stand.
fn launcher(words: &[String]) -> Option<String> {
    let words = words.iter().filter(|word| *word != "...");
    let error = cli::parse(words.clone().map(OsString::from)).err()?;
    let value = error.get(ContextKind::InvalidValue).or(error.get(ContextKind::InvalidArg));
    let is_placeholder = |text: &str| text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    match (error.kind(), value) {
        (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, _) => None,
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, _) => None,
        (
            ErrorKind::ValueValidation | ErrorKind::InvalidValue,
            Some(ContextValue::String(value)),
        ) if is_placeholder(value) => None,
        _ => {
            let line: Vec<&str> = words.map(String::as_str).collect();
            let why = error.to_string();
            Some(format!("{}: {}", line.join(" "), why.lines().next().unwrap_or_default()))
        }
    }
}

/// Its targets have a rule.
fn make(words: &[String], root: &Path) -> Option<String> {
    let makefile = fs::read_to_string(root.join("Makefile")).ok()?;
    let targets = words.iter().filter(|word| !word.starts_with('-') && !word.contains('='));
    let missing = targets.into_iter().find(|target| {
        let rule = format!("{target}:");
        !makefile.lines().any(|line| line.starts_with(&rule))
    })?;
    Some(format!("the Makefile has no target {missing}"))
}

/// The package, example, test and binary it names are there.
fn cargo(words: &[String], root: &Path) -> Option<String> {
    let value = |names: &[&str]| {
        let at = words.iter().position(|word| names.contains(&word.as_str()))?;
        words.get(at + 1).cloned()
    };
    let package = value(&["-p", "--package"])?;
    let manifest =
        manifests(root).into_iter().find(|text| text.contains(&format!("name = \"{package}\"\n")));
    let Some(manifest) = manifest else { return Some(format!("there is no package {package}")) };
    let folder = |kind: &str, name: &str| {
        let path = root.join("crates").join(&package).join(kind).join(name);
        path.with_extension("rs").is_file() || path.join("main.rs").is_file()
    };
    for (option, kind) in [("--example", "examples"), ("--test", "tests"), ("--bin", "src/bin")] {
        let Some(name) = value(&[option]) else { continue };
        if !manifest.contains(&format!("name = \"{name}\"")) && !folder(kind, &name) {
            return Some(format!("{package} has no {} {name}", &option[2..]));
        }
    }
    None
}

fn manifests(root: &Path) -> Vec<String> {
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let folders =
        crates.map(|entry| entry.path()).chain(["tests", "fuzz"].map(|name| root.join(name)));
    folders.filter_map(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok()).collect()
}

/// The commands between `&&`, `||`, `|` and `;`, without assignments in front, comments and
/// redirections. What follows three blanks is a remark, as in the documents' lists of commands.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut quote, mut blanks) = (String::new(), None, 0);
    let end = |word: &mut String, commands: &mut Vec<Vec<String>>| {
        let done = std::mem::take(word);
        if !done.is_empty() {
            commands.last_mut().unwrap().push(done);
        }
    };
    for c in line.chars() {
        blanks = if c == ' ' && quote.is_none() { blanks + 1 } else { 0 };
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if word.is_empty() => break,
            (None, ' ') if blanks == 3 => break,
            (None, ' ') => end(&mut word, &mut commands),
            (None, '|' | ';' | '&') => {
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            (None, c) => word.push(c),
        }
    }
    end(&mut word, &mut commands);
    commands.into_iter().map(plain).filter(|words| !words.is_empty()).collect()
}

fn plain(words: Vec<String>) -> Vec<String> {
    let is_assignment = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let words = words.into_iter().skip_while(is_assignment);
    words
        .take_while(|word| !word.starts_with('>') && !word.starts_with("2>") && word != "<")
        .collect()
}

#[test]
fn a_line_is_taken_apart() {
    let words = |line: &str| commands_of(line);
    assert_eq!(
        words("A=1 odfork run -- sh -c 'a && b' && make demo  # why"),
        [&["odfork", "run", "--", "sh", "-c", "a && b"][..], &["make", "demo"],]
    );
    assert_eq!(words("odfork doctor PID     a running process"), [["odfork", "doctor", "PID"]]);
    assert!(faults("odfork run -- true && odfork doctor PID && odfork --help", Path::new("."))
        .is_empty());
    assert_eq!(faults("odfork run --frieze eager -- true", Path::new(".")).len(), 1);
}
