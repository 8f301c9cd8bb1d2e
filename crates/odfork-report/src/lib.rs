//! `odfork report`: samples as one HTML page and its plots, beside the published figures.

use odfork_proc::command::Verb;

pub mod dossier;

pub const VERBS: [Verb; 1] =
    [Verb { name: "report", command: dossier::command, run: dossier::run }];
