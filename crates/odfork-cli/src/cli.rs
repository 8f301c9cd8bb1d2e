//! The command line: what clap parses, made from the table in `options`, and the request it
//! becomes.
//!
//! Words and flags only; nothing is carried out here. Pages (man, completions) are made from the
//! same `command()`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use clap_complete::Shell;

use odfork_proc::command::Subcommand;

use crate::options::{self, Setting, Values};

/// What the user asked for.
#[derive(Debug)]
pub enum Request {
    /// `odfork run`.
    Run(Run),
    /// `odfork check`.
    Check {
        /// The program that is asked about too.
        program: Option<OsString>,
        /// As JSON.
        json: bool,
    },
    /// `odfork completions`.
    Completions(Shell),
    /// `odfork man`.
    Man {
        /// The page to print.
        page: String,
        /// The folder that all pages go to instead.
        folder: Option<PathBuf>,
    },
    /// `odfork options`.
    Options,
    /// A command of the laboratory or of the VM lab, and what it was given.
    Tool(&'static Subcommand, ArgMatches),
}

/// `odfork run`: settings given as flags (variable and value), and the program with its arguments.
#[derive(Debug)]
pub struct Run {
    /// Settings, in the order they were given.
    pub settings: Vec<(&'static str, OsString)>,
    /// Nothing is said when the program stays plain.
    pub quiet: bool,
    /// The program and its arguments.
    pub words: Vec<OsString>,
}

/// What `odfork man` can print; a test compares it with the commands.
pub const PAGES: [&str; 15] = [
    "odfork",
    "run",
    "check",
    "bench",
    "doctor",
    "predict",
    "writes",
    "report",
    "kernel",
    "page",
    "image",
    "stats",
    "zygote",
    "completions",
    "man",
];

const EXAMPLES: &str = "\
Examples:
  odfork run -- python3 server.py         run it with cheap forks
  odfork run --freeze eager -- ./tests    freeze at the first fork
  odfork run --stats text -- ./tests      and say at exit what it brought
  odfork check                            what this machine and user can do
  odfork check ./tests                    whether ./tests can be accelerated
  odfork doctor 1234                      what fork costs process 1234
  odfork stats 1234                       what process 1234 gained
  odfork bench latency                    rerun a published measurement here
  odfork report                           and see it beside the published one
  odfork kernel build                     build Linux with cheap forks for all
  odfork page simulate --policy clock --frames 500 trace.gz
                                          page faults of a policy on a trace
  odfork image save 1234 --heap heap.img  save memory for another run
  odfork zygote run NAME -- job.py        a ready child of a warm Python
  odfork man --dir share/man/man1         write the manual pages";

const RUN_EXAMPLES: &str = "\
Examples:
  odfork run -- redis-server redis.conf
  odfork run --stats json --stats-file fork.%p.json -- ./fuzz-target corpus/
  ODFORK_FREEZE=eager odfork run make check

PROGRAM replaces odfork in the same process: exit status, signals, terminal
and process id are its own. It sees LD_PRELOAD and ODFORK_* added to its
environment and nothing else changed. A program that cannot be accelerated
(static, setuid, Go, other machine) runs as without odfork, after one line.

With the kernel engine (Linux with the patches of 'odfork kernel') nothing is
added to the environment, and only setuid programs are left out. With --stats,
odfork then stays as PROGRAM's parent.

Exit status: that of PROGRAM; 126 when it cannot be executed, 127 when it is
not found, 2 for a wrong option or '--engine kernel' where the kernel cannot.";

const CHECK_HELP: &str = "\
Examples:
  odfork check
  odfork check --json | python3 -m json.tool
  odfork check /usr/bin/sudo

Exit status: 0 when memory can be frozen (with PROGRAM: when it can be
accelerated), 1 when not; 126 or 127 when PROGRAM cannot run at all.";

/// The whole command line.
pub fn command() -> Command {
    Command::new("odfork")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs unmodified programs with a fork() that takes microseconds at any size")
        .after_help(EXAMPLES)
        .term_width(80)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(run_command())
        .subcommand(check_command())
        .subcommands(all_subcommands().map(|one| (one.command)()))
        .subcommand(completions_command())
        .subcommand(man_command())
        .subcommand(
            Command::new("options")
                .about("Print every option and variable as Markdown (docs/options.md)")
                .hide(true),
        )
}

/// Commands other crates bring.
fn all_subcommands() -> impl Iterator<Item = &'static Subcommand> {
    let tools = odfork_bench::subcommands::SUBCOMMANDS.iter().chain(&odfork_inspect::SUBCOMMANDS);
    tools.chain(&odfork_report::SUBCOMMANDS).chain([
        &odfork_kernel::SUBCOMMAND,
        &crate::page::SUBCOMMAND,
        &crate::image::SUBCOMMAND,
        &crate::stats::SUBCOMMAND,
        &crate::zygote::SUBCOMMAND,
    ])
}

/// The commands that help shows.
pub fn command_names() -> Vec<String> {
    let whole = command();
    let shown = whole.get_subcommands().filter(|inner| !inner.is_hide_set());
    shown.map(|inner| inner.get_name().to_owned()).collect()
}

fn run_command() -> Command {
    let program = Arg::new("words")
        .value_names(["PROGRAM", "ARGS"])
        .help("The program and its arguments, taken as they are")
        .value_parser(clap::value_parser!(OsString))
        .num_args(1..)
        .required(true)
        .trailing_var_arg(true)
        .value_hint(ValueHint::CommandWithArguments);
    Command::new("run")
        .about("Run a program with cheap forks")
        .override_usage("odfork run [OPTIONS] [--] PROGRAM [ARGS]...")
        .after_help(RUN_EXAMPLES)
        .args_override_self(true)
        .args(options::flags().map(|(flag, setting)| flag_argument(flag, setting)))
        .arg(program)
}

fn flag_argument(flag: &'static str, setting: &'static Setting) -> Arg {
    let argument = Arg::new(flag).long(flag);
    let argument = match setting.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    match &setting.values {
        Values::Switch => argument.help(setting.help).action(ArgAction::SetTrue),
        Values::OneOf(choices) => {
            let values =
                choices.iter().map(|choice| PossibleValue::new(choice.name).help(choice.help));
            argument
                .value_name(setting.metavar)
                .value_parser(PossibleValuesParser::new(values))
                .hide_possible_values(true)
                .help(format!(
                    "{}: {} [default: {}]",
                    setting.help,
                    setting.accepted(),
                    setting.default
                ))
        }
        Values::Words(..) => argument
            .value_name(setting.metavar)
            .value_parser(|value: &str| match setting.accepts(value) {
                true => Ok(value.to_owned()),
                false => Err(format!("it should be {}", setting.accepted())),
            })
            .help(format!("{} [default: {}]", setting.help, setting.default)),
        Values::File => argument
            .value_name(setting.metavar)
            .value_parser(clap::value_parser!(OsString))
            .value_hint(ValueHint::FilePath)
            .help(format!("{} [default: {}]", setting.help, setting.default)),
    }
}

fn check_command() -> Command {
    Command::new("check")
        .about("Show what this machine and user can do, or whether a program can be accelerated")
        .override_usage("odfork check [--json] [PROGRAM]")
        .after_help(CHECK_HELP)
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("One JSON object with a schema number"),
        )
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .help("Say whether this program can be accelerated, and why not")
                .value_parser(clap::value_parser!(OsString))
                .value_hint(ValueHint::CommandName),
        )
}

fn completions_command() -> Command {
    Command::new("completions").about("Print a completion script for a shell").arg(
        Arg::new("shell")
            .value_name("SHELL")
            .required(true)
            .value_parser(PossibleValuesParser::new(["bash", "zsh", "fish"]))
            .help("Shell to complete in"),
    )
}

fn man_command() -> Command {
    Command::new("man")
        .about("Print or write the manual pages")
        .override_usage("odfork man [PAGE] [--dir DIR]")
        .arg(
            Arg::new("page")
                .value_name("PAGE")
                .default_value("odfork")
                .value_parser(PossibleValuesParser::new(PAGES))
                .help("Page to print"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .conflicts_with("page")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("Write all pages into this directory instead"),
        )
}

/// Turns the words of the command line into a request.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Request, clap::Error> {
    let matches = command().try_get_matches_from(words)?;
    let (name, inner) = matches.subcommand().unwrap_or(("", &matches));
    if let Some(one) = all_subcommands().find(|one| one.name == name) {
        return Ok(Request::Tool(one, inner.clone()));
    }
    Ok(match name {
        "run" => Request::Run(run_request(inner)),
        "check" => Request::Check {
            program: inner.get_one::<OsString>("program").cloned(),
            json: inner.get_flag("json"),
        },
        "completions" => Request::Completions(shell(inner)),
        "man" => Request::Man {
            page: inner.get_one::<String>("page").cloned().unwrap_or_default(),
            folder: inner.get_one::<PathBuf>("dir").cloned(),
        },
        _ => Request::Options,
    })
}

fn run_request(matches: &ArgMatches) -> Run {
    let mut run = Run { settings: Vec::new(), quiet: false, words: Vec::new() };
    for (flag, setting) in options::flags() {
        match setting.values {
            Values::Switch => run.quiet |= matches.get_flag(flag),
            Values::OneOf(_) | Values::Words(..) => {
                let value = matches.get_one::<String>(flag).map(OsString::from);
                run.settings.extend(value.map(|value| (setting.variable, value)));
            }
            Values::File => {
                let value = matches.get_one::<OsString>(flag).cloned();
                run.settings.extend(value.map(|value| (setting.variable, value)));
            }
        }
    }
    run.words = matches.get_many::<OsString>("words").into_iter().flatten().cloned().collect();
    run
}

fn shell(matches: &ArgMatches) -> Shell {
    match matches.get_one::<String>("shell").map(String::as_str) {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Run {
        let words = ["odfork", "run"].iter().chain(words).map(OsString::from);
        match parse(words).unwrap() {
            Request::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_finds_no_fault_with_the_definition() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_a_page() {
        assert_eq!(PAGES[0], "odfork");
        assert_eq!(command_names(), PAGES[1..]);
    }

    #[test]
    fn the_program_keeps_its_own_dashes() {
        assert_eq!(run(&["--", "a", "--", "-q"]).words, ["a", "--", "-q"]);
        assert_eq!(
            run(&["a", "--freeze", "x", "--", "b"]).words,
            ["a", "--freeze", "x", "--", "b"]
        );
        assert_eq!(run(&["--freeze", "eager", "a", "--help", ""]).words, ["a", "--help", ""]);
        assert_eq!(run(&["--", "--", "a"]).words, ["--", "a"]);
        assert_eq!(run(&["--", "-x"]).words, ["-x"]);
    }

    #[test]
    fn only_what_was_given_is_set_and_the_last_one_wins() {
        assert!(run(&["a"]).settings.is_empty());
        let given = run(&["--image=small", "--freeze", "auto", "--freeze", "never", "-q", "a"]);
        assert_eq!(
            given.settings,
            [("ODFORK_FREEZE", OsString::from("never")), ("ODFORK_IMAGE", OsString::from("small"))]
        );
        assert!(given.quiet);
    }

    #[test]
    fn an_unknown_flag_is_not_a_program() {
        assert!(parse(["odfork", "run", "--freez", "auto", "a"].map(OsString::from)).is_err());
    }
}
