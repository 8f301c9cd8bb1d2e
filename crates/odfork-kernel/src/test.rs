//! `odfork kernel test`: every suite in a guest of its own, so that a kernel crash ends one suite
//! only. A clean kernel log is one more test of each suite.

use std::path::PathBuf;

use anyhow::{bail, Result};
use odfork_proc::interrupt;

use crate::accel;
use crate::boot::{built, describe_end, keep_console, INTERRUPTED};
use crate::console;
use crate::guest::GuestSpec;
use crate::options::{MachineOptions, TestOptions, SUITES};
use crate::places::{Places, Variant};
use crate::qemu::Accel;
use crate::session::{self, End, Outcome, Stream};
use crate::suites::{self, count, Count, SuiteCommand, SuiteOptions};

const FAILED: u8 = 1;

pub fn run(options: &TestOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let variant = Variant::of(&options.variant);
    let kernel = built(&variant, &places)?;
    let suite_options =
        SuiteOptions { quick: options.quick, debug: variant.debug, only: &options.only };
    let machine = machine(options);
    let accel = accel::choose(&kernel, &machine, &places)?;
    interrupt::listen();
    let test_run = TestRun { variant, kernel, machine, accel, places };
    let mut total = Count::default();
    for name in SUITES {
        if !options.suite.is_empty() && !options.suite.iter().any(|asked| asked == name) {
            continue;
        }
        if interrupt::asked() {
            break;
        }
        let count = match suites::prepare(name, suite_options, &test_run.variant, &test_run.places)
        {
            Ok(Ok(suite_command)) => test_run.run(name, &suite_command)?,
            Ok(Err(why)) => {
                println!("{name}: SKIPPED: {why}");
                Count { skipped: 1, ..Count::default() }
            }
            Err(error) => {
                println!("{name}: FAILED: {error:#}");
                Count { failed: 1, ..Count::default() }
            }
        };
        total.add(count);
    }
    println!("{}", total.describe());
    if interrupt::asked() {
        eprintln!("kernel: interrupted");
        return Ok(INTERRUPTED);
    }
    if total == Count::default() {
        bail!("no test ran");
    }
    Ok(if total.failed > 0 { FAILED } else { 0 })
}

/// Swap and a scratch disk belong to what is tested.
fn machine(options: &TestOptions) -> MachineOptions {
    MachineOptions {
        swap: Some(1 << 30),
        scratch: Some(256 << 20),
        append: options.append.clone(),
        ..MachineOptions::plain(&options.guest)
    }
}

struct TestRun {
    variant: Variant,
    kernel: PathBuf,
    machine: MachineOptions,
    accel: Accel,
    places: Places,
}

impl TestRun {
    fn run(&self, name: &str, suite_command: &SuiteCommand) -> Result<Count> {
        println!("{name}: {}", self.variant.describe());
        let mut spec = GuestSpec::new(&self.kernel, &self.machine, &[]);
        spec.command = suite_command.command.clone();
        spec.timeout = Some(suite_command.timeout);
        let mut output = PrefixedOutput { name, line: Vec::new(), all: String::new() };
        let outcome = session::run(&spec, self.accel, &self.places, &mut |stream, bytes| {
            output.receive(stream, bytes);
        })?;
        output.end();
        let log = self.places.work.join(format!(
            "console-{name}-{}{}.log",
            self.variant.series,
            if self.variant.debug { "-debug" } else { "" }
        ));
        keep_console(&outcome, Some(&log), &self.places)?;
        for line in describe_end(&outcome, &log) {
            println!("{name}: {line}");
        }
        let counted = count_with_log(&output.all, &outcome);
        println!("{name}: {} ({:.0} s)", counted.describe(), outcome.took.as_secs_f64());
        Ok(counted)
    }
}

/// The suite's own count, and one test more: that it came to its end on a kernel without
/// complaints.
fn count_with_log(output: &str, outcome: &Outcome) -> Count {
    let clean = console::splats(&outcome.console).is_empty();
    let mut total = count(output).unwrap_or_default();
    match &outcome.end {
        End::Interrupted => return total,
        // A status that its count does not explain.
        End::Exited(status) if *status != 0 && total.failed == 0 => total.failed += 1,
        End::Exited(_) if clean && (count(output).is_some()) => total.passed += 1,
        _ => total.failed += 1,
    }
    total
}

/// Shows output line by line with the suite's name before it: a closing line of a suite is not that
/// of the whole.
struct PrefixedOutput<'a> {
    name: &'a str,
    line: Vec<u8>,
    all: String,
}

impl PrefixedOutput<'_> {
    fn receive(&mut self, _stream: Stream, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line = String::from_utf8_lossy(&self.line[..end]).into_owned();
            println!("{}: {line}", self.name);
            self.all.push_str(&line);
            self.all.push('\n');
            self.line = rest;
        }
    }

    fn end(&mut self) {
        if !self.line.is_empty() {
            self.receive(Stream::Out, b"\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(end: End, console: &str) -> Outcome {
        Outcome { end, console: console.into(), took: Duration::ZERO }
    }

    fn judged(output: &str, end: End, console: &str) -> (u32, u32) {
        let count = count_with_log(output, &outcome(end, console));
        (count.passed, count.failed)
    }

    #[test]
    fn a_clean_kernel_log_is_one_more_test() {
        assert_eq!(judged("3 passed, 0 failed\n", End::Exited(0), ""), (4, 0));
        assert_eq!(judged("3 passed, 0 failed\n", End::Exited(0), "BUG: x\n"), (3, 1));
        assert_eq!(judged("2 passed, 1 failed\n", End::Exited(1), ""), (3, 1));
        assert_eq!(judged("", End::Exited(0), ""), (0, 1));
        assert_eq!(judged("3 passed, 0 failed\n", End::Exited(1), ""), (3, 1));
        assert_eq!(judged("ok a\n", End::Panicked, ""), (1, 1));
        assert_eq!(judged("ok a\n", End::TimedOut, ""), (1, 1));
    }
}
