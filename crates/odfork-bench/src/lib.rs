//! The laboratory of odfork: measures what a fork costs, with and without the engine, in one run.
//!
//! Owns: the experiments, the subject processes they run on, the pairing of engines, the statistics
//! and the report. Does not own: the engine itself; it is reached only as a user reaches it, through
//! LD_PRELOAD, the environment and the symbols of the C API.
//!
//! The way of one figure: `catalogue` names it and its goal, `experiments` says which subjects and
//! commands produce it, `session` starts them, `pairing` interleaves the samples, `executor` talks to
//! the processes (`workload` is their side), `stats` condenses, `figures` judges, `report` prints.

mod accounting;
pub mod baselines;
pub mod bench;
pub mod catalogue;
pub mod cli;
pub mod demo;
pub mod executor;
pub mod experiments;
pub mod figures;
#[cfg(test)]
mod golden;
pub mod link;
mod mapping;
mod options;
mod pager;
pub mod paging;
pub mod pairing;
pub mod plan;
pub mod progress;
pub mod record;
pub mod recorder;
pub mod report;
pub mod runner;
pub mod session;
pub mod sessions;
mod spread;
pub mod verbs;
pub mod workload;
