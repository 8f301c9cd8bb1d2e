//! Arms: the ways of running a program of others that an experiment compares.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use clap::Args;

use super::engine;
use crate::options::Common;

/// A program as it is, or started by `odfork run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Lives as long as the run.
    pub name: &'static str,
    /// Options of `odfork run`; None: without it.
    pub options: Option<Vec<String>>,
}

/// Arms that are always there: name, options of `odfork run`.
const ARMS: [(&str, Option<&str>); 3] =
    [("plain", None), ("auto", Some("")), ("eager", Some("--freeze eager"))];
pub const WORDS: [&str; 3] = ["plain", "auto", "eager"];

#[derive(Clone, Debug, Args)]
pub struct ArmOptions {
    /// One more arm, with these options of odfork run
    #[arg(long, value_name = "NAME=OPTIONS", value_parser = arm)]
    arm: Vec<Arm>,
}

/// "NAME=REST" of a new arm. The name becomes a folder's and lives as long as the run.
pub fn named<'a>(text: &'a str, known: &[&str]) -> Result<(&'static str, &'a str), String> {
    let (name, rest) = text.split_once('=').ok_or("NAME=WORDS is needed")?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match !name.is_empty() && name.chars().all(is_word) && !known.contains(&name) {
        true => Ok((Box::leak(name.into()), rest)),
        false => Err(format!("{name:?} is no new word of letters, digits and '-'")),
    }
}

fn split(text: &str) -> Option<Vec<String>> {
    Some(text.split_whitespace().map(str::to_owned).collect())
}

fn arm(text: &str) -> Result<Arm, String> {
    named(text, &WORDS).map(|(name, options)| Arm { name, options: split(options) })
}

impl ArmOptions {
    /// Those of `--engine` and those of `--arm`; notes of what is left out.
    pub fn chosen(&self, common: &Common) -> Result<(Vec<Arm>, Vec<String>)> {
        let (known, notes) = common.choose(&ARMS, |one| one.0, |_| None)?;
        let known =
            known.into_iter().map(|(name, text)| Arm { name, options: text.and_then(split) });
        Ok((known.chain(self.arm.iter().cloned()).collect(), notes))
    }
}

impl Arm {
    /// The words before the program's own. `odfork` is this program.
    pub fn words(&self, odfork: &Path) -> Vec<OsString> {
        let Some(options) = &self.options else { return Vec::new() };
        let mut words: Vec<OsString> = vec![odfork.into(), "run".into()];
        words.extend(options.iter().map(OsString::from));
        words.push("--".into());
        words
    }

    /// What odfork says of a process of this arm, unless it was started without.
    pub fn engine(&self, odfork: &Path, pid: impl ToString) -> Result<Option<String>, String> {
        self.options.is_some().then(|| engine(odfork, pid)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    #[derive(Debug, Args)]
    struct Both {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        arms: ArmOptions,
    }

    #[test]
    fn arms_are_the_known_ones_and_those_that_are_named() {
        let words = ["x", "--engine", "plain,eager", "--arm", "small=--image small"];
        let matches = Both::augment_args(Command::new("x")).get_matches_from(words);
        let both = Both::from_arg_matches(&matches).unwrap();
        let (arms, _) = both.arms.chosen(&both.common).unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["plain", "eager", "small"]);
        assert!(arms[0].words(Path::new("/o")).is_empty());
        assert_eq!(arms[1].words(Path::new("/o")), ["/o", "run", "--freeze", "eager", "--"]);
        for bad in ["", "x", "=y", "plain=", "a/b=", "..=x"] {
            assert!(arm(bad).is_err(), "{bad}");
        }
    }
}
