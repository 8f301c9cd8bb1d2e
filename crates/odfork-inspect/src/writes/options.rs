//! The command line of `odfork writes` and the request it becomes. Nothing is carried out here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, Result};
use clap::builder::PossibleValuesParser;
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::method::Method;
use super::session::Plan;
use odfork_samples::environment::memory_available;

const METHODS: [&str; 5] = ["auto", "scan", "uffd", "soft-dirty", "compare"];

/// Signals a phase may be marked with.
const SIGNALS: [(&str, i32); 5] = [
    ("URG", libc::SIGURG),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("WINCH", libc::SIGWINCH),
    ("CONT", libc::SIGCONT),
];

const HELP: &str = include_str!("help.txt").trim_ascii_end();

/// The words as they are given.
#[derive(Args)]
struct Words {
    /// Measure a running process
    #[arg(long, value_name = "PID", value_parser = value_parser!(i32).range(1..))]
    #[arg(conflicts_with_all = ["words", "suite"])]
    pid: Option<i32>,
    /// End the measurement after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    length: Option<Duration>,
    /// Let the program run so long before the first phase [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    after: Option<Duration>,
    /// Make a phase of every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "phases")]
    interval: Option<Duration>,
    /// Names of the phases; each begins at a mark, the last ends at one or at the end
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',')]
    phases: Vec<String>,
    /// Signal that marks the border of two phases [default with --phases: URG]
    #[arg(long, value_name = "SIGNAL", ignore_case = true)]
    #[arg(value_parser = PossibleValuesParser::new(SIGNALS.map(|(name, _)| name)))]
    mark: Option<String>,
    /// How changes are found
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(METHODS))]
    method: String,
    /// Count bytes too, by comparing
    #[arg(long)]
    bytes: bool,
    /// What the snapshot of method compare may take [default: half of what is available]
    #[arg(long, value_name = "MB", value_parser = value_parser!(u64).range(1..1 << 30))]
    memory: Option<u64>,
    /// Write samples, one JSON object a line, for `odfork report`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// How many mappings to show that changed most; 0: none
    #[arg(long, value_name = "N", default_value = "8")]
    top: usize,
    /// Measure the standard set: emacs, sbcl, python3, redis-server, sqlite3
    #[arg(long)]
    #[arg(conflicts_with_all = ["words", "phases", "mark", "interval", "after", "length"])]
    suite: bool,
    /// The standard set with less work
    #[arg(long)]
    quick: bool,
    /// The command and its arguments, taken as they are
    #[arg(value_names = ["COMMAND", "ARGS"], num_args = 1.., trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    words: Vec<OsString>,
}

/// What is to be measured.
#[derive(Debug)]
pub enum Subject {
    Process(i32),
    Command(Vec<OsString>),
    /// The standard set; true: small.
    Suite(bool),
}

/// The whole request.
#[derive(Debug)]
pub struct Request {
    pub subject: Subject,
    pub plan: Plan,
    pub remarks: Vec<String>,
    pub json: Option<PathBuf>,
    pub top: usize,
}

/// Its options.
pub fn command() -> Command {
    Words::augment_args(Command::new("writes"))
        .about("Measure what share of its pages and bytes a program changes")
        .override_usage(
            "odfork writes [OPTIONS] -- COMMAND [ARGS]...\n       \
             odfork writes [OPTIONS] --pid PID [--for SECONDS]\n       \
             odfork writes --suite [--quick] [--json FILE]",
        )
        .after_help(HELP)
}

fn seconds(word: &str) -> Result<Duration, String> {
    match word.parse::<f64>() {
        Ok(number) if (0.001..=1e7).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err("needed: seconds from 0.001 to 10000000".into()),
    }
}

/// The request, or what is missing.
pub fn request(matches: &ArgMatches) -> Result<Request> {
    let words = Words::from_arg_matches(matches)?;
    // The suite takes a page method if asked to; bytes are then missing in its table.
    let wants_bytes = if words.suite { words.method == "auto" } else { words.bytes };
    let subject = match (words.pid, words.suite) {
        (Some(pid), _) => Subject::Process(pid),
        (_, true) => Subject::Suite(words.quick),
        _ if words.quick => bail!("--quick belongs to --suite: odfork writes --suite --quick"),
        _ if words.words.is_empty() => {
            bail!("what is to be measured? Give -- COMMAND ARGS, --pid PID or --suite")
        }
        _ => Subject::Command(words.words),
    };
    let (method, remarks) = Method::choose(&words.method, wants_bytes)?;
    let plan = Plan {
        method,
        limit: words.memory.map_or_else(|| memory_available() / 2, |mb| mb << 20),
        after: words.after.unwrap_or_default(),
        interval: words.interval,
        length: words.length,
        marker: marker(words.mark.as_deref().or((!words.phases.is_empty()).then_some("URG"))),
        names: words.phases,
    };
    Ok(Request { subject, plan, remarks, json: words.json, top: words.top })
}

fn marker(word: Option<&str>) -> Option<i32> {
    let wanted = word?;
    SIGNALS.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Request> {
        request(&command().try_get_matches_from(["writes"].iter().chain(words))?)
    }

    #[test]
    fn the_command_keeps_its_own_dashes() {
        let request = parse(&["--bytes", "--", "a", "--json", "x"]).unwrap();
        assert!(matches!(&request.subject, Subject::Command(words) if words.len() == 3));
        assert_eq!((request.json, request.plan.method), (None, Method::Compare));
    }

    #[test]
    fn names_bring_the_default_mark() {
        let plan = parse(&["--phases", "a,b", "c"]).unwrap().plan;
        assert_eq!((plan.marker, plan.names.len()), (Some(libc::SIGURG), 2));
        let plan = parse(&["--mark", "usr1", "c"]).unwrap().plan;
        assert_eq!((plan.marker, plan.names.len()), (Some(libc::SIGUSR1), 0));
        assert_eq!(parse(&["c"]).unwrap().plan.marker, None);
    }

    #[test]
    fn nothing_to_measure_and_nonsense_are_refused() {
        assert!(parse(&[]).unwrap_err().to_string().contains("--pid"));
        for words in [
            &["--pid", "0"][..],
            &["--pid", "1", "cmd"],
            &["--interval", "0", "c"],
            &["--interval", "nan", "c"],
            &["--quick", "c"],
            &["--method", "magic", "c"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
