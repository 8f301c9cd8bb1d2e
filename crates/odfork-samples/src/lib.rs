//! Samples: the file format, the statistics, the published figures they stand beside, the cost
//! model fitted to them.
//!
//! Owns: everything that reads or condenses samples. Does not own: taking them (`odfork-bench`),
//! showing them (`odfork-report`).

pub mod configurations;
pub mod digest;
pub mod environment;
pub mod fit;
pub mod promises;
pub mod published;
pub mod samples;
pub mod spawn_timings;
pub mod stats;
pub mod targets;
pub mod unit;
