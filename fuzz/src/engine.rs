//! One target under libFuzzer: `ODFORK_FUZZ_TARGET=maps fuzz [OPTIONS] [FOLDER...]`.
//!
//! One program for all targets: it is built once. The options are libFuzzer's.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use odfork_fuzz::{named, Target};

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("ODFORK_FUZZ_TARGET").unwrap_or_default();
    named(&name).unwrap_or_else(|| {
        eprintln!("fuzz: ODFORK_FUZZ_TARGET names no target: '{name}'");
        std::process::exit(2);
    })
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
