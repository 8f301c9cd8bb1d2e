//! The command line of odfork-bench: what it accepts and what it says about itself. No doing.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::workload::memory::Layout;

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
    Subject {
        #[command(flatten)]
        holding: Holding,
        #[arg(long, default_value_t = 0)]
        threads: u32,
    },
    /// Holds memory, forks, ends
    #[command(hide = true)]
    Program {
        #[command(flatten)]
        holding: Holding,
        #[arg(long, default_value_t = 1)]
        forks: u32,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Holding {
    /// Bytes
    #[arg(long)]
    pub size: u64,
    #[arg(long, default_value = "mapped")]
    pub layout: Layout,
    #[arg(long)]
    pub cpu: Option<usize>,
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
        let Some(Role::Subject { holding, threads }) = cli.role else {
            panic!("a subject");
        };
        assert_eq!((holding.size, threads), (4096, 4));
        assert_eq!(holding.layout, Layout::Malloced);
    }

    #[test]
    fn help_hides_the_roles_and_shows_examples() {
        let help = Cli::command().render_long_help().to_string();
        assert!(!help.contains("Commands:"), "{help}");
        assert!(help.contains("--quick") && help.contains("Exit status"));
    }
}
