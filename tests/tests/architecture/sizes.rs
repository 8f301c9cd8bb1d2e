//! How long lines, functions and files are.
//!
//! Owns reading the files that git knows. Columns are counted for Rust, C and Python; functions and
//! files for Rust. A row of a table in a comment cannot be wrapped.

use std::fs;
use std::path::Path;
use std::process::Command;

const COLUMNS: usize = 100;
const FUNCTION: usize = 60;
const FILE: usize = 450;

/// What is too long, one a line.
pub fn excesses(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in tracked(root) {
        let text = fs::read_to_string(root.join(&name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let columns = line.chars().count();
            let is_row = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
            if columns > COLUMNS && !is_row {
                found.push(format!("{name}:{}: {columns} columns", at + 1));
            }
        }
        if name.ends_with(".rs") {
            found.extend(long_functions(&lines).map(|what| format!("{name}:{what}")));
            if lines.len() > FILE {
                found.push(format!("{name}: {} lines", lines.len()));
            }
        }
    }
    found
}

fn tracked(root: &Path) -> Vec<String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "*.rs", "*.c", "*.h", "*.py"]).current_dir(root);
    let output = git.output().expect("git runs");
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// From its `fn` to the closing brace at the same depth: the formatter indents.
fn long_functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
    let starts = lines.iter().enumerate().filter(|(_, line)| begins_function(line));
    starts.filter_map(|(at, line)| {
        let indent = line.len() - line.trim_start().len();
        let closes = |other: &&str| other.len() > indent && other[indent..].starts_with('}');
        let ends = |other: &&str| other.trim_start().len() + indent == other.len() && closes(other);
        let length = 1 + lines[at..].iter().position(ends)?;
        (length > FUNCTION).then(|| format!("{}: a function of {length} lines", at + 1))
    })
}

fn begins_function(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "fn").collect();
    let leads = |word: &&str| {
        word.starts_with("pub") || ["const", "unsafe", "extern", "\"C\"", "async"].contains(word)
    };
    line.split_whitespace().any(|word| word == "fn") && words.iter().all(leads)
}
