//! The fuzzers of a case, one for each arm: slices in turn, and at the end what each has found and
//! what of that a fresh process reaches again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use odfork_samples::samples::{Params, Sample};

use super::fuzzer::{Fuzzer, Run};
use super::replay;
use super::target::{Case, Workshop};
use crate::configuration::Configuration;
use crate::foreign::engine;
use crate::foreign::seats::Stand;
use crate::runner::{Number, Point};

/// What AFL asks of a target with AddressSanitizer, and what odfork asks: freed memory stays.
const ASAN: &str =
    "abort_on_error=1:symbolize=0:detect_leaks=0:allocator_release_to_os_interval_ms=-1";

/// How the target is run.
#[derive(Clone, Debug)]
pub struct Arm {
    pub name: &'static str,
    /// What copies less there.
    pub configuration: Configuration,
    pub variables: Vec<(String, String)>,
    pub loops: u32,
}

#[derive(Clone, Debug)]
pub struct Target {
    pub arm: Arm,
    pub case: Case,
    pub params: Params,
}

/// What all cases have in common.
pub struct Settings {
    /// This program, which is asked what odfork did.
    pub odfork: PathBuf,
    pub library: PathBuf,
    pub fuzz: PathBuf,
    /// Of what fuzzers find.
    pub folder: PathBuf,
    pub workshop: Workshop,
    pub slice: Duration,
    /// Inputs whose edges are compared with stock's.
    pub compared: usize,
    pub seed: u64,
}

pub struct Trial<'a> {
    settings: &'a Settings,
    program: PathBuf,
    /// What fuzzers had found at their end.
    pub findings: Vec<Sample>,
}

impl<'a> Trial<'a> {
    pub fn new(settings: &'a Settings) -> Trial<'a> {
        Trial { settings, program: PathBuf::new(), findings: Vec::new() }
    }

    fn run(&self, arm: &Arm, case: Case) -> Run {
        let mut variables = arm.variables.clone();
        if self.settings.workshop.asan {
            variables.push(("ASAN_OPTIONS".into(), ASAN.into()));
        }
        let (odfork, library) = (&self.settings.odfork, &self.settings.library);
        Run {
            through: (arm.configuration == Configuration::Kernel).then(|| odfork.clone()),
            program: self.program.clone(),
            bytes: case.bytes,
            loops: arm.loops,
            preload: (arm.configuration == Configuration::Image).then(|| library.clone()),
            variables,
        }
    }

    /// Ends the fuzzer, and looks at what it found.
    fn conclude(&mut self, fuzzer: &mut Fuzzer, target: &Target) -> Result<(), String> {
        let stats = fuzzer.finish()?;
        let number = |name: &str| {
            let text = stats.get(name).ok_or(format!("fuzzer_stats has no {name}"))?;
            text.trim_end_matches('%').parse::<f64>().map_err(|_| format!("{name} is {text:?}"))
        };
        let edges = number("edges_found")?;
        let mut found = vec![
            Number::new("edges-found", "count", edges),
            Number::new("edge-rate", "1/s", edges / fuzzer.active.max(1e-9)),
            Number::new("stability", "share", number("stability")? / 100.0),
            Number::new("corpus", "count", number("corpus_count")?),
            Number::new("crashes", "count", number("saved_crashes")?),
            Number::new("hangs", "count", number("saved_hangs")?),
            Number::new("ready", "s", fuzzer.ready.as_secs_f64()),
        ];
        found.extend(self.replay(target, &fuzzer.results())?);
        self.findings.extend(found.into_iter().map(|number| {
            let sample = Sample::of(target.arm.name, (&number.metric, number.unit), number.value);
            Sample { params: target.params.clone(), ..sample }
        }));
        Ok(())
    }

    /// What the queue reaches in fresh processes; with odfork it must be what stock reaches.
    fn replay(&self, target: &Target, results: &Path) -> Result<Vec<Number>, String> {
        let folder = results.with_file_name("replay");
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let log = folder.join("log");
        let configuration = Configuration::Plain;
        let stock = Arm { name: "", configuration, variables: Vec::new(), loops: 1 };
        // Cheap forks where they are to be had: what they do is compared below.
        let variables = vec![("ODFORK_FREEZE".into(), "eager".into())];
        let has_library = self.settings.library.exists();
        let configuration = if has_library { Configuration::Image } else { configuration };
        let cheap = Arm { configuration, variables, ..stock.clone() };
        let [stock, cheap] = [stock, cheap].map(|arm| self.run(&arm, target.case));
        let mut found = vec![("lost", replay::lost(&cheap, results, &log)? as f64)];
        if target.arm.configuration != Configuration::Plain {
            let own = self.run(&target.arm, target.case);
            let (queue, most) = (results.join("queue"), self.settings.compared);
            let count = replay::compare([&stock, &own], &queue, most, &log)?;
            found.push(("compared", count as f64));
        }
        let number = |(metric, value)| Number::new(metric, "count", value);
        Ok(found.into_iter().map(number).collect())
    }
}

impl Stand for Trial<'_> {
    type Target = Target;
    type Op = ();
    type Seat = Fuzzer;

    fn start(&mut self, target: &Target) -> Result<Fuzzer, String> {
        let case = target.case;
        let said = |error: anyhow::Error| format!("{error:#}");
        self.program = self.settings.workshop.program(case).map_err(said)?;
        let folder = self.settings.folder.join(format!("{}-{}", case.word(), case.bytes));
        let (seeds, dictionary) = Workshop::inputs(case, &folder).map_err(said)?;
        let run = self.run(&target.arm, case);
        let own = folder.join(target.arm.name);
        let inputs = (seeds.as_path(), dictionary.as_deref());
        Fuzzer::start(&self.settings.fuzz, &run, inputs, &own, self.settings.seed)
    }

    fn slice(
        &mut self,
        fuzzer: &mut Fuzzer,
        _target: &Target,
        _point: &Point<()>,
    ) -> Result<Vec<Number>, String> {
        let (executions, seconds) = fuzzer.slice(self.settings.slice)?;
        let mut numbers = vec![Number::new("rate", "1/s", executions as f64 / seconds)];
        numbers.extend(fuzzer.edges().map(|edges| Number::new("edges", "count", edges)));
        Ok(numbers)
    }

    fn end(&mut self, mut fuzzer: Fuzzer, target: &Target) -> Result<Option<String>, String> {
        let server = || fuzzer.server().ok_or("the fork server is not found");
        let says = match target.arm.configuration == Configuration::Image {
            true => Some(engine(&self.settings.odfork, server()?)?),
            false => None,
        };
        self.conclude(&mut fuzzer, target)?;
        Ok(says)
    }
}
