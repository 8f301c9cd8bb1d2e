//! `odfork kernel test`: every suite in a guest of its own, so that a kernel that dies takes one suite with it; a clean
//! kernel log is one more test of each.

use std::path::PathBuf;

use anyhow::{bail, Result};
use odfork_proc::interrupt;

use crate::accel::{self, Accel};
use crate::boot::{built, keep_console, verdict, INTERRUPTED};
use crate::console;
use crate::guest::Orders;
use crate::options::{MachineOptions, TestOptions};
use crate::places::{Places, Variant};
use crate::session::{self, End, Outcome, Stream};
use crate::suites::{self, count, Count, Effort, Errand};

const FAILED: u8 = 1;

pub fn run(options: &TestOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let variant = Variant::of(&options.variant);
    let kernel = built(&variant, &places)?;
    let effort = Effort { quick: options.quick, debug: variant.debug, only: &options.only };
    let machine = machine(options);
    let accel = accel::choose(&kernel, &machine, &places)?;
    interrupt::listen();
    let stage = Stage { variant, kernel, machine, accel, places };
    let mut total = Count::default();
    for name in suites::NAMES {
        if !options.suite.is_empty() && !options.suite.iter().any(|asked| asked == name) {
            continue;
        }
        if interrupt::asked() {
            break;
        }
        let count = match suites::prepare(name, effort, &stage.variant, &stage.places) {
            Ok(Ok(errand)) => stage.run(name, &errand)?,
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
    println!("{}", total.words());
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
        memory: options.memory,
        cpus: options.cpus,
        swap: Some(1 << 30),
        zram: None,
        scratch: Some(256 << 20),
        append: options.append.clone(),
        accel: options.accel.clone(),
    }
}

struct Stage {
    variant: Variant,
    kernel: PathBuf,
    machine: MachineOptions,
    accel: Accel,
    places: Places,
}

impl Stage {
    fn run(&self, name: &str, errand: &Errand) -> Result<Count> {
        println!("{name}: {}", self.variant.words());
        let mut orders = Orders::new(&self.kernel, &self.machine, &[]);
        orders.words = errand.words.clone();
        orders.timeout = Some(errand.timeout);
        let mut echo = Echo { name, line: Vec::new(), all: String::new() };
        let outcome = session::run(&orders, self.accel, &self.places, &mut |stream, bytes| {
            echo.hear(stream, bytes);
        })?;
        echo.end();
        let log = self.places.work.join(format!(
            "console-{name}-{}{}.log",
            self.variant.series,
            if self.variant.debug { "-debug" } else { "" }
        ));
        keep_console(&outcome, Some(&log), &self.places)?;
        for line in verdict(&outcome, &log) {
            println!("{name}: {line}");
        }
        let counted = judge(&echo.all, &outcome);
        println!("{name}: {} ({:.0} s)", counted.words(), outcome.took.as_secs_f64());
        Ok(counted)
    }
}

/// The suite's own count, and one test more: that it came to its end on a kernel without complaints.
fn judge(output: &str, outcome: &Outcome) -> Count {
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

/// Shows output line by line with the suite's name before it: a closing line of a suite is not that of the whole.
struct Echo<'a> {
    name: &'a str,
    line: Vec<u8>,
    all: String,
}

impl Echo<'_> {
    fn hear(&mut self, _stream: Stream, bytes: &[u8]) {
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
            self.hear(Stream::Out, b"\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(end: End, console: &str) -> Outcome {
        Outcome { end, console: console.into(), boot: None, took: Duration::ZERO }
    }

    fn judged(output: &str, end: End, console: &str) -> (u32, u32) {
        let count = judge(output, &outcome(end, console));
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
