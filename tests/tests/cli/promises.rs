//! `odfork bench promises` as its user meets it: real subjects, a library that does nothing, exit
//! status and output.
//!
//! The library preloaded is the C library itself: harmless, always there, and without the engine's
//! symbols, so figures that need the engine must come out as n/a and all others must run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::stage::{bare, finish, odfork_path, scratch, Outcome};

fn promises(words: &[&str]) -> Command {
    let mut command = bare(odfork_path());
    command.env("ODFORK_LIB", c_library()).args(["bench", "promises"]).args(words);
    command
}

/// The C library this test itself runs on.
fn c_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter_map(|line| line.split_whitespace().last())
        .find(|path| path.contains("/libc.so") || path.contains("/libc-"))
        .expect("this test is linked with a C library")
        .into()
}

fn line<'a>(outcome: &'a Outcome, name: &str) -> &'a str {
    outcome.out.lines().find(|line| line.contains(name)).unwrap()
}

#[test]
fn a_quick_run_measures_writes_samples_and_succeeds() {
    let folder = scratch();
    let file = folder.path().join("promises.jsonl");
    let words = ["--quick", "--only", "fork-64m", "--only", "dirty-folded", "--json"];
    let outcome = finish(promises(&words).arg(&file));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("n/a: no engine is loaded"), "{outcome:?}");
    assert!(line(&outcome, "fork-64m").contains("not judged: at 16 MB"), "{outcome:?}");
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.first().unwrap()["kind"], "run");
    assert_eq!(lines.last().unwrap()["kind"], "end");
    let count = |series: &str| {
        let is_of = |line: &&Value| {
            let params = &line["params"];
            line["metric"] == "fork" && params["group"] == "size-64m" && params["series"] == series
        };
        lines.iter().filter(is_of).count()
    };
    assert_eq!(count("stock"), count("odfork"));
    assert!(count("stock") >= 3);
    let figure = lines.iter().find(|line| line["name"] == "dirty-folded").unwrap();
    assert_eq!((&figure["kind"], &figure["verdict"]), (&"figure".into(), &"n/a".into()));
}

#[test]
fn whole_programs_run_under_both_configurations() {
    let folder = scratch();
    let outcome = finish(promises(&["--quick", "--only", "small-8m", "--dir"]).arg(folder.path()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(line(&outcome, "small-8m").contains("of base ["), "{outcome:?}");
}

#[test]
fn the_list_has_every_figure_and_measures_nothing() {
    let outcome = finish(&mut promises(&["--list"])).silent();
    assert_eq!(outcome.out.lines().count(), 31);
}

#[test]
fn what_cannot_run_says_what_is_needed() {
    let outcome = finish(promises(&[]).env("ODFORK_LIB", "/no/such.so"));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("/no/such.so") && outcome.err.contains("build it"), "{outcome:?}");

    let outcome = finish(&mut promises(&["--only", "nothing-like-this"]));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("there are: fork-1g"), "{outcome:?}");
}
