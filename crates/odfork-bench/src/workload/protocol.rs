//! The one-line language between the driver and a subject. Pure: text in, values out.
//!
//! A command is a word and what it needs: numbers, or a word and a number. An answer begins with a verdict: `ok` with labelled
//! numbers, `text` with words, `na` when this subject cannot do it (no engine loaded), `wrong` when
//! the content of memory was not what it must be. Numbers are nanoseconds unless the label says else.

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, Context, Error, Result};

pub use super::ways::{Actions, Method, Via};

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
    /// Child writes one word in the middle page, first thing: `fault`, the write alone.
    Fault,
    /// Fork `children` that all live at the same time: `crowd` (one fork), `total` (all, until reaped).
    Crowd { children: u32 },
    /// Dirty one page in 16, fork (`unfolded`), fold (`fold`), fork (`folded`); each fork `calls` times.
    Cycle { calls: u32 },
    /// Freeze now and stay frozen: `freeze`.
    Freeze,
    /// Fold what was dirtied, and touch no page for a check: `fold`.
    Fold,
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
    /// Fork `forks` times, one after the other; each child writes one byte a page over the first `permille` of the
    /// memory. All forks together: `real`, `user`, `sys`.
    Grid { forks: u32, permille: u32 },
    /// Fork, then the parent accesses the first `share_permille` of its memory in order while the child lives,
    /// `read_permille` of it by reading: `total`, of which the call took `fork`.
    Touch { read_permille: u32, share_permille: u32 },
    /// Child writes one byte a page: `service`, the writes alone.
    Service,
    /// The parent writes one byte a page `rounds` times, creates a process, and does so again: `before-1` and on,
    /// `after-1` and on, in processor time of the thread.
    Rounds { via: Via, rounds: u32 },
    /// Create a process with a tiny program `count` times and wait: `each` in wall time, `user` and `sys` a program.
    Exec { method: Method, actions: Actions, count: u32 },
}

/// The most rounds of one command: its answer is one line.
const ROUNDS_AT_MOST: u32 = 1000;

impl Command {
    /// The labels of the numbers this command answers with. Of numbered labels, the first.
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
            Command::Fold => &["fold"],
            Command::Thaw => &["thaw"],
            Command::FreezeThaw => &["freeze", "thaw"],
            Command::CopyTouched | Command::CopyFresh => &["copy"],
            Command::Rewrite => &["rewrite"],
            Command::Realloc { .. } => &["realloc"],
            Command::Verify => &["verify"],
            Command::Stats => &[],
            Command::Grid { .. } => &["real", "user", "sys"],
            Command::Touch { .. } => &["total", "fork"],
            Command::Service => &["service"],
            Command::Rounds { .. } => &["before-1", "after-1"],
            Command::Exec { .. } => &["each", "user", "sys"],
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
            | Command::Rounds { .. }
            | Command::Service
            | Command::Full => size,
            Command::Grid { permille, .. } => thousandths(size, permille),
            Command::Touch { read_permille, share_permille } => {
                let written = 1000 - read_permille.min(1000);
                thousandths(thousandths(size, share_permille), written)
            }
            Command::Rewrite => 2 * size,
            Command::Sparse | Command::Cycle { .. } => size / 8,
            Command::Realloc { bytes } => 8 * bytes,
            _ => 0,
        }
    }
}

/// `permille` of a size, rounded down.
fn thousandths(size: u64, permille: u32) -> u64 {
    size / 1000 * u64::from(permille) + size % 1000 * u64::from(permille) / 1000
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
            Command::Fold => write!(out, "fold"),
            Command::Thaw => write!(out, "thaw"),
            Command::FreezeThaw => write!(out, "freeze-thaw"),
            Command::CopyTouched => write!(out, "copy-touched"),
            Command::CopyFresh => write!(out, "copy-fresh"),
            Command::Rewrite => write!(out, "rewrite"),
            Command::Realloc { bytes } => write!(out, "realloc {bytes}"),
            Command::Verify => write!(out, "verify"),
            Command::Stats => write!(out, "stats"),
            Command::Grid { forks, permille } => write!(out, "grid {forks} {permille}"),
            Command::Touch { read_permille, share_permille } => {
                write!(out, "touch {read_permille} {share_permille}")
            }
            Command::Service => write!(out, "service"),
            Command::Rounds { via, rounds } => write!(out, "rounds {} {rounds}", via.word()),
            Command::Exec { method, actions, count } => {
                write!(out, "exec {} {} {count}", method.word(), actions.word())
            }
        }
    }
}

impl FromStr for Command {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = Words(line.split_whitespace());
        let name = words.0.next().unwrap_or("");
        Ok(match name {
            "fork" => Command::Fork { calls: words.number()? },
            "read" => Command::Read,
            "sparse" => Command::Sparse,
            "full" => Command::Full,
            "fault" => Command::Fault,
            "crowd" => Command::Crowd { children: words.number()? },
            "cycle" => Command::Cycle { calls: words.number()? },
            "freeze" => Command::Freeze,
            "fold" => Command::Fold,
            "thaw" => Command::Thaw,
            "freeze-thaw" => Command::FreezeThaw,
            "copy-touched" => Command::CopyTouched,
            "copy-fresh" => Command::CopyFresh,
            "rewrite" => Command::Rewrite,
            "realloc" => Command::Realloc { bytes: words.number()? },
            "verify" => Command::Verify,
            "stats" => Command::Stats,
            "grid" => Command::Grid { forks: words.number()?, permille: words.at_most(1000)? },
            "touch" => Command::Touch {
                read_permille: words.at_most(1000)?,
                share_permille: words.at_most(1000)?,
            },
            "service" => Command::Service,
            "rounds" => Command::Rounds {
                via: words.one_of(Via::ALL, Via::word)?,
                rounds: words.at_most(ROUNDS_AT_MOST)?,
            },
            "exec" => Command::Exec {
                method: words.one_of(Method::ALL, Method::word)?,
                actions: words.one_of(Actions::ALL, Actions::word)?,
                count: words.number()?,
            },
            other => bail!("unknown command: {other:?}"),
        })
    }
}

/// The rest of a command line.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn number<T: FromStr>(&mut self) -> Result<T> {
        let word = self.0.next().context("a number is missing")?;
        word.parse().map_err(|_| anyhow::anyhow!("not a number that fits: {word}"))
    }

    fn at_most(&mut self, limit: u32) -> Result<u32> {
        let number = self.number()?;
        if number > limit {
            bail!("{number} is too much: at most {limit}");
        }
        Ok(number)
    }

    fn one_of<T: Copy, const N: usize>(
        &mut self,
        choices: [T; N],
        word_of: fn(T) -> &'static str,
    ) -> Result<T> {
        let word = self.0.next().context("a word is missing")?;
        let names = choices.map(word_of).join(", ");
        let found = choices.into_iter().find(|&choice| word_of(choice) == word);
        found.with_context(|| format!("not one of {names}: {word:?}"))
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
            Command::Fold,
            Command::Thaw,
            Command::FreezeThaw,
            Command::CopyTouched,
            Command::CopyFresh,
            Command::Rewrite,
            Command::Realloc { bytes: 1 << 26 },
            Command::Verify,
            Command::Stats,
            Command::Grid { forks: 100, permille: 300 },
            Command::Touch { read_permille: 750, share_permille: 1000 },
            Command::Service,
        ];
        let rounds = Via::ALL.map(|via| Command::Rounds { via, rounds: 10 });
        let actions = Actions::Plain;
        let execs = Method::ALL.map(|method| Command::Exec { method, actions, count: 7 });
        let method = Method::Spawn;
        let acting = Actions::ALL.map(|actions| Command::Exec { method, actions, count: 7 });
        for command in commands.into_iter().chain(rounds).chain(execs).chain(acting) {
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
        assert!(refusal("fork 4294967296").contains("4294967296"));
        assert!(refusal("grid 1 1001").contains("at most 1000"));
        assert!(refusal("touch 500").contains("missing"));
        assert!(refusal("rounds 10").contains("fork, vfork, spawn"));
        assert!(refusal("rounds fork 1001").contains("at most 1000"));
        assert!(refusal("exec").contains("missing"));
        assert!(refusal("exec spawn 10").contains("plain, chdir"));
        assert!("ok fork".parse::<Answer>().is_err());
        assert!("".parse::<Answer>().is_err());
    }

    #[test]
    fn what_a_command_takes_follows_its_share() {
        let size = 4 << 30;
        assert_eq!(Command::Grid { forks: 9, permille: 250 }.appetite(size), 1 << 30);
        let touch = Command::Touch { read_permille: 750, share_permille: 1000 };
        assert_eq!(touch.appetite(size), 1 << 30);
        assert_eq!(Command::Fork { calls: 1 }.appetite(size), 0);
    }

    #[test]
    fn an_answer_stays_on_one_line() {
        let answer = Answer::Wrong("first\nsecond".into());
        assert_eq!(answer.to_string().lines().count(), 1);
    }
}
