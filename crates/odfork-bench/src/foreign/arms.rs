//! Arms: the ways of running a program of others that an experiment compares.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use clap::Args;

use super::engine;
use crate::configuration::Configuration;
use crate::options::Common;

/// A program as it is, or started by `odfork run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Lives as long as the run.
    pub name: &'static str,
    /// What copies less there.
    pub configuration: Configuration,
    /// Options of `odfork run`; None: without it.
    pub options: Option<Vec<String>>,
}

/// Arms with a name of their own: name, configuration, options of `odfork run`.
const ARMS: [(&str, Configuration, Option<&str>); 5] = [
    ("plain", Configuration::Plain, None),
    ("auto", Configuration::Image, Some("")),
    ("eager", Configuration::Image, Some("--freeze eager")),
    (LIVE, Configuration::Image, Some("--profile live")),
    ("kernel", Configuration::Kernel, Some("--engine kernel")),
];
pub const WORDS: [&str; 5] = ["plain", "auto", "eager", LIVE, "kernel"];
/// Measured only where it is asked for.
pub const LIVE: &str = "live";

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
    let configuration = Configuration::Image;
    named(text, &WORDS).map(|(name, options)| Arm { name, configuration, options: split(options) })
}

impl ArmOptions {
    /// Those of `--engine` and those of `--arm`; notes of what is left out, as where there is no
    /// such library.
    pub fn chosen(&self, common: &Common, library: &Path) -> Result<(Vec<Arm>, Vec<String>)> {
        let asked: Vec<_> =
            ARMS.into_iter().filter(|one| one.0 != LIVE || common.asks_for(LIVE)).collect();
        let (known, notes) = common.choose(&asked, |one| one.0, |one| one.1.refusal(library))?;
        let known = known.into_iter().map(|(name, configuration, text)| Arm {
            name,
            configuration,
            options: text.and_then(split),
        });
        Ok((known.chain(self.arm.iter().cloned()).collect(), notes))
    }
}

impl Arm {
    /// Whether the library is loaded there, which can say what it did.
    pub fn has_library(&self) -> bool {
        self.configuration == Configuration::Image
    }

    /// The words before the program's own. `odfork` is this program.
    pub fn words(&self, odfork: &Path) -> Vec<OsString> {
        let Some(options) = &self.options else { return Vec::new() };
        let mut words: Vec<OsString> = vec![odfork.into(), "run".into()];
        words.extend(options.iter().map(OsString::from));
        words.push("--".into());
        words
    }

    /// What odfork says of a process of this arm, where the library is loaded.
    pub fn engine(&self, odfork: &Path, pid: impl ToString) -> Result<Option<String>, String> {
        self.has_library().then(|| engine(odfork, pid)).transpose()
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

    fn both(line: &str) -> Both {
        let matches = Both::augment_args(Command::new("x")).get_matches_from(line.split(' '));
        Both::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn arms_are_the_known_ones_and_those_that_are_named() {
        let chosen = Both {
            arms: both("x --arm small=--image=small").arms,
            common: both("x --engine plain,eager").common,
        };
        let (arms, _) = chosen.arms.chosen(&chosen.common, Path::new("/bin/sh")).unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["plain", "eager", "small"]);
        assert!(arms[0].words(Path::new("/o")).is_empty());
        assert_eq!(arms[1].words(Path::new("/o")), ["/o", "run", "--freeze", "eager", "--"]);
        assert!(!arms[0].has_library() && arms[1].has_library() && arms[2].has_library());
        for bad in ["", "x", "=y", "plain=", "live=", "a/b=", "..=x"] {
            assert!(arm(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn live_is_measured_when_it_is_asked_for_and_what_cannot_be_had_is_said() {
        let names = |line: &str, library: &str| {
            let both = both(line);
            let (arms, notes) = both.arms.chosen(&both.common, Path::new(library)).unwrap();
            let names: Vec<&str> = arms.iter().map(|arm| arm.name).collect();
            (names, notes)
        };
        let (all, _) = names("x", "/bin/sh");
        assert!(all.starts_with(&["plain", "auto", "eager"]) && !all.contains(&LIVE), "{all:?}");
        assert_eq!(names("x --engine live", "/bin/sh").0, [LIVE]);
        let (left, notes) = names("x --engine plain,live", "/nowhere");
        assert_eq!(left, ["plain"]);
        assert!(notes[0].starts_with("live left out: /nowhere is missing"), "{notes:?}");
    }
}
