//! The commands of the benchmarks, as `odfork` takes them.

use odfork_proc::command::Subcommand;

use crate::baselines::journal;
use crate::{command, paging, roles, sessions};

/// What this crate gives to the launcher.
pub const SUBCOMMANDS: [Subcommand; 7] = [
    Subcommand { name: "bench", command: command::command, run: command::run },
    Subcommand { name: "subject", command: roles::subject_command, run: roles::run_subject },
    Subcommand { name: "program", command: roles::program_command, run: roles::run_whole },
    Subcommand { name: "replay", command: paging::replay::command, run: paging::replay::run },
    Subcommand { name: "paged", command: paging::program::command, run: paging::program::run },
    Subcommand {
        name: "session",
        command: sessions::program::command,
        run: sessions::program::run,
    },
    Subcommand { name: "cleanup", command: journal::command, run: journal::run },
];
