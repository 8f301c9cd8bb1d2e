//! `odfork kernel bench`: the figures of the kernel engine, plain and kernel mode of one guest in pairs, and the price of
//! the option when it is off, against a guest without the patches: in time, and in instructions, which noise leaves alone.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use odfork_proc::interrupt;
use serde_json::{json, Value};

use crate::accel::{self, Accel};
use crate::boot::{built, keep_console, status, verdict, INTERRUPTED};
use crate::figures::{self, Sample};
use crate::guest::{self, Orders};
use crate::options::{BenchOptions, MachineOptions, VariantOptions};
use crate::places::{Places, Variant};
use crate::session::{self, End, Stream};

/// The second kernel boots this often, in turn with the first.
const BOOTS: u32 = 5;
const BOOTS_QUICK: u32 = 1;
const ROUNDS: u32 = 15;
const ROUNDS_QUICK: u32 = 4;
/// Rounds of a counting guest: they differ by what the kernel has cached only.
const ROUNDS_COUNTED: &str = "9";
const LIMIT: Duration = Duration::from_secs(3600);

pub fn run(options: &BenchOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let patched = built(&Variant::of(&VariantOptions::default()), &places)?;
    let unpatched = VariantOptions { unpatched: true, ..VariantOptions::default() };
    let unpatched = built(&Variant::of(&unpatched), &places);
    let program = guest::program("tests/bench/bench", &places)?;
    let machine = machine(options);
    let accel = accel::choose(&patched, &machine, &places)?;
    interrupt::listen();
    let rounds = options.rounds.unwrap_or(if options.quick { ROUNDS_QUICK } else { ROUNDS });
    let file = options
        .json
        .as_deref()
        .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())));
    let mut bench =
        Bench { places, machine, accel, program, file: file.transpose()?, samples: Vec::new() };
    bench
        .put(&json!({ "kind": "run", "schema": 1, "accel": format!("{accel:?}").to_lowercase(),
        "rounds": rounds, "quick": options.quick, "cpus": options.cpus }))?;
    let largest = if options.quick { "1024" } else { "2048" };
    let rounds_word = rounds.to_string();
    let mut worst =
        bench.boot("patched", &patched, 0, &["--rounds", &rounds_word, "--largest", largest])?;
    worst = worst.max(bench.counted("patched", &patched, &["--largest", "1024"])?);
    match unpatched {
        Ok(unpatched) => {
            let boots = if options.quick { BOOTS_QUICK } else { BOOTS };
            worst = worst.max(bench.price_of_off(&patched, &unpatched, boots, &rounds_word)?);
            worst = worst.max(bench.counted("off", &patched, &["--off"])?);
            worst = worst.max(bench.counted("unpatched", &unpatched, &["--off"])?);
        }
        Err(error) => eprintln!("kernel: the price of the option when off is left out: {error:#}"),
    }
    print!("{}", figures::table(&bench.samples));
    bench.put(&json!({ "kind": "end", "interrupted": interrupt::asked(), "samples": bench.samples.len() }))?;
    if interrupt::asked() {
        return Ok(INTERRUPTED);
    }
    if bench.samples.is_empty() {
        bail!("the guest brought no sample");
    }
    Ok(worst)
}

/// 2 GB twice over: a child may copy all of it.
fn machine(options: &BenchOptions) -> MachineOptions {
    MachineOptions {
        memory: options.memory,
        cpus: options.cpus,
        swap: None,
        zram: None,
        scratch: None,
        append: None,
        accel: options.accel.clone(),
    }
}

struct Bench {
    places: Places,
    machine: MachineOptions,
    accel: Accel,
    program: PathBuf,
    file: Option<File>,
    samples: Vec<Sample>,
}

impl Bench {
    fn put(&mut self, line: &Value) -> Result<()> {
        match &mut self.file {
            Some(file) => writeln!(file, "{line}").context("cannot write the samples"),
            None => Ok(()),
        }
    }

    /// Both kernels in turn, each first as often as the other.
    fn price_of_off(
        &mut self,
        patched: &Path,
        unpatched: &Path,
        boots: u32,
        rounds: &str,
    ) -> Result<u8> {
        let mut worst = 0;
        for boot in 1..=boots {
            let seed = boot.to_string();
            let words = ["--off", "--rounds", rounds, "--seed", &seed];
            let mut pair = [("off", patched), ("unpatched", unpatched)];
            if boot % 2 == 0 {
                pair.reverse();
            }
            for (name, kernel) in pair {
                if interrupt::asked() {
                    return Ok(worst);
                }
                worst = worst.max(self.boot(name, kernel, boot, &words)?);
            }
        }
        Ok(worst)
    }

    /// A guest whose time is instructions. Needs an emulator: under KVM nobody counts.
    fn counted(&mut self, kernel: &str, image: &Path, words: &[&str]) -> Result<u8> {
        if interrupt::asked() {
            return Ok(0);
        }
        let accel = std::mem::replace(&mut self.accel, Accel::Counting);
        let only = ["--only", "fork", "--only", "write-one", "--only", "fault"];
        let words = [&only[..], &["--rounds", ROUNDS_COUNTED], words].concat();
        let status = self.boot(&format!("{kernel}{}", figures::COUNTED), image, 0, &words);
        self.accel = accel;
        status
    }

    /// One guest; its samples are kept as they come. Returns the exit status of the session.
    fn boot(&mut self, kernel: &str, image: &Path, boot: u32, words: &[&str]) -> Result<u8> {
        eprintln!(
            "kernel: measuring in a guest ({kernel}{})",
            if boot > 0 { format!(", boot {boot}") } else { String::new() }
        );
        let mut orders = Orders::new(image, &self.machine, words);
        orders.words.insert(0, self.program.clone().into());
        orders.timeout = Some(LIMIT);
        let mut text = Vec::new();
        let mut fresh = Vec::new();
        let outcome = session::run(&orders, self.accel, &self.places, &mut |stream, bytes| {
            if stream == Stream::Err {
                session::pass_on(stream, bytes);
                return;
            }
            text.extend_from_slice(bytes);
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let rest = text.split_off(end + 1);
                let line = std::mem::replace(&mut text, rest);
                fresh.extend(Sample::read(&line, kernel, boot));
                progress(&fresh);
            }
        })?;
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            eprint!("\r\x1b[K");
        }
        for sample in &fresh {
            self.put(&sample.json())?;
        }
        self.samples.append(&mut fresh);
        let log = keep_console(&outcome, None, &self.places)?;
        for line in verdict(&outcome, &log) {
            eprintln!("kernel: {line}");
        }
        Ok(if outcome.end == End::Interrupted { 0 } else { status(&outcome) })
    }
}

fn progress(samples: &[Sample]) {
    use std::io::IsTerminal;
    if let Some(last) = samples.last().filter(|_| std::io::stderr().is_terminal()) {
        eprint!("\r\x1b[K{} samples; {} {} MB", samples.len(), last.measure, last.bytes >> 20);
    }
}
