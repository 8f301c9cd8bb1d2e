//! Counters of one process, and their text: the crate `odfork-stats`, which the launcher uses too.

pub use odfork_stats::{write_json, write_text, Context, Stats, Text, IS_PLAIN, STAY_PLAIN};
