//! Help, manual pages, completions and the options document, compared with golden files.
//!
//! After a wanted change: UPDATE_GOLDEN=1 cargo test -p odfork-cli, and read the difference before
//! committing it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::stage::{bare, finish, odfork, output, scratch, skip, text};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn compare(name: &str, actual: &str) {
    let golden = Path::new(CRATE).join("cli/golden").join(name);
    // The version moves with every release; the files should not.
    let actual = actual.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &actual).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(actual, expected, "{name} differs; UPDATE_GOLDEN=1 writes it anew");
}

fn page(words: &[&str]) -> String {
    finish(&mut odfork(words)).silent().out
}

#[test]
fn help_pages() {
    for (name, words) in [
        ("help.txt", &["--help"][..]),
        ("help-run.txt", &["run", "--help"]),
        ("help-check.txt", &["check", "--help"]),
        ("help-completions.txt", &["completions", "-h"]),
        ("help-man.txt", &["man", "-h"]),
        ("help-kernel.txt", &["kernel", "--help"]),
        ("help-kernel-build.txt", &["kernel", "build", "-h"]),
        ("help-kernel-boot.txt", &["kernel", "boot", "-h"]),
        ("help-page.txt", &["page", "--help"]),
        ("help-page-simulate.txt", &["page", "simulate", "-h"]),
        ("help-page-trace.txt", &["page", "trace", "-h"]),
        ("help-page-compare.txt", &["page", "compare", "-h"]),
        ("help-image.txt", &["image", "--help"]),
        ("help-image-save.txt", &["image", "save", "-h"]),
        ("help-stats.txt", &["stats", "--help"]),
    ] {
        let help = page(words);
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{name} is wider than 80");
        compare(name, &help);
    }
    assert_eq!(page(&["--version"]), format!("odfork {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn manual_pages() {
    compare("odfork.1", &page(&["man"]));
    compare("odfork-run.1", &page(&["man", "run"]));
    let folder = scratch();
    let target = folder.path().join("man1");
    page(&["man", "--dir", target.to_str().unwrap()]);
    let mut names: Vec<_> =
        fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "odfork-bench.1",
            "odfork-check.1",
            "odfork-completions.1",
            "odfork-doctor.1",
            "odfork-image.1",
            "odfork-kernel.1",
            "odfork-man.1",
            "odfork-page.1",
            "odfork-predict.1",
            "odfork-report.1",
            "odfork-run.1",
            "odfork-stats.1",
            "odfork-writes.1",
            "odfork-zygote.1",
            "odfork.1"
        ]
    );
    assert_eq!(fs::read_to_string(target.join("odfork-run.1")).unwrap(), page(&["man", "run"]));

    let outcome = finish(&mut odfork(&["man", "--dir", "/proc/nowhere"]));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.only_line().contains("/proc/nowhere"), "{outcome:?}");
}

#[test]
fn a_formatter_finds_no_fault_with_the_manual() {
    let formatter = output(Command::new("sh").args(["-c", "command -v groff"]));
    if !formatter.status.success() {
        return skip("a_formatter_finds_no_fault_with_the_manual", "groff is not installed");
    }
    for name in odfork_cli::cli::PAGES {
        let folder = scratch();
        let file = folder.path().join("page.1");
        fs::write(&file, page(&["man", name])).unwrap();
        let outcome = finish(bare("groff").args(["-man", "-Tascii", "-ww", "-z"]).arg(&file));
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{name}");
    }
}

#[test]
fn the_options_document() {
    let document = page(&["options"]);
    compare("options.md", &document);
    let published = Path::new(CRATE).join("../docs/options.md");
    match fs::read_to_string(&published) {
        Ok(text) => {
            assert_eq!(text, document, "docs/options.md is stale: odfork options > docs/options.md")
        }
        Err(_) => skip("the_options_document", "docs/options.md is not there to compare"),
    }
}

#[test]
fn completions_are_scripts_their_shells_accept() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = page(&["completions", shell]);
        for word in ["freeze", "eager", "check", "stats-file"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
        let there = output(Command::new("sh").args(["-c", &format!("command -v {shell}")]));
        if !there.status.success() {
            skip(
                "completions_are_scripts_their_shells_accept",
                &format!("{shell} is not installed"),
            );
            continue;
        }
        let folder = scratch();
        let file = folder.path().join("completion");
        fs::write(&file, &script).unwrap();
        let output = output(bare(shell).arg(check).arg(&file));
        assert!(output.status.success(), "{shell}: {}", text(&output.stderr));
    }
}
