//! The commands of the benchmarks, as `odfork` takes them.

use odfork_proc::command::Verb;

use crate::baselines::journal;
use crate::{command, paging, roles, sessions};

pub const VERBS: [Verb; 6] = [
    Verb { name: "bench", command: command::command, run: command::run },
    Verb { name: "subject", command: roles::subject_command, run: roles::run_subject },
    Verb { name: "program", command: roles::program_command, run: roles::run_whole },
    Verb { name: "paged", command: paging::program::command, run: paging::program::run },
    Verb { name: "session", command: sessions::program::command, run: sessions::program::run },
    Verb { name: "cleanup", command: journal::command, run: journal::run },
];
