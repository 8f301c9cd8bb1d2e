//! The odfork runtime: fork() of a process of any size in microseconds, on the
//! kernel people already run.
//!
//! A private mapping without anonymous pages costs fork nothing: its pages can
//! be faulted in again from its file. So the runtime moves a process's anonymous
//! memory into an unnamed file (the *backing file*) and maps that privately in the same
//! place. Programs use [`fork`], [`freeze`], [`stats()`]; most need nothing but
//! `odfork run`. The way of one fork is in `engine`; the steps of a pass in `pass`.

#![cfg_attr(not(test), no_std)]
// What only holding threads by ptrace needs (`mend`).
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

mod absent;
mod addresses;
mod api;
mod backing;
#[cfg_attr(not(target_arch = "x86_64"), path = "begun_nothing.rs")]
mod begun;
mod budget;
mod calls;
mod cgroup;
mod changes;
mod code;
mod content;
mod course;
mod engine;
mod file_kind;
mod fork_mark;
#[cfg(target_arch = "x86_64")]
mod frame;
mod freeze;
mod given_up;
mod grow;
mod held;
mod helper;
mod hold;
mod ignored;
mod inspect;
#[cfg_attr(target_arch = "x86_64", path = "instructions/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "instructions/aarch64.rs")]
mod instructions;
#[cfg(feature = "interpose")]
pub mod interpose;
mod kept;
mod leave;
mod listing;
mod live;
mod lock;
#[cfg(test)]
mod lock_tests;
mod maps;
#[cfg_attr(not(target_arch = "x86_64"), path = "mend_nothing.rs")]
mod mend;
mod once;
#[cfg(test)]
mod once_tests;
mod open_files;
mod options;
mod owner;
mod pagemap;
mod parts;
mod pass;
mod pipe;
pub mod plan;
mod progress;
mod quiesce;
pub mod reason;
mod refreeze;
mod registry;
mod report;
mod restless;
mod results;
mod retained;
mod sample;
mod scan;
mod scratch;
mod share;
mod slack;
mod slices;
mod sockets;
mod source;
mod spans;
mod stats;
mod step;
mod sync;
mod sys;
mod task;
mod thaw;
mod threads;
mod tracer;
pub mod vma;

pub(crate) use odfork_sys::args;

pub use api::{fork, freeze, refreeze, stats, stats_json, thaw, Fork, Statistics};
pub use stats::Text;
