//! What a process costs to fork, what it writes, and what forks will cost: `odfork doctor`,
//! `writes`, `predict`.

use odfork_proc::command::Verb;

pub mod doctor;
#[cfg(test)]
mod golden;
mod launch;
pub mod predict;
pub mod writes;

pub const VERBS: [Verb; 3] = [
    Verb { name: "doctor", command: doctor::command, run: doctor::run },
    Verb { name: "predict", command: predict::command, run: predict::run },
    Verb { name: "writes", command: writes::command, run: writes::run },
];
