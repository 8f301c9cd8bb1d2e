//! The commands of the benchmarks, as `odfork` takes them.

use odfork_proc::command::Verb;

use crate::baselines::journal;
use crate::{bench, paging, sessions};

pub const VERBS: [Verb; 5] = [
    Verb { name: "bench", command: bench::command, run: bench::run },
    Verb { name: "subject", command: bench::subject_command, run: bench::run_subject },
    Verb { name: "paged", command: paging::program::command, run: paging::program::run },
    Verb { name: "session", command: sessions::program::command, run: sessions::program::run },
    Verb { name: "cleanup", command: journal::command, run: journal::run },
];
