//! The command line of odfork-bench: what it accepts and what it says about itself.
//!
//! The command `subject` is here once for both programs that can be one, odfork-bench and odfork: its options, and
//! how they become a subject. No other doing.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use crate::workload::memory::Layout;
use crate::workload::{serve, Setup};

const EXAMPLES: &str = "\
Examples:
  odfork-bench                              all figures, 6 to 8 minutes
  odfork-bench --quick                      small sizes, below 40 s: does everything run?
  odfork-bench --only fork-1g --only dirty  two groups of figures (a name or its beginning)
  odfork-bench --json samples.jsonl         raw samples for other tools

Exit status: 0 also when a figure misses its goal (timing never decides), 1 when memory had wrong
content or a subject was lost, 2 when it could not run, 130 when interrupted (the table is printed).";

/// Measures fork under stock Linux and under odfork, interleaved in one run
#[derive(Debug, Parser)]
#[command(name = "odfork-bench", version, max_term_width = 80, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Small sizes and few rounds; goals at other sizes are not judged
    #[arg(long)]
    pub quick: bool,

    /// Only figures whose name begins with NAME; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// List the figures and their goals, measure nothing
    #[arg(long)]
    pub list: bool,

    /// Write raw samples and results as JSON Lines
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Which image odfork uses: auto, huge or small
    #[arg(long, value_name = "IMAGE", value_parser = ["auto", "huge", "small"])]
    pub image: Option<String>,

    /// Seed of the random order and of the resampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Let subjects run on any processor instead of one
    #[arg(long)]
    pub unpinned: bool,

    #[command(subcommand)]
    pub role: Option<Role>,
}

/// What this program is when it starts itself again.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Holds memory and obeys commands on stdin
    #[command(hide = true)]
    Subject(SubjectOptions),
    /// Holds memory, forks, ends
    #[command(hide = true)]
    Program {
        #[command(flatten)]
        holding: Holding,
        #[arg(long, default_value_t = 1)]
        forks: u32,
    },
}

#[derive(Clone, Copy, Debug, Args)]
pub struct SubjectOptions {
    #[command(flatten)]
    pub holding: Holding,
    /// Threads that only sleep
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u32,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Holding {
    /// Bytes of memory
    #[arg(long, value_name = "BYTES")]
    pub size: u64,

    /// Fill and work on the first BYTES only; the rest stays untouched [default: all]
    #[arg(long, value_name = "BYTES")]
    pub touched: Option<u64>,

    /// How memory is obtained: mapped, huge, malloced or hugetlb
    #[arg(long, value_name = "LAYOUT", default_value = "mapped")]
    pub layout: Layout,

    /// Stay on this processor
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// The harness alone: no fork, no exec, no access, all clocks and loops
    #[arg(long)]
    pub null: bool,

    /// Use the page-table sharing of a kernel with on-demand-fork
    #[arg(long)]
    pub kernel_odf: bool,
}

impl Holding {
    pub fn setup(self, threads: u32) -> Setup {
        Setup {
            size: self.size,
            touched: self.touched,
            layout: self.layout,
            threads,
            cpu: self.cpu,
            null: self.null,
            kernel_odf: self.kernel_odf,
        }
    }
}

const SUBJECT_EXAMPLES: &str = "\
Examples:
  echo 'fork 5' | odfork subject --size 268435456
  echo 'grid 100 300' | odfork subject --size 67108864 --layout huge
  echo 'exec spawn plain 100' | odfork run odfork subject --size 1073741824

Commands are lines of standard input, answers lines of standard output, numbers nanoseconds.";

/// `odfork subject`: what the laboratory starts for itself.
pub fn subject_command() -> Command {
    SubjectOptions::augment_args(Command::new("subject"))
        .about("Hold memory and obey commands on standard input")
        .hide(true)
        .after_help(SUBJECT_EXAMPLES)
}

/// Is the subject until standard input ends; returns the exit status.
pub fn run_subject(matches: &ArgMatches) -> u8 {
    SubjectOptions::from_arg_matches(matches)
        .map_err(anyhow::Error::from)
        .and_then(|options| serve(options.holding.setup(options.threads)))
        .unwrap_or_else(|error| odfork_proc::command::cannot("subject", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_and_roles_are_told_apart() {
        let cli = Cli::parse_from(["odfork-bench", "--quick", "--only", "fork", "--only", "small"]);
        assert!(cli.quick && cli.role.is_none());
        assert_eq!(cli.only, ["fork", "small"]);
        let cli = Cli::parse_from([
            "odfork-bench",
            "subject",
            "--size",
            "4096",
            "--layout",
            "malloced",
            "--threads",
            "4",
        ]);
        let Some(Role::Subject(SubjectOptions { holding, threads })) = cli.role else {
            panic!("a subject");
        };
        assert_eq!((holding.size, threads), (4096, 4));
        assert!(!holding.null && !holding.kernel_odf && holding.touched.is_none());
        assert_eq!(holding.layout, Layout::Malloced);
    }

    #[test]
    fn the_subject_of_both_programs_takes_the_same_options() {
        subject_command().debug_assert();
        let line =
            "subject --size 8192 --touched 4096 --layout hugetlb --null --kernel-odf --cpu 1";
        let matches = subject_command().get_matches_from(line.split(' '));
        let setup = SubjectOptions::from_arg_matches(&matches).unwrap().holding.setup(0);
        assert_eq!((setup.size, setup.touched, setup.cpu), (8192, Some(4096), Some(1)));
        assert!(setup.null && setup.kernel_odf && setup.layout == Layout::Hugetlb);
        let help = subject_command().render_long_help().to_string();
        assert!(help.contains("Examples:"), "{help}");
    }

    #[test]
    fn help_hides_the_roles_and_shows_examples() {
        let help = Cli::command().render_long_help().to_string();
        assert!(!help.contains("Commands:"), "{help}");
        assert!(help.contains("--quick") && help.contains("Exit status"));
    }
}
