//! What a process costs to fork, what it writes, and what forks will cost: `odfork doctor`,
//! `writes`, `predict`.

use odfork_proc::command::Subcommand;

pub mod doctor;
#[cfg(test)]
mod golden;
mod launch;
mod predict;
pub mod writes;

/// What this crate gives to the launcher.
pub const SUBCOMMANDS: [Subcommand; 3] = [
    Subcommand { name: "doctor", command: doctor::command, run: doctor::run },
    Subcommand { name: "predict", command: predict::command, run: predict::run },
    Subcommand { name: "writes", command: writes::command, run: writes::run },
];
