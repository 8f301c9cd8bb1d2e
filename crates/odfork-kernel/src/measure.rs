//! `odfork kernel bench`: the figures of the kernel engine, plain and kernel mode of one guest in
//! pairs, and the price of the option when it is off, against a guest without the patches: in time,
//! and in instructions, which noise leaves alone.
//!
//! A point is the boot of a guest: rounds and samples are those its program prints.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use odfork_bench::recorder::{Head, Recorder};
use odfork_bench::runner::{conduct, Block, Budget, Executor, Group, Order, Outcome, Point, Reply};
use odfork_proc::interrupt;
use odfork_samples::environment::Environment;
use odfork_samples::samples::Params;

use crate::accel;
use crate::boot::{built, describe_end, keep_console, status};
use crate::figures::{self, COUNTED};
use crate::guest::{self, GuestSpec};
use crate::options::{BenchOptions, MachineOptions, VariantOptions};
use crate::places::{Places, Variant};
use crate::qemu::Accel;
use crate::session::{self, End, Stream};

pub const NAME: &str = "kernel";
/// The second kernel boots this often, in turn with the first.
const BOOTS: u32 = 5;
const BOOTS_QUICK: u32 = 1;
const ROUNDS: u32 = 15;
const ROUNDS_QUICK: u32 = 4;
/// Rounds of a counting guest: they differ by what the kernel has cached only.
const ROUNDS_COUNTED: &str = "9";
const LIMIT: Duration = Duration::from_secs(3600);
/// About what a boot takes in an emulated guest, for the time left.
const BOOT_S: f64 = 60.0;

pub fn run(options: &BenchOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let patched = built(&Variant::of(&VariantOptions::default()), &places)?;
    let unpatched = VariantOptions { unpatched: true, ..VariantOptions::default() };
    let unpatched = built(&Variant::of(&unpatched), &places);
    let program = guest::program("tests/bench/bench", &places)?;
    let machine = MachineOptions::plain(&options.guest);
    let accel = accel::choose(&patched, &machine, &places)?;
    interrupt::listen();
    let mut recorder = recorder(options)?;
    let words = format!("{accel:?}").to_lowercase();
    recorder.note(format!("guests run under {words} with {} processors", options.guest.cpus));
    let unpatched = unpatched.inspect_err(|error| {
        recorder.note(format!("the price of the option when off is left out: {error:#}"));
    });
    let groups = groups(options, &patched, unpatched.ok().as_deref());
    let mut guests = Guests { places, machine, accel, program, status: 0, begun: Instant::now() };
    conduct(&mut guests, &mut recorder, &groups, 1);
    let is_empty = recorder.recording.samples.is_empty() && !recorder.interrupted;
    print!("{}", figures::table(&recorder.recording.samples));
    let status = recorder.close()?;
    if is_empty {
        bail!("the guest brought no sample");
    }
    Ok(if status == 0 { guests.status } else { status })
}

fn recorder(options: &BenchOptions) -> Result<Recorder> {
    let Some(path) = &options.json else { return Ok(Recorder::nowhere(NAME)) };
    let effort = if options.quick { "quick" } else { "default" };
    let engines = ["plain", "kernel"].map(str::to_string).into();
    let head = Head { experiment: NAME, row: "", effort, engines, seed: 1 };
    Recorder::open(path, head, &Environment::observe(), false)
}

/// A guest: its kernel and what its program is told.
#[derive(Clone, Debug)]
struct Boot {
    kernel: PathBuf,
    words: Vec<String>,
    /// Time is instructions. Needs an emulator: under KVM nobody counts.
    counted: bool,
}

/// Name of the kernel in the samples, its image, words of the program.
type Guest<'a> = (&'a str, &'a Path, &'a [&'a str]);

fn point((name, kernel, words): Guest, counted: bool) -> Point<Boot> {
    let mut words: Vec<String> = words.iter().map(|word| (*word).into()).collect();
    let mut name = name.to_string();
    if counted {
        name += COUNTED;
        let counting = ["--only", "fork", "--only", "write-one", "--only", "fault", "--rounds"];
        let counting = counting.into_iter().chain([ROUNDS_COUNTED]).map(str::to_string);
        words = counting.chain(words).collect();
    }
    let params = Params::from([("kernel".to_string(), name.into())]);
    let op = Boot { kernel: kernel.to_path_buf(), words, counted };
    // In which mode a number was measured, the guest says.
    Point { engine: "plain", targets: Vec::new(), params, op }
}

fn groups(
    options: &BenchOptions,
    patched: &Path,
    unpatched: Option<&Path>,
) -> Vec<Group<(), Boot>> {
    let default = if options.quick { ROUNDS_QUICK } else { ROUNDS };
    let rounds = options.rounds.unwrap_or(default).to_string();
    let largest = if options.quick { "1024" } else { "2048" };
    let boots = if options.quick { BOOTS_QUICK } else { BOOTS };
    let group = |title: &str, points: Vec<Point<Boot>>, boots: u32| {
        let expected = BOOT_S * f64::from(boots) * points.len() as f64;
        // Each kernel is first as often as the other.
        let budget = Budget { order: Order::Alternating, ..Budget::rounds(boots) };
        let blocks = vec![Block { points, budget }];
        Group { title: title.into(), targets: Vec::new(), blocks, expected }
    };
    let pairs = ["--rounds", &rounds, "--largest", largest];
    let mut groups = vec![
        group("plain and kernel mode", vec![point(("patched", patched, &pairs), false)], 1),
        group("instructions", vec![point(("patched", patched, &["--largest", "1024"]), true)], 1),
    ];
    if let Some(unpatched) = unpatched {
        let off = ["--off", "--rounds", &rounds];
        let both = |words, counted| {
            [("off", patched), ("unpatched", unpatched)]
                .map(|(name, kernel)| point((name, kernel, words), counted))
                .into()
        };
        groups.push(group("the price when off", both(&off, false), boots));
        groups.push(group("the same in instructions", both(&["--off"], true), 1));
    }
    groups
}

struct Guests {
    places: Places,
    machine: MachineOptions,
    accel: Accel,
    program: PathBuf,
    /// The worst of all guests.
    status: u8,
    begun: Instant,
}

impl Executor for Guests {
    type Target = ();
    type Op = Boot;

    fn perform(&mut self, point: &Point<Boot>, round: u32) -> Reply {
        self.boot(&point.op, round).unwrap_or_else(|error| {
            self.status = self.status.max(1);
            Outcome::Wrong(format!("{error:#}")).into()
        })
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Guests {
    /// One guest; its samples name the boot they are of.
    fn boot(&mut self, boot: &Boot, round: u32) -> Result<Reply> {
        // Each pair of boots has its own order of measurements.
        let seed = ["--seed".to_string(), round.to_string()];
        let words: Vec<&str> = boot.words.iter().chain(&seed).map(String::as_str).collect();
        let mut spec = GuestSpec::new(&boot.kernel, &self.machine, &words);
        spec.command.insert(0, self.program.clone().into());
        spec.timeout = Some(LIMIT);
        let (mut text, mut numbers) = (Vec::new(), Vec::new());
        let accel = if boot.counted { Accel::Counting } else { self.accel };
        let outcome = session::run(&spec, accel, &self.places, &mut |stream, bytes| {
            if stream == Stream::Err {
                session::pass_on(stream, bytes);
                return;
            }
            text.extend_from_slice(bytes);
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let rest = text.split_off(end + 1);
                let line = std::mem::replace(&mut text, rest);
                numbers.extend(figures::read(&line).map(|number| number.with("boot", round)));
            }
        })?;
        let log = keep_console(&outcome, None, &self.places)?;
        for line in describe_end(&outcome, &log) {
            eprintln!("kernel: {line}");
        }
        let mut reply = Reply::numbers(numbers);
        match outcome.end {
            End::Interrupted => reply.outcome = Outcome::Interrupted,
            _ => self.status = self.status.max(status(&outcome)),
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::GuestOptions;

    #[test]
    fn kernels_alternate_and_a_counting_guest_measures_less() {
        let options = BenchOptions {
            quick: false,
            rounds: None,
            json: None,
            guest: GuestOptions { memory: 4 << 30, cpus: 2, accel: None },
            places: Default::default(),
        };
        let all = groups(&options, Path::new("/p"), Some(Path::new("/u")));
        let price = &all[2].blocks[0];
        assert_eq!((price.points.len(), price.budget.at_most), (2, 5));
        assert_eq!(price.budget.order, Order::Alternating);
        assert_eq!(all[0].blocks[0].points[0].op.words, ["--rounds", "15", "--largest", "2048"]);
        let counted = &all[3].blocks[0].points[1];
        assert_eq!(counted.params["kernel"], "unpatched, counted");
        assert!(counted.op.words.starts_with(&["--only".into(), "fork".into()]));
        assert!(counted.op.counted && counted.op.words.ends_with(&["9".into(), "--off".into()]));
        assert_eq!(groups(&options, Path::new("/p"), None).len(), 2);
    }
}
