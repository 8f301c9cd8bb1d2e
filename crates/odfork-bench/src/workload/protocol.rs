//! The one-line language between the driver and a subject. Pure: text in, values out.
//!
//! A command is a word and what it needs: numbers, or a word and a number. An answer begins with a
//! verdict: `ok` with labelled numbers, `text` with words, `na` when this subject cannot do it (no
//! engine loaded), `wrong` when the content of memory was not what it must be. Numbers are
//! nanoseconds unless the label says else.

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, Context, Error, Result};

pub use super::spawn_methods::{Actions, Method, Via};

/// The commands: a variant and what it needs, its word on the line, and the labels of the numbers
/// it is answered with (of numbered labels, the first).
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident: $type:ty),+ })? = $word:literal
       gives $labels:expr;)+) => {
        /// What a driver can ask of a subject.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command {
            $($(#[$doc])* $name $({ $($field: $type),+ })?,)+
        }

        impl Command {
            pub fn labels(self) -> &'static [&'static str] {
                match self {
                    $(Command::$name $({ $($field: _),+ })? => &$labels,)+
                }
            }
        }

        impl fmt::Display for Command {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Command::$name $({ $($field),+ })? => {
                        write!(out, $word)?;
                        $($(write!(out, " {}", $field)?;)+)?
                    })+
                }
                Ok(())
            }
        }

        impl FromStr for Command {
            type Err = Error;

            fn from_str(line: &str) -> Result<Self> {
                let mut words = line.split_whitespace();
                let name = words.next().unwrap_or("");
                let command = match name {
                    $($word => Command::$name $({ $($field: argument(words.next())?),+ })?,)+
                    other => bail!("unknown command: {other:?}"),
                };
                command.within_bounds()
            }
        }
    };
}

commands! {
    /// Fork `calls` times, each child leaving at once: `fork` (the call), `fork-cpu` (its processor
    /// time) and `total` (until reaped).
    Fork { calls: u32 } = "fork" gives ["fork", "fork-cpu", "total"];
    /// Child reads one byte of every page, until reaped.
    Read = "read" gives ["read"];
    /// Child writes one page in 16, until reaped.
    Sparse = "sparse" gives ["sparse"];
    /// Child writes every page, until reaped.
    Full = "full" gives ["full"];
    /// Child writes one word in the middle page, first thing: the write alone.
    Fault = "fault" gives ["fault"];
    /// Fork `children` that all live at the same time: `crowd` (one fork), `total` (all, until
    /// reaped).
    Crowd { children: u32 } = "crowd" gives ["crowd", "total"];
    /// Dirty one page in 16, fork (`unfolded`), refreeze (`fold`), fork (`folded`); each fork
    /// `calls` times.
    Cycle { calls: u32 } = "cycle" gives ["unfolded", "fold", "folded"];
    /// Freeze now and stay frozen.
    Freeze = "freeze" gives ["freeze"];
    /// Refreeze what was dirtied, and touch no page for a check.
    Fold = "fold" gives ["fold"];
    /// Put everything back.
    Thaw = "thaw" gives ["thaw"];
    /// Freeze, then put everything back.
    FreezeThaw = "freeze-thaw" gives ["freeze", "thaw"];
    /// Copy all memory into memory touched before.
    CopyTouched = "copy-touched" gives ["copy"];
    /// Copy all memory into memory just mapped.
    CopyFresh = "copy-fresh" gives ["copy"];
    /// The parent rewrites every page, forks and waits: all of it.
    Rewrite = "rewrite" gives ["rewrite"];
    /// A block that was there at a fork grows to four times its size.
    Realloc { bytes: u64 } = "realloc" gives ["realloc"];
    /// Check every word in a child and in the parent, the parent writing meanwhile.
    Verify = "verify" gives ["verify"];
    /// The engine's own statistics as JSON text.
    Stats = "stats" gives [];
    /// Fork `forks` times, one after the other; each child writes one byte a page over the first
    /// `permille` of the memory. All forks together.
    Grid { forks: u32, permille: u32 } = "grid" gives ["real", "user", "sys"];
    /// Fork, then the parent accesses the first `share_permille` of its memory in order while the
    /// child lives, `read_permille` of it by reading: `total`, of which the call took `fork`.
    Touch { read_permille: u32, share_permille: u32 } = "touch" gives ["total", "fork"];
    /// Child writes one byte a page: the writes alone.
    Service = "service" gives ["service"];
    /// The parent writes one byte a page `rounds` times, creates a process, and does so again:
    /// `before-1` and on, `after-1` and on, in processor time of the thread.
    Rounds { via: Via, rounds: u32 } = "rounds" gives ["before-1", "after-1"];
    /// Create a process with a tiny program `count` times and wait: `each` in wall time, `user` and
    /// `sys` a program.
    Exec { method: Method, actions: Actions, count: u32 } = "exec" gives ["each", "user", "sys"];
}

/// Of thousandths, and of the rounds of one command, whose answer is one line.
const AT_MOST: u32 = 1000;

fn argument<T: FromStr<Err: fmt::Display>>(word: Option<&str>) -> Result<T> {
    let word = word.context("an argument is missing")?;
    word.parse().map_err(|error| anyhow::anyhow!("{word}: {error}"))
}

impl Command {
    fn within_bounds(self) -> Result<Command> {
        let largest = match self {
            Command::Grid { permille, .. } => permille,
            Command::Touch { read_permille, share_permille } => read_permille.max(share_permille),
            Command::Rounds { rounds, .. } => rounds,
            _ => 0,
        };
        if largest > AT_MOST {
            bail!("{largest} is too much: at most {AT_MOST}");
        }
        Ok(self)
    }
}

impl Command {
    /// About how much memory the command takes anew from a subject of `size` bytes.
    pub fn demand(self, size: u64) -> u64 {
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
        let lines = "fork 5, read, sparse, full, fault, crowd 32, cycle 3, freeze, fold, thaw, \
            freeze-thaw, copy-touched, copy-fresh, rewrite, realloc 67108864, verify, stats, \
            grid 100 300, touch 750 1000, service";
        for line in lines.split(", ") {
            assert_eq!(line.parse::<Command>().unwrap().to_string(), line);
        }
        let rounds = Via::ALL.map(|via| Command::Rounds { via, rounds: 10 });
        let actions = Actions::Plain;
        let execs = Method::ALL.map(|method| Command::Exec { method, actions, count: 7 });
        let method = Method::Spawn;
        let acting = Actions::ALL.map(|actions| Command::Exec { method, actions, count: 7 });
        for command in rounds.into_iter().chain(execs).chain(acting) {
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
        assert!(refusal("rounds 10").contains("fork, fork-kept, vfork, spawn"));
        assert!(refusal("rounds fork 1001").contains("at most 1000"));
        assert!(refusal("exec").contains("missing"));
        assert!(refusal("exec spawn 10").contains("plain, chdir"));
        assert!("ok fork".parse::<Answer>().is_err());
        assert!("".parse::<Answer>().is_err());
    }

    #[test]
    fn what_a_command_takes_follows_its_share() {
        let size = 4 << 30;
        assert_eq!(Command::Grid { forks: 9, permille: 250 }.demand(size), 1 << 30);
        let touch = Command::Touch { read_permille: 750, share_permille: 1000 };
        assert_eq!(touch.demand(size), 1 << 30);
        assert_eq!(Command::Fork { calls: 1 }.demand(size), 0);
    }

    #[test]
    fn an_answer_stays_on_one_line() {
        let answer = Answer::Wrong("first\nsecond".into());
        assert_eq!(answer.to_string().lines().count(), 1);
    }
}
