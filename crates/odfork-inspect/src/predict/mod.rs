//! odfork predict: the cost of forks from the fitted model.
//!
//! Owns the command: its words, and the question they become. `size` reads sizes, `source` finds the data and fits it,
//! `answer` prints. The model is `fit`; the built-in figures are those the runtime starts from.

mod answer;
mod size;
mod source;

use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Where results lie when nothing is said.
const DEFAULT_DATA: &str = "odfork-results";

const EXAMPLES: &str = "\
Examples:
  odfork predict --mem 8G --frac 0.5 --forks 1000
  odfork predict --mem 512M --engine plain --engine image
  odfork predict --mem 1.5G --frac 0.1 --data results --json

Sizes are bytes; k, M, G and T are powers of 1024. The time is that of fork,
child, exit and wait. Coefficients come from `odfork bench grid`; without its
data the figures are used that the runtime starts from.

Exit status: 0, or 2 when nothing can be predicted.";

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    bytes: u64,
    frac: f64,
    forks: u64,
    /// Empty: all there are.
    engines: Vec<String>,
    /// Named by the user, or None.
    data: Option<PathBuf>,
}

pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).allow_hyphen_values(true)
    };
    Command::new("predict")
        .about("Predict the cost of forks from measured coefficients")
        .arg(option("mem", "SIZE", "Memory of the forking process: 8G, 512M, 300k").required(true))
        .arg(
            option("frac", "SHARE", "Share of it that the child writes, 0 to 1").default_value("0"),
        )
        .arg(option("forks", "COUNT", "How many forks").default_value("1"))
        .arg(
            option("engine", "NAME", "Only this engine (may be repeated) [default: all measured]")
                .action(ArgAction::Append),
        )
        .arg(
            option("data", "DIR", "Folder of `odfork bench grid` [default: odfork-results]")
                .value_hint(clap::ValueHint::DirPath),
        )
        .arg(Arg::new("json").long("json").help("Print JSON").action(ArgAction::SetTrue))
        .after_help(EXAMPLES)
}

pub fn run(matches: &ArgMatches) -> u8 {
    match predict(matches) {
        Ok(text) => {
            println!("{text}");
            0
        }
        Err(error) => odfork_proc::command::cannot("predict", &error),
    }
}

fn predict(matches: &ArgMatches) -> Result<String> {
    let question = Question::read(matches)?;
    let answers = source::answer(&question)?;
    if matches.get_flag("json") {
        answer::json(&question, &answers)
    } else {
        Ok(answer::text(&question, &answers))
    }
}

impl Question {
    fn read(matches: &ArgMatches) -> Result<Question> {
        let word = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        let frac = word("frac");
        let share = frac.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        let forks = word("forks");
        let count = forks.parse::<u64>().ok().filter(|count| *count > 0);
        let data = matches.get_one::<String>("data").map(PathBuf::from);
        if let Some(folder) = data.as_ref().filter(|folder| !folder.is_dir()) {
            bail!("{} is no folder; name one that `odfork bench grid` made", folder.display());
        }
        Ok(Question {
            bytes: size::parse(word("mem"))?,
            frac: share.with_context(|| {
                format!("--frac {frac:?} is no share; give a number from 0 to 1, such as 0.5")
            })?,
            forks: count.with_context(|| {
                format!("--forks {forks:?} is no count; give a whole number from 1 on")
            })?,
            engines: matches.get_many("engine").into_iter().flatten().cloned().collect(),
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(words: &[&str]) -> Result<Question> {
        let words = std::iter::once(&"predict").chain(words);
        Question::read(&command().try_get_matches_from(words)?)
    }

    #[test]
    fn words_become_a_question() {
        let asked =
            question(&["--mem", "8G", "--frac", "0.5", "--forks", "1000", "--engine", "thp"]);
        let asked = asked.unwrap();
        assert_eq!((asked.bytes, asked.frac, asked.forks), (8 << 30, 0.5, 1000));
        assert_eq!((asked.engines, asked.data), (vec!["thp".to_string()], None));
    }

    #[test]
    fn bad_words_are_refused_in_one_line() {
        for words in [
            ["--mem", "8Q", "--frac", "0.5"],
            ["--mem", "-1", "--frac", "0.5"],
            ["--mem", "1G", "--frac", "1.5"],
            ["--mem", "1G", "--frac", "NaN"],
            ["--mem", "1G", "--forks", "0"],
            ["--mem", "1G", "--forks", "-3"],
            ["--mem", "1G", "--data", "/nowhere/at/all"],
        ] {
            let refused = question(&words).unwrap_err().to_string();
            assert!(!refused.contains('\n') && refused.len() > 20, "{words:?}: {refused}");
        }
    }

    #[test]
    fn without_data_the_built_in_figures_answer() {
        let asked = question(&["--mem", "1G", "--frac", "0.5", "--forks", "10"]).unwrap();
        let answers = source::built_in(&asked).unwrap();
        let text = answer::text(&asked, &answers);
        assert!(text.contains("plain") && text.contains("image"), "{text}");
        assert!(text.contains("odfork bench grid"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&answer::json(&asked, &answers).unwrap()).unwrap();
        assert_eq!(json["schema"], 1);
        assert_eq!(json["engines"][0]["engine"], "plain");
    }
}
