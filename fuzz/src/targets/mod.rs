//! The targets, one file each.

pub mod clock;
pub mod counters;
pub mod image;
pub mod maps;
pub mod plan;
pub mod trace;
pub mod wire;
