//! odfork-bench as its user meets it: real subjects, a library that does nothing, exit status and output.
//!
//! The library preloaded is the C library itself: harmless, always there, and without the engine's symbols, so
//! figures that need the engine must come out as n/a and all others must run.

use std::path::PathBuf;
use std::process::{Command, Output};

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_odfork-bench"));
    command.env("ODFORK_LIB", c_library());
    command
}

/// The C library this test itself runs on.
fn c_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter_map(|line| line.split_whitespace().last())
        .find(|path| path.contains("/libc.so") || path.contains("/libc-"))
        .expect("this test is linked with a C library")
        .into()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(arguments: &[&str]) -> Output {
    bench().args(arguments).output().unwrap()
}

#[test]
fn a_quick_run_measures_writes_samples_and_succeeds() {
    let file = std::env::temp_dir().join(format!("odfork-bench-{}.jsonl", std::process::id()));
    let output = bench()
        .args(["--quick", "--only", "fork-64m", "--only", "dirty-folded"])
        .arg("--json")
        .arg(&file)
        .output()
        .unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.contains("n/a: no engine is loaded"), "{table}");
    let fork = table.lines().find(|line| line.contains("fork-64m")).unwrap();
    assert!(fork.contains("not judged: at 16 MB"), "{fork}");
    let records: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.first().unwrap()["record"], "environment");
    assert_eq!(records.last().unwrap()["record"], "end");
    let samples = |arm: &str| {
        records
            .iter()
            .find(|r| r["experiment"] == "size-64m" && r["arm"] == arm && r["label"] == "fork")
            .map(|record| record["values"].as_array().unwrap().len())
    };
    assert_eq!(samples("stock"), samples("odfork"));
    assert!(samples("stock").unwrap() >= 3);
}

#[test]
fn whole_programs_run_under_both_engines() {
    let output = run(&["--quick", "--only", "small-8m"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    let line = table.lines().find(|line| line.contains("small-8m")).unwrap();
    assert!(line.contains("of base ["), "{line}");
}

#[test]
fn the_list_has_every_figure_and_measures_nothing() {
    let output = run(&["--list"]);
    assert!(output.status.success());
    let listed = text(&output.stdout).lines().count();
    assert_eq!(listed, odfork_bench::catalogue::figures().len());
}

#[test]
fn what_cannot_run_says_what_is_needed() {
    let output = bench().env("ODFORK_LIB", "/no/such.so").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("/no/such.so") && message.contains("build it"), "{message}");

    let output = run(&["--only", "nothing-like-this"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there are: fork-1g"));
}
