//! The pager: programs' large memory under one limit, paged by us. Design and reasons:
//! docs/pager.md.
//!
//! - [`supervisor`]: starts the daemon and keeps everything that must outlive it
//! - [`daemon`]: serves faults, runs the clock of `odfork_policy`, moves pages
//! - [`store`], `table`: where pages are while they are out
//! - [`advise`]: for programs that know their phases
//! - `jail`: what the daemon may ask of the kernel
//! - [`sys`], [`socket`], [`uffd`]: the kernel

pub mod advise;
pub mod crash_points;
pub mod daemon;
pub mod endpoint;
mod jail;
pub mod serve;
pub mod socket;
mod stats;
pub mod store;
pub mod supervisor;
pub mod sys;
mod table;
mod token_bucket;
pub mod tunables;
pub mod uffd;
