//! What `odfork` is when a benchmark starts it again: a subject, or a whole program. Hidden
//! commands.
//!
//! Owns the commands; what they take is `workload::Setup`.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::workload::{run_program, serve, Setup};

const SUBJECT_EXAMPLES: &str = "\
Examples:
  echo 'fork 5' | odfork subject --size 268435456
  echo 'grid 100 300' | odfork subject --size 67108864 --layout huge
  echo 'exec spawn plain 100' | odfork run odfork subject --size 1073741824

Commands are lines of standard input, answers lines of standard output, numbers nanoseconds.";

/// `odfork subject`: what benchmarks start for themselves.
pub fn subject_command() -> Command {
    Setup::augment_args(Command::new("subject"))
        .about("Hold memory and obey commands on standard input")
        .hide(true)
        .after_help(SUBJECT_EXAMPLES)
}

/// Is the subject until standard input ends; returns the exit status.
pub fn run_subject(matches: &ArgMatches) -> u8 {
    Setup::from_arg_matches(matches)
        .map_err(anyhow::Error::from)
        .and_then(serve)
        .unwrap_or_else(|error| odfork_proc::command::cannot("subject", &error))
}

#[derive(Clone, Copy, Debug, Args)]
struct ProgramOptions {
    #[command(flatten)]
    setup: Setup,
    /// How often it forks
    #[arg(long, value_name = "N", default_value_t = 1)]
    forks: u32,
}

/// `odfork program`: a program that is timed from outside.
pub fn program_command() -> Command {
    ProgramOptions::augment_args(Command::new("program"))
        .about("Hold memory, fork, end")
        .hide(true)
        .after_help("Examples:\n  time odfork run odfork program --size 1073741824 --forks 10")
}

/// Is the program; returns the exit status.
pub fn run_whole(matches: &ArgMatches) -> u8 {
    ProgramOptions::from_arg_matches(matches)
        .map_err(anyhow::Error::from)
        .and_then(|options| run_program(options.setup, options.forks))
        .map_or_else(|error| odfork_proc::command::cannot("program", &error), |()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::memory::Layout;

    fn holding(line: &str) -> Setup {
        let matches = subject_command().get_matches_from(line.split(' '));
        Setup::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn options_become_a_setup() {
        let setup = holding("subject --size 4096 --layout malloced --threads 4");
        assert_eq!((setup.size, setup.threads, setup.layout), (4096, 4, Layout::Malloced));
        assert!(!setup.null && !setup.kernel_odf && setup.touched.is_none());
        let setup = holding(
            "subject --size 8192 --touched 4096 --layout hugetlb --null --kernel-odf --cpu 1",
        );
        assert_eq!((setup.size, setup.touched, setup.cpu), (8192, Some(4096), Some(1)));
        assert!(setup.null && setup.kernel_odf && setup.layout == Layout::Hugetlb);
    }

    #[test]
    fn both_roles_are_hidden_and_show_examples() {
        for command in [subject_command(), program_command()] {
            assert!(command.is_hide_set());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{help}");
        }
    }
}
