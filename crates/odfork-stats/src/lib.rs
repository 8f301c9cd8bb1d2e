//! What a process under odfork counts, and how it is said: the page of statistics that the runtime
//! keeps in its memory and `odfork stats` reads from outside.
//!
//! | file | owns |
//! | --- | --- |
//! | `reason` | why memory was left as it was, in words |
//! | `page` | the layout of the page, and counting |
//! | `text` | JSON, and text for people |
//! | `prometheus` | the text format of metrics collectors |
//!
//! No heap and no system calls: the runtime uses it inside other people's programs.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod page;
mod prometheus;
mod reason;
mod text;

pub use page::{Foreign, Stats, IS_PLAIN, MAGIC, NO_WISH, STAY_PLAIN, VERSION};
pub use prometheus::{write_prometheus, Metrics};
pub use reason::{Reason, REASONS};
pub use text::{write_json, write_text, Context, Text};
