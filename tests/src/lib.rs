//! The harness that runs small C programs under stock fork and under libodfork.so and compares.
//!
//! Owns: reading a program's header (`header`), the modes (`mode`), compiling and staging
//! (`stage`), running with a deadline (`run`), looking from outside (`observe`), what this machine
//! can do (`machine`), places with fewer rights (`places`, `filters`, `confine`, `host`), the
//! judgement (`verdict`), and a limit for trials that have none (`watch`). Does not own the
//! programs (`programs/*.c`) or the list of trials (`tests/*.rs`). Rule: nothing here links the
//! runtime; it is judged by what it shows.
#![allow(missing_docs)] // not published

use libtest_mimic::{Completion, Failed, Trial};

pub mod confine;
pub mod filters;
pub mod header;
pub mod host;
pub mod machine;
pub mod mode;
pub mod observe;
pub mod places;
pub mod run;
pub mod stage;
pub mod verdict;
pub mod watch;

/// A trial that says at once why it failed: whoever ends the harness early never sees its end.
pub fn trial(
    name: String,
    run: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let known = name.clone();
    Trial::ignorable_test(name, move || {
        let done = run();
        if let Err(why) = &done {
            // Not into stdout, where another trial's line may have begun.
            eprintln!("{known}: {}", why.message().unwrap_or("no reason given"));
        }
        done
    })
}

/// How a harness ends: as its trials say, or with the reason why there were none.
pub fn exit_code(done: Result<std::process::ExitCode, String>) -> std::process::ExitCode {
    done.unwrap_or_else(|why| {
        eprintln!("odfork-tests: {why}");
        std::process::ExitCode::from(101)
    })
}
