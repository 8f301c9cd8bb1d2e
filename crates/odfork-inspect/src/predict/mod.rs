//! odfork predict: the cost of forks from the fitted model.
//!
//! `question` reads the options, `source` finds the data and fits it, `answer` prints. The model is
//! `odfork_samples::fit`; the built-in figures are those the runtime starts from.

mod answer;
mod question;
mod size;
mod source;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::question::Words;

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

pub fn command() -> Command {
    Words::augment_args(Command::new("predict"))
        .about("Predict the cost of forks from measured coefficients")
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
    let words = Words::from_arg_matches(matches)?;
    let json = words.json;
    let answers = source::answer(&words.try_into()?)?;
    Ok(if json { serde_json::to_string_pretty(&answers)? } else { answer::text(&answers) })
}

#[cfg(test)]
mod tests {
    use super::question::Question;
    use super::*;

    fn question(words: &[&str]) -> Result<Question> {
        let words = std::iter::once(&"predict").chain(words);
        Words::from_arg_matches(&command().try_get_matches_from(words)?)?.try_into()
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
}
