//! The benchmarks of odfork: what fork, paging and starting programs cost, each configuration in
//! the same rounds.
//!
//! Owns: the suites, the processes they run on, the one runner that interleaves points, and what is
//! printed. Does not own: the engine itself; it is reached only as a user reaches it, through
//! LD_PRELOAD, the environment and the symbols of the C API. Sample files, statistics and the
//! judgement of figures are in odfork-samples.
//!
//! The way of one number: `suite` names the experiment and plans its points, `command` chooses
//! configurations and opens the file, `runner` takes the points in shuffled rounds, `executor` asks
//! the processes (`stage` starts them, `workload` is their side), `recorder` writes the sample,
//! `tables` and `figures` print. `paging`, `sessions`, `redis`, `afl`, `prefork`, `vm` and `demo`
//! have executors of their own.

mod accounting;
mod afl;
mod baselines;
mod catalogue;
mod command;
pub mod configuration;
mod demo;
mod executor;
mod figures;
mod foreign;
#[cfg(test)]
mod golden;
mod link;
mod mapping;
mod measure;
mod options;
mod pager;
mod paging;
mod plan;
mod pool;
mod prefork;
pub mod profile;
mod progress;
pub mod recorder;
mod redis;
pub mod roles;
mod room;
mod rounds;
pub mod runner;
mod sessions;
mod spread;
pub mod stage;
pub mod subcommands;
mod suite;
mod tables;
mod vm;
mod watch;
mod words;
mod workload;

pub use paging::{live, patterns, replay};
