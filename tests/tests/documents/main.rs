//! The documents: links lead somewhere, commands exist, and every text keeps to its size.
//!
//! Owns what is asked of the repository's Markdown files and of the pages the launcher prints.
//! `markdown` reads a file,
//! `commands` a command line.

mod commands;
mod markdown;
mod twice;

use std::fs;
use std::path::{Path, PathBuf};

use markdown::{Document, Kind};
use odfork_cli::{cli, pages};

/// Columns of a line outside of tables and code.
const COLUMNS: usize = 100;
/// Lines a document may have.
const LINES: [(&str, usize); 2] = [("README.md", 100), ("ARCHITECTURE.md", 200)];
const GLOSSARY_LINES: usize = 40;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Markdown file but what builds, runs and golden tests leave.
fn documents() -> Vec<Document> {
    let (mut folders, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && !path.is_symlink() {
                let skipped = name.starts_with('.')
                    || ["target", "build", "debian", "golden", "odfork-results"].contains(&&*name);
                folders.extend((!skipped).then_some(path));
            } else if name.ends_with(".md") {
                found.push(Document::read(&path, &root()));
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Fails with all faults, one a line.
fn expect_none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let all = documents();
    let mut faults = Vec::new();
    for document in &all {
        for (line, link) in document.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let is_elsewhere = link.contains("://") || link.starts_with("mailto:");
            let path = match file {
                "" => document.path.clone(),
                file => document.path.with_file_name("").join(file),
            };
            let found = fs::canonicalize(&path);
            let target = found.as_ref().ok().and_then(|path| all.iter().find(|d| d.is(path)));
            let has_anchor = anchor.is_empty()
                || target.is_some_and(|target| target.anchors().iter().any(|a| a == anchor));
            if !is_elsewhere && (found.is_err() || !has_anchor) {
                faults.push(format!("{}:{line}: ({link}) leads nowhere", document.name));
            }
        }
    }
    expect_none(faults);
}

#[test]
fn commands_exist() {
    let mut faults = Vec::new();
    for document in documents() {
        for (line, command) in document.commands() {
            let wrong = commands::faults(&command, &root()).into_iter();
            faults.extend(wrong.map(|why| format!("{}:{line}: {why}", document.name)));
        }
    }
    expect_none(faults);
}

#[test]
fn texts_keep_to_their_size() {
    let mut faults = Vec::new();
    for document in documents() {
        for (at, line) in document.lines.iter().enumerate() {
            let columns = line.text.chars().count();
            if line.kind == Kind::Text && columns > COLUMNS {
                faults.push(format!("{}:{}: {columns} columns", document.name, at + 1));
            }
        }
        let lines = document.lines.len();
        if let Some((_, most)) =
            LINES.iter().find(|(name, most)| *name == document.name && lines > *most)
        {
            faults.push(format!("{}: {lines} lines, at most {most} are allowed", document.name));
        }
        let glossary = document.section("glossary");
        if glossary > GLOSSARY_LINES {
            faults.push(format!(
                "{}: a glossary of {glossary} lines, at most {GLOSSARY_LINES}",
                document.name
            ));
        }
    }
    expect_none(faults);
}

/// The name of a row of the plan: M and two digits, as a word.
fn row_name(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_alphanumeric()).find(|word| {
        word.len() == 3
            && word.starts_with('M')
            && word[1..].bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[test]
fn no_row_of_the_plan_is_shown_to_users() {
    let mut texts: Vec<(String, String)> = documents()
        .into_iter()
        .map(|document| {
            let lines: Vec<String> = document.lines.into_iter().map(|line| line.text).collect();
            (document.name, lines.join("\n"))
        })
        .collect();
    for page in pages::page_names() {
        let text = pages::manual(&page).unwrap();
        texts.push((format!("man {page}"), String::from_utf8_lossy(&text).into_owned()));
    }
    help_pages(&cli::command(), &mut texts);
    let rows = texts.iter().filter_map(|(name, text)| Some(format!("{name}: {}", row_name(text)?)));
    expect_none(rows.collect());
}

fn help_pages(command: &clap::Command, texts: &mut Vec<(String, String)>) {
    texts.push((
        format!("help of {}", command.get_name()),
        command.clone().render_long_help().to_string(),
    ));
    command.get_subcommands().for_each(|command| help_pages(command, texts));
}
