//! Running a suite of subjects: configurations, memory, groups, the file; up to the samples.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ArgMatches;

use odfork_proc::cow_fork;
use odfork_proc::interrupt;
use odfork_samples::environment::{self, last_cpu, Environment};
use odfork_samples::stats::Rng;

use crate::configuration::Configuration;
use crate::executor::Processes;
use crate::options::{choose, folder, seed};
use crate::plan::{fitting, share, Config, Effort, Plan};
use crate::progress::Progress;
use crate::recorder::{path_of, Head, Recorder};
use crate::runner::Runner;
use crate::stage::Stage;
use crate::suite::{Subjects, Suite};

/// Other work on this machine beyond this load shows in the figures.
const BUSY: f64 = 0.7;

/// Runs the plans of a suite. The recorder knows everything up to the end, or to an interruption.
pub fn measure(
    suite: &Suite,
    subjects: &Subjects,
    matches: &ArgMatches,
    only: Vec<String>,
) -> Result<Recorder> {
    let stage = stage(matches)?;
    // Inherited from a shell, it would make all subjects alike; those of `kernel` ask for
    // themselves.
    let _ = cow_fork::set(cow_fork::Mode::Off);
    let refusal = |one: Configuration| one.refusal(&stage.library);
    let (configurations, mut notes) =
        choose(matches, suite.configurations, Configuration::word, refusal)?;
    let config = Config {
        configurations,
        effort: effort(matches),
        available: environment::memory_available(),
        only,
    };
    let mut recorder = open(suite, &config, matches)?;
    interrupt::listen();
    let plans = fitting((subjects.plans)(&config), config.available, &mut notes);
    notes.extend(plans.iter().flat_map(|plan| plan.notes.clone()));
    if matches.get_flag("unpinned") {
        notes.push("subjects ran on any processor (--unpinned)".into());
    }
    notes.into_iter().for_each(|text| recorder.note(text));
    let stretch = f64::from(*matches.get_one::<u32>("stretch").unwrap_or(&1));
    let seconds = subjects.seconds(config.effort).map(|seconds| seconds * stretch);
    run_plans(plans, seconds, Processes::new(stage), (&mut recorder, seed(matches)));
    Ok(recorder)
}

fn run_plans(
    mut plans: Vec<Plan>,
    seconds: Option<f64>,
    mut processes: Processes,
    (recorder, seed): (&mut Recorder, u64),
) {
    share(&mut plans, seconds);
    let groups: Vec<_> = plans.into_iter().map(|plan| plan.group).collect();
    let mut progress = Progress::on_stderr(groups.iter().map(|group| group.expected).sum());
    let rng = Rng::with_seed(seed);
    let executor = &mut processes;
    Runner { executor, recorder, progress: &mut progress, rng }.run(&groups);
}

fn open(suite: &Suite, config: &Config, matches: &ArgMatches) -> Result<Recorder> {
    let environment = Environment::observe();
    println!("{}", environment.summary());
    let head = Head {
        experiment: suite.name,
        row: suite.row,
        effort: config.effort.word(),
        engines: config.configurations.iter().map(|one| one.word().to_string()).collect(),
        seed: seed(matches),
    };
    let path = path_of(matches.get_one("json"), folder(matches), suite.name)?;
    let mut recorder = Recorder::open(&path, head, &environment, false)?;
    if environment.load > BUSY {
        recorder.note(format!(
            "load {:.1} at the start: other work shares the processors; for better figures run \
             alone",
            environment.load
        ));
    }
    Ok(recorder)
}

fn effort(matches: &ArgMatches) -> Effort {
    match (matches.get_flag("quick"), matches.get_flag("full")) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Full,
        _ => Effort::Default,
    }
}

/// This program, the library, and what the options say of both.
pub fn stage(matches: &ArgMatches) -> Result<Stage> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = program.with_file_name("libodfork.so");
    let above = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let places = [beside, above.join("lib/odfork/libodfork.so"), above.join("lib/libodfork.so")];
    let library = match std::env::var_os("ODFORK_LIB") {
        Some(path) => PathBuf::from(path),
        None => {
            let found = places.iter().find(|place| place.exists());
            found.unwrap_or(&places[0]).clone()
        }
    };
    Ok(Stage {
        program,
        library: std::path::absolute(&library).unwrap_or(library),
        image: matches.get_one::<String>("image").cloned(),
        cpu: last_cpu().filter(|_| !matches.get_flag("unpinned")),
    })
}
