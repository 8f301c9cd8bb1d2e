//! Fuzz targets: for each reader of bytes from outside, a function that must neither panic nor
//! contradict itself.
//!
//! Owns the table of targets and reading choices from bytes. Does not own what drives them:
//! `tests/replay.rs` replays the seeds of `corpus/` with fixed mutations, `engine.rs` runs one
//! target under libFuzzer. A new target is a file in
//! `targets`, a line in [`TARGETS`], and a folder of seeds.
#![allow(missing_docs)] // not published

mod bytes;
mod targets;

pub use bytes::Bytes;

/// Something that takes bytes from outside.
pub struct Target {
    /// Also the name of its folder in `corpus`.
    pub name: &'static str,
    /// Panics when the bytes show a fault.
    pub run: fn(&[u8]),
}

/// Every target, by name.
pub const TARGETS: [Target; 7] = [
    Target { name: "clock", run: targets::clock::run },
    Target { name: "counters", run: targets::counters::run },
    Target { name: "image", run: targets::image::run },
    Target { name: "maps", run: targets::maps::run },
    Target { name: "plan", run: targets::plan::run },
    Target { name: "trace", run: targets::trace::run },
    Target { name: "wire", run: targets::wire::run },
];

/// The target of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
