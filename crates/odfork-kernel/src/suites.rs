//! The suites of `odfork kernel test`: what each builds on the host, what it runs in the guest, how
//! its output counts.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::guest;
use crate::needs;
use crate::places::{Places, Variant};
use crate::tool;

/// What one suite runs in its guest.
#[derive(Debug)]
pub struct SuiteCommand {
    pub command: Vec<OsString>,
    pub timeout: Duration,
}

/// A suite that can run here, or why not.
pub type Prepared = std::result::Result<SuiteCommand, String>;

/// A folder of built tests, or why there is none.
type Folder = std::result::Result<PathBuf, String>;

/// How long and how thorough.
#[derive(Clone, Copy, Debug)]
pub struct SuiteOptions<'a> {
    pub quick: bool,
    pub debug: bool,
    /// Names of torture cases; all when empty.
    pub only: &'a [String],
}

impl SuiteOptions<'_> {
    /// The checks of the debug kernel take up to ten times the time.
    fn timeout(self, seconds: u64) -> Duration {
        let quick = if self.quick { 1 } else { 6 };
        let debug = if self.debug { 3 } else { 1 };
        Duration::from_secs(seconds * quick * debug)
    }
}

pub fn prepare(
    name: &str,
    suite_options: SuiteOptions,
    variant: &Variant,
    places: &Places,
) -> Result<Prepared> {
    match name {
        "torture" => torture(suite_options, places),
        "kselftest" => kselftest(suite_options, variant, places),
        "selftest" => selftest(suite_options, variant, places),
        _ => stress(suite_options, places),
    }
}

fn torture(suite_options: SuiteOptions, places: &Places) -> Result<Prepared> {
    let tests = places.tree.join("tests");
    if !tests.join("Makefile").exists() {
        return Ok(Err(format!("{} has no Makefile", tests.display())));
    }
    // The kernel folder may be installed, and not ours to write to.
    let build = places.work.join("tests");
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(&tests).arg(format!("BUILD={}", build.display()));
    tool::run(&mut make).context("cannot build the torture program")?;
    // --guest: also the cases that change the whole machine.
    let mut command = vec![build.join("torture").into_os_string(), "--guest".into()];
    if suite_options.quick {
        command.push("--quick".into());
    }
    if suite_options.debug {
        command.push("--slow".into());
    }
    for glob in suite_options.only {
        command.extend(["--only".into(), glob.into()]);
    }
    Ok(Ok(SuiteCommand { command, timeout: suite_options.timeout(1200) }))
}

fn stress(suite_options: SuiteOptions, places: &Places) -> Result<Prepared> {
    if needs::program("stress-ng").is_none() {
        return Ok(Err("stress-ng is not installed (apt-get install stress-ng)".into()));
    }
    let script = places.tree.join("guest/stress.sh");
    let seconds = if suite_options.quick { "2" } else { "20" };
    let command = vec!["sh".into(), script.into_os_string(), seconds.into()];
    Ok(Ok(SuiteCommand { command, timeout: suite_options.timeout(400) }))
}

fn selftest(suite_options: SuiteOptions, variant: &Variant, places: &Places) -> Result<Prepared> {
    let folder = match selftests(variant, places)? {
        Ok(folder) => folder,
        Err(why) => return Ok(Err(why)),
    };
    let table = quick_table(suite_options, places)?;
    let mode = guest::program("guest/mode", places)?;
    let script = places.tree.join("guest/selftest.sh");
    let command = vec!["sh".into(), script.into(), folder.into(), table.into(), mode.into()];
    Ok(Ok(SuiteCommand { command, timeout: suite_options.timeout(900) }))
}

/// A quick run leaves out what takes minutes: its limit is above 120 s.
fn quick_table(suite_options: SuiteOptions, places: &Places) -> Result<PathBuf> {
    let table = places.tree.join("guest/selftests.table");
    if !suite_options.quick {
        return Ok(table);
    }
    let text =
        fs::read_to_string(&table).with_context(|| format!("cannot read {}", table.display()))?;
    let short = |line: &&str| {
        let limit = line.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
        line.starts_with("cow ") || limit.is_some_and(|limit| limit <= 120)
    };
    let lines: Vec<&str> = text.lines().filter(short).collect();
    let path = places.work.join("selftests-quick.table");
    fs::write(&path, lines.join("\n") + "\n").context("cannot write into the work folder")?;
    Ok(path)
}

/// The test the series itself brings.
fn kselftest(suite_options: SuiteOptions, variant: &Variant, places: &Places) -> Result<Prepared> {
    const OWN: &str = "cow_pte_tables";
    let source = places.variant_source(variant).join(format!("tools/testing/selftests/mm/{OWN}.c"));
    if !source.exists() {
        return Ok(Err("the series brings no kselftest".into()));
    }
    Ok(match selftests(variant, places)? {
        Ok(folder) if folder.join(OWN).exists() => Ok(SuiteCommand {
            command: vec![folder.join(OWN).into()],
            timeout: suite_options.timeout(200),
        }),
        Ok(_) => bail!("{} did not build; see selftests.log in the build folder", source.display()),
        Err(why) => Err(why),
    })
}

/// Builds the kernel's tests of the memory management; the folder with those that this host can
/// compile.
fn selftests(variant: &Variant, places: &Places) -> Result<Folder> {
    let (source, build) = (places.variant_source(variant), places.build(variant));
    for (header, package) in [("sys/capability.h", "libcap-dev"), ("numa.h", "libnuma-dev")] {
        if !Path::new("/usr/include").join(header).exists() {
            return Ok(Err(format!("{header} is missing (apt-get install {package})")));
        }
    }
    let log = build.join("selftests.log");
    let file = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let output = format!("O={}", build.display());
    let mut headers = Command::new("make");
    tool::run(headers.args(["-s", "-C"]).arg(&source).arg(&output).arg("headers"))
        .context("cannot make the kernel's headers for its tests")?;
    // Some of them want newer C libraries; -k goes on with the others. What is missing is said test
    // by test.
    let mut make = Command::new("make");
    make.args(["-k", "-s", "-C"]).arg(source.join("tools/testing/selftests"));
    make.args([output.as_str(), "TARGETS=mm"]);
    make.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let _ = make.status().context("cannot start make")?;
    let folder = build.join("kselftest/mm");
    if !folder.join("cow").exists() {
        return Ok(Err(format!("the kernel's tests do not compile here; see {}", log.display())));
    }
    Ok(Ok(folder))
}

/// Passed, failed, skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    pub fn describe(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The count of a suite's output: a closing line "N passed, N failed, N skipped", kselftest's "#
/// Totals:", or one line per test. None when it has none of these.
pub fn count(output: &str) -> Option<Count> {
    let closing =
        output.lines().rev().find_map(|line| closing_line(line).or_else(|| totals_line(line)));
    closing.or_else(|| {
        let mut count = Count::default();
        for line in output.lines() {
            count.passed += u32::from(line.starts_with("ok "));
            count.failed += u32::from(line.starts_with("not ok "));
            count.skipped += u32::from(line.starts_with("skip "));
        }
        (count != Count::default()).then_some(count)
    })
}

fn closing_line(line: &str) -> Option<Count> {
    // What follows the counts is a remark: "... 3 skipped (seed 12)".
    let counts = line.split(" (").next().unwrap_or(line);
    let mut parts = counts.trim().split(", ");
    let mut number =
        |word: &str| -> Option<u32> { parts.next()?.strip_suffix(word)?.trim_end().parse().ok() };
    Some(Count {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("skipped").unwrap_or(0),
    })
}

/// "# Totals: pass:3 fail:0 xfail:0 xpass:0 skip:1 error:0"
fn totals_line(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("# Totals:")?;
    let number = |name: &str| {
        let found =
            rest.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
        found.and_then(|number| number.parse::<u32>().ok()).unwrap_or(0)
    };
    Some(Count {
        passed: number("pass") + number("xfail"),
        failed: number("fail") + number("error") + number("xpass"),
        skipped: number("skip"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(passed: u32, failed: u32, skipped: u32) -> Option<Count> {
        Some(Count { passed, failed, skipped })
    }

    #[test]
    fn three_ways_of_counting() {
        assert_eq!(count("x\n12 passed, 1 failed, 3 skipped\n"), of(12, 1, 3));
        assert_eq!(count("12 passed, 0 failed\n"), of(12, 0, 0));
        assert_eq!(count("5 passed, 0 failed, 34 skipped (mode 0, seed 1)\n"), of(5, 0, 34));
        assert_eq!(
            count("ok 1 a\nok 2 b\n# Totals: pass:2 fail:0 xfail:1 xpass:0 skip:4 error:1\n"),
            of(3, 1, 4)
        );
        assert_eq!(
            count("ok fork\nnot ok vm: status 2\n#   why\nskip x: y\nok brk\n"),
            of(2, 1, 1)
        );
        assert_eq!(count("Segmentation fault\n"), None);
    }
}
