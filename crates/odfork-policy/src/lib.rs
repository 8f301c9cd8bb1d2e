//! Which page leaves memory: replacement policies, the state machine of the pager's global clock,
//! and what they cost.
//!
//! The crate is pure: no clock, no threads, no system calls. Time comes in as nanoseconds, pages
//! and frames as numbers, and what has to be done to memory goes out as a list. So the simulator
//! (`odfork page simulate`) and the pager run the very same [`clock::Clock`], and everything here
//! can be tested against models.
//!
//! - [`clock`]: the replacement of Babaoglu & Joy 1981, a triggered global clock with simulated
//!   reference bits and a free pool
//! - [`policy`]: the policies people compare, each run over a [`trace`] and judged by its [`cost`]
//! - [`load`]: load control, that is which process is swapped out when memory cannot be held, and
//!   who comes back
#![forbid(unsafe_code)]

pub mod clock;
pub mod cost;
pub mod load;
pub mod policy;
pub mod trace;
