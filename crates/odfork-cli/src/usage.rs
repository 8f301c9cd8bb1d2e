//! A wrong command line, told in one line: what is wrong, what was probably meant, where to read
//! on.
//!
//! clap's own errors span five lines; this file takes its facts and leaves its layout. Help and
//! version pass through.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::Error;

use crate::cli::{command, command_names};
use crate::options::{listed, nearest};

/// Text for standard output (help, version) or one line for standard error.
pub enum Reply {
    Page(String),
    Complaint(String),
}

/// Words the error for people; `words` is the command line without the launcher's name.
pub fn reply(error: &Error, words: &[String]) -> Reply {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Reply::Page(error.to_string());
    }
    let command = words.first().map(String::as_str).filter(|word| is_command(word));
    let more = match command {
        Some(command) => format!("see 'odfork {command} --help'"),
        None => "see 'odfork --help'".to_owned(),
    };
    Reply::Complaint(format!("{} ({more})", complaint(error, words)))
}

fn is_command(word: &str) -> bool {
    command_names().iter().any(|name| name == word)
}

fn complaint(error: &Error, words: &[String]) -> String {
    let argument = text(error, ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::InvalidSubcommand => wrong_command(error, words),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let names = inner_names(words).unwrap_or_else(command_names);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("a command is needed: {}", listed(&names))
        }
        ErrorKind::UnknownArgument => {
            let hint = text(error, ContextKind::SuggestedArg)
                .map(|meant| format!("; did you mean '{meant}'?"));
            format!("unknown option '{}'{}", argument.unwrap_or_default(), hint.unwrap_or_default())
        }
        ErrorKind::InvalidValue => wrong_value(error, &option_name(&argument)),
        ErrorKind::MissingRequiredArgument => missing(error, words),
        ErrorKind::ArgumentConflict => {
            let other = text(error, ContextKind::PriorArg).unwrap_or_default();
            format!(
                "{} and {} exclude each other",
                option_name(&argument),
                option_name(&Some(other))
            )
        }
        ErrorKind::ValueValidation => format!(
            "{} cannot be '{}': {}",
            option_name(&argument),
            text(error, ContextKind::InvalidValue).unwrap_or_default(),
            std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
        ),
        ErrorKind::TooManyValues => format!("{} takes no value", option_name(&argument)),
        _ => error
            .to_string()
            .lines()
            .next()
            .unwrap_or("wrong command line")
            .trim_start_matches("error: ")
            .to_owned(),
    }
}

/// The commands of a group as `odfork page`, when the first word is one.
fn inner_names(words: &[String]) -> Option<Vec<String>> {
    let whole = command();
    let group = whole.find_subcommand(words.first()?)?;
    let shown = group.get_subcommands().filter(|inner| !inner.is_hide_set());
    let names: Vec<String> = shown.map(|inner| inner.get_name().to_owned()).collect();
    (!names.is_empty()).then_some(names)
}

fn wrong_command(error: &Error, words: &[String]) -> String {
    let typed = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    if let Some(names) = inner_names(words) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return match nearest(&typed, names.iter().copied()) {
            Some(meant) => {
                format!("unknown command '{} {typed}'; did you mean '{meant}'?", words[0])
            }
            None => format!(
                "unknown command '{} {typed}'; there are {}",
                words[0],
                listed(&names).replace(" or ", " and ")
            ),
        };
    }
    match nearest(&typed, command_names().iter().map(String::as_str)) {
        Some(meant) => format!("unknown command '{typed}'; did you mean '{meant}'?"),
        None => {
            let program = words.join(" ");
            format!("unknown command '{typed}'; to run a program: odfork run -- {program}")
        }
    }
}

fn wrong_value(error: &Error, option: &str) -> String {
    let allowed = list(error, ContextKind::ValidValue);
    let allowed = listed(&allowed.iter().map(String::as_str).collect::<Vec<_>>());
    let typed = text(error, ContextKind::InvalidValue).unwrap_or_default();
    if typed.is_empty() {
        let wanted = if allowed.is_empty() { String::new() } else { format!(": {allowed}") };
        return format!("{option} needs a value{wanted}");
    }
    let hint = list(error, ContextKind::SuggestedValue)
        .first()
        .map(|meant| format!("; did you mean '{meant}'?"));
    format!("{option} cannot be '{typed}': it should be {allowed}{}", hint.unwrap_or_default())
}

fn missing(error: &Error, words: &[String]) -> String {
    match words.first().map(String::as_str) {
        Some("run") => {
            "a PROGRAM to run is needed: odfork run [OPTIONS] -- PROGRAM [ARGS]...".to_owned()
        }
        Some("completions") => "a shell is needed: bash, zsh or fish".to_owned(),
        _ => match list(error, ContextKind::InvalidArg).first() {
            Some(argument) => format!("{} is needed", option_name(&Some(argument.clone()))),
            None => "an argument is missing".to_owned(),
        },
    }
}

/// `--freeze` out of `--freeze <MODE>`.
fn option_name(argument: &Option<String>) -> String {
    argument
        .as_deref()
        .and_then(|argument| argument.split(' ').next())
        .unwrap_or("an option")
        .to_owned()
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        other => Some(other.to_string()),
    }
}

fn list(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parse;
    use std::ffi::OsString;

    fn complaint_of(words: &[&str]) -> String {
        let error = parse(["odfork"].iter().chain(words).map(OsString::from)).unwrap_err();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match reply(&error, &words) {
            Reply::Complaint(line) => line,
            Reply::Page(page) => panic!("{page}"),
        }
    }

    /// Words, and what is wrong with them.
    const COMPLAINTS: [(&[&str], &str); 15] = [
        (
            &[],
            "a command is needed: run, check, bench, doctor, predict, writes, report, \
             kernel, page, image, stats, zygote, completions or man (see 'odfork --help')",
        ),
        (&["rnu", "x"], "unknown command 'rnu'; did you mean 'run'? (see 'odfork --help')"),
        (
            &["python3", "x.py"],
            "unknown command 'python3'; to run a program: odfork run -- \
             python3 x.py (see 'odfork --help')",
        ),
        (&["--fast"], "unknown option '--fast' (see 'odfork --help')"),
        (
            &["run"],
            "a PROGRAM to run is needed: odfork run [OPTIONS] -- PROGRAM [ARGS]... (see \
             'odfork run --help')",
        ),
        (
            &["run", "--freez", "a"],
            "unknown option '--freez'; did you mean '--freeze'? (see \
             'odfork run --help')",
        ),
        (
            &["run", "--freeze", "egaer", "a"],
            "--freeze cannot be 'egaer': it should be auto, eager or never; did you mean \
             'eager'? (see 'odfork run --help')",
        ),
        (
            &["run", "--freeze"],
            "--freeze needs a value: auto, eager or never (see 'odfork run \
             --help')",
        ),
        (&["run", "--quiet=1", "a"], "--quiet takes no value (see 'odfork run --help')"),
        (
            &["man", "run", "--dir", "x"],
            "[PAGE] and --dir exclude each other (see 'odfork man \
             --help')",
        ),
        (
            &["page"],
            "a command is needed: run, adopt, status, set, daemon, simulate, trace or compare \
             (see 'odfork page --help')",
        ),
        (
            &["page", "simulat"],
            "unknown command 'page simulat'; did you mean 'simulate'? (see \
             'odfork page --help')",
        ),
        (
            &["page", "xyzzy"],
            "unknown command 'page xyzzy'; there are run, adopt, status, set, \
             daemon, simulate, trace and compare (see 'odfork page --help')",
        ),
        (
            &["page", "simulate", "--frames", "1"],
            "--policy is needed (see 'odfork page \
             --help')",
        ),
        (
            &["completions"],
            "a shell is needed: bash, zsh or fish (see 'odfork completions \
             --help')",
        ),
    ];

    #[test]
    fn one_line_each_with_a_way_out() {
        for (words, expected) in COMPLAINTS {
            assert_eq!(complaint_of(words), expected, "{words:?}");
        }
    }
}
