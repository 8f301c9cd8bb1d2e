//! The one-line language between the driver and a subject. Pure: text in, values out.
//!
//! A command is a word and perhaps a number. An answer begins with a verdict: `ok` with labelled
//! numbers, `text` with words, `na` when this subject cannot do it (no engine loaded), `wrong` when
//! the content of memory was not what it must be. Numbers are nanoseconds unless the label says else.

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, Context, Error, Result};

/// What a driver can ask of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Fork `calls` times, each child leaving at once: `fork` (the call), `fork-cpu` (its
    /// processor time) and `total` (until reaped).
    Fork { calls: u32 },
    /// Child reads one byte of every page: `read`, until reaped.
    Read,
    /// Child writes one page in 16: `sparse`, until reaped.
    Sparse,
    /// Child writes every page: `full`, until reaped.
    Full,
    /// Child writes one page, first thing: `fault`, the write alone.
    Fault,
    /// Fork `children` that all live at the same time: `crowd` (one fork), `total` (all, until reaped).
    Crowd { children: u32 },
    /// Dirty one page in 16, fork (`unfolded`), fold (`fold`), fork (`folded`); each fork `calls` times.
    Cycle { calls: u32 },
    /// Freeze now and stay frozen: `freeze`.
    Freeze,
    /// Put everything back: `thaw`.
    Thaw,
    /// Freeze (`freeze`), then put everything back (`thaw`).
    FreezeThaw,
    /// Copy all memory into memory touched before: `copy`.
    CopyTouched,
    /// Copy all memory into memory just mapped: `copy`.
    CopyFresh,
    /// The parent rewrites every page, forks and waits: `rewrite`, all of it.
    Rewrite,
    /// A block that was there at a fork grows to four times its size: `realloc`.
    Realloc { bytes: u64 },
    /// Check every word in a child and in the parent, the parent writing meanwhile: `verify`.
    Verify,
    /// The engine's own statistics as JSON text.
    Stats,
}

impl Command {
    /// The labels of the numbers this command answers with.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Command::Fork { .. } => &["fork", "fork-cpu", "total"],
            Command::Read => &["read"],
            Command::Sparse => &["sparse"],
            Command::Full => &["full"],
            Command::Fault => &["fault"],
            Command::Crowd { .. } => &["crowd", "total"],
            Command::Cycle { .. } => &["unfolded", "fold", "folded"],
            Command::Freeze => &["freeze"],
            Command::Thaw => &["thaw"],
            Command::FreezeThaw => &["freeze", "thaw"],
            Command::CopyTouched | Command::CopyFresh => &["copy"],
            Command::Rewrite => &["rewrite"],
            Command::Realloc { .. } => &["realloc"],
            Command::Verify => &["verify"],
            Command::Stats => &[],
        }
    }
}

impl Command {
    /// About how much memory the command takes anew from a subject of `size` bytes.
    pub fn appetite(self, size: u64) -> u64 {
        match self {
            Command::Freeze
            | Command::FreezeThaw
            | Command::CopyTouched
            | Command::CopyFresh
            | Command::Full => size,
            Command::Rewrite => 2 * size,
            Command::Sparse | Command::Cycle { .. } => size / 8,
            Command::Realloc { bytes } => 8 * bytes,
            _ => 0,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Fork { calls } => write!(out, "fork {calls}"),
            Command::Read => write!(out, "read"),
            Command::Sparse => write!(out, "sparse"),
            Command::Full => write!(out, "full"),
            Command::Fault => write!(out, "fault"),
            Command::Crowd { children } => write!(out, "crowd {children}"),
            Command::Cycle { calls } => write!(out, "cycle {calls}"),
            Command::Freeze => write!(out, "freeze"),
            Command::Thaw => write!(out, "thaw"),
            Command::FreezeThaw => write!(out, "freeze-thaw"),
            Command::CopyTouched => write!(out, "copy-touched"),
            Command::CopyFresh => write!(out, "copy-fresh"),
            Command::Rewrite => write!(out, "rewrite"),
            Command::Realloc { bytes } => write!(out, "realloc {bytes}"),
            Command::Verify => write!(out, "verify"),
            Command::Stats => write!(out, "stats"),
        }
    }
}

impl FromStr for Command {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or("");
        let mut number = || -> Result<u64> {
            let word = words.next().context("a number is missing")?;
            word.parse().with_context(|| format!("not a number: {word}"))
        };
        Ok(match name {
            "fork" => Command::Fork { calls: number()? as u32 },
            "read" => Command::Read,
            "sparse" => Command::Sparse,
            "full" => Command::Full,
            "fault" => Command::Fault,
            "crowd" => Command::Crowd { children: number()? as u32 },
            "cycle" => Command::Cycle { calls: number()? as u32 },
            "freeze" => Command::Freeze,
            "thaw" => Command::Thaw,
            "freeze-thaw" => Command::FreezeThaw,
            "copy-touched" => Command::CopyTouched,
            "copy-fresh" => Command::CopyFresh,
            "rewrite" => Command::Rewrite,
            "realloc" => Command::Realloc { bytes: number()? },
            "verify" => Command::Verify,
            "stats" => Command::Stats,
            other => bail!("unknown command: {other:?}"),
        })
    }
}

/// What a subject says back.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Values(Vec<(String, f64)>),
    Text(String),
    Unavailable(String),
    Wrong(String),
}

impl Answer {
    pub fn value(label: &str, number: f64) -> Self {
        Answer::Values(vec![(label.to_string(), number)])
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Values(values) => {
                write!(out, "ok")?;
                values.iter().try_for_each(|(label, number)| write!(out, " {label}={number}"))
            }
            Answer::Text(text) => write!(out, "text {}", one_line(text)),
            Answer::Unavailable(reason) => write!(out, "na {}", one_line(reason)),
            Answer::Wrong(what) => write!(out, "wrong {}", one_line(what)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl FromStr for Answer {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let (verdict, rest) = line.split_once(' ').unwrap_or((line, ""));
        Ok(match verdict {
            "ok" => {
                Answer::Values(rest.split_whitespace().map(parse_value).collect::<Result<_>>()?)
            }
            "text" => Answer::Text(rest.to_string()),
            "na" => Answer::Unavailable(rest.to_string()),
            "wrong" => Answer::Wrong(rest.to_string()),
            _ => bail!("not an answer: {line:?}"),
        })
    }
}

fn parse_value(word: &str) -> Result<(String, f64)> {
    let (label, number) =
        word.split_once('=').with_context(|| format!("not label=number: {word:?}"))?;
    Ok((label.to_string(), number.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_survives_the_wire() {
        let commands = [
            Command::Fork { calls: 5 },
            Command::Read,
            Command::Sparse,
            Command::Full,
            Command::Fault,
            Command::Crowd { children: 32 },
            Command::Cycle { calls: 3 },
            Command::Freeze,
            Command::Thaw,
            Command::FreezeThaw,
            Command::CopyTouched,
            Command::CopyFresh,
            Command::Rewrite,
            Command::Realloc { bytes: 1 << 26 },
            Command::Verify,
            Command::Stats,
        ];
        for command in commands {
            assert_eq!(command.to_string().parse::<Command>().unwrap(), command);
        }
    }

    #[test]
    fn every_answer_survives_the_wire() {
        let answers = [
            Answer::Values(vec![("fork".into(), 45123.5), ("total".into(), 2e9)]),
            Answer::Values(vec![]),
            Answer::Text("{\"schema\":1}".into()),
            Answer::Unavailable("no engine is loaded".into()),
            Answer::Wrong("page 3".into()),
        ];
        for answer in answers {
            assert_eq!(answer.to_string().parse::<Answer>().unwrap(), answer);
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_word_that_was_wrong() {
        let refusal = |line: &str| line.parse::<Command>().unwrap_err().to_string();
        assert!(refusal("frok 3").contains("frok"));
        assert!(refusal("fork").contains("missing"));
        assert!(refusal("fork x").contains('x'));
        assert!("ok fork".parse::<Answer>().is_err());
        assert!("".parse::<Answer>().is_err());
    }

    #[test]
    fn an_answer_stays_on_one_line() {
        let answer = Answer::Wrong("first\nsecond".into());
        assert_eq!(answer.to_string().lines().count(), 1);
    }
}
