//! A Markdown file as lines of known kind, with its headings, links and command lines.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Table,
    /// A line of code that may hold a command.
    Shell,
    /// Other code, and the fences.
    Code,
}

#[derive(Debug)]
pub struct Line {
    pub text: String,
    pub kind: Kind,
}

#[derive(Debug)]
pub struct Document {
    pub path: PathBuf,
    /// As seen from the repository.
    pub name: String,
    pub lines: Vec<Line>,
}

impl Document {
    /// # Panics
    /// The file cannot be read.
    pub fn read(path: &Path, root: &Path) -> Document {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let path = fs::canonicalize(path).unwrap();
        Document { path, name, lines: classify(&text) }
    }

    pub fn is(&self, path: &Path) -> bool {
        self.path == path
    }

    fn headings(&self) -> impl Iterator<Item = (usize, &str)> {
        let text = self.lines.iter().enumerate().filter(|(_, line)| line.kind == Kind::Text);
        text.filter(|(_, line)| line.text.starts_with('#'))
            .map(|(at, line)| (at, line.text.trim_start_matches('#').trim()))
    }

    /// Names of the headings as links use them; of equal ones the second ends with -1.
    pub fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, heading) in self.headings() {
            let anchor = slug(heading);
            let equal = anchors.iter().filter(|known| **known == anchor).count();
            anchors.push(if equal == 0 { anchor } else { format!("{anchor}-{equal}") });
        }
        anchors
    }

    /// Lines of the section with this anchor, its heading included; 0 without one.
    pub fn section(&self, anchor: &str) -> usize {
        let headings: Vec<(usize, &str)> = self.headings().collect();
        let Some(at) = headings.iter().position(|(_, heading)| slug(heading) == anchor) else {
            return 0;
        };
        let end = headings.get(at + 1).map_or(self.lines.len(), |(line, _)| *line);
        end - headings[at].0
    }

    /// Targets of `[text](target)`, with their line numbers.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if matches!(line.kind, Kind::Shell | Kind::Code) {
                continue;
            }
            let plain = without_code(&line.text);
            let mut rest = plain.as_str();
            while let Some((_, after)) = rest.split_once("](") {
                let (target, tail) = after.split_once(')').unwrap_or((after, ""));
                links.push((at + 1, target.trim().to_owned()));
                rest = tail;
            }
        }
        links
    }

    /// Lines of code without prompt and comment, continued ones joined, with their line numbers.
    pub fn commands(&self) -> Vec<(usize, String)> {
        let mut commands: Vec<(usize, String)> = Vec::new();
        let mut goes_on = false;
        for (at, line) in self.lines.iter().enumerate().filter(|(_, line)| line.kind == Kind::Shell)
        {
            let text = line.text.trim();
            let text = text.strip_prefix("$ ").unwrap_or(text);
            let (text, continued) = match text.strip_suffix('\\') {
                Some(text) => (text, true),
                None => (text, false),
            };
            match commands.last_mut() {
                Some((_, last)) if goes_on => last.push_str(text),
                _ => commands.push((at + 1, text.to_owned())),
            }
            goes_on = continued;
        }
        commands
    }
}

fn classify(text: &str) -> Vec<Line> {
    // In a fence: whether it may hold commands.
    let mut fence: Option<bool> = None;
    let mut after_blank = true;
    let line = |line: &str| {
        let kind = match (line.trim_start().strip_prefix("```"), fence) {
            (Some(language), None) => {
                fence = Some(["", "console", "sh", "bash"].contains(&language.trim()));
                Kind::Code
            }
            (Some(_), Some(_)) => {
                fence = None;
                Kind::Code
            }
            (None, Some(true)) => Kind::Shell,
            (None, Some(false)) => Kind::Code,
            (None, None) if line.starts_with("    ") && after_blank => Kind::Shell,
            (None, None) if line.trim_start().starts_with('|') => Kind::Table,
            (None, None) => Kind::Text,
        };
        // An indented block goes on; an indented line of a paragraph is none.
        after_blank = line.trim().is_empty() || kind == Kind::Shell;
        Line { text: line.to_owned(), kind }
    };
    text.lines().map(line).collect()
}

/// As GitHub makes anchors of headings.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}
