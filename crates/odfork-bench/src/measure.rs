//! Running a suite of subjects: configurations, memory, groups, the file; up to the samples.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use odfork_proc::cow_fork;
use odfork_proc::interrupt;
use odfork_proc::libraries;
use odfork_samples::environment::{self, last_cpu};

use crate::configuration::Configuration;
use crate::executor::Processes;
use crate::options::SubjectOptions;
use crate::plan::{fitting, share, Config};
use crate::recorder::Recorder;
use crate::runner::conduct;
use crate::stage::Stage;
use crate::suite::{Subjects, Suite};

const LIBRARY: &str = "libodfork.so";

/// Other work on this machine beyond this load shows in the figures.
const BUSY: f64 = 0.7;

/// Runs the plans of a suite. The recorder knows everything up to the end, or to an interruption.
pub fn measure(
    suite: &Suite,
    subjects: &Subjects,
    options: &SubjectOptions,
    only: Vec<String>,
) -> Result<Recorder> {
    let stage = stage(options)?;
    // Inherited from a shell, it would make all subjects alike; those of `kernel` ask for
    // themselves.
    let _ = cow_fork::set(cow_fork::Mode::Off);
    let common = &options.common;
    let refusal = |one: Configuration| one.refusal(&stage.library);
    let (configurations, mut notes) =
        common.choose(suite.configurations, Configuration::word, refusal)?;
    let available = environment::memory_available();
    let config = Config { configurations, effort: common.effort(), available, only };
    let engines = config.configurations.iter().map(|one| one.word().to_string()).collect();
    let (mut recorder, environment) = common.recorder(suite, engines, false)?;
    if environment.load > BUSY {
        notes.insert(
            0,
            format!(
                "load {:.1} at the start: other work shares the processors; for better figures \
                 run alone",
                environment.load
            ),
        );
    }
    interrupt::listen();
    let mut plans = fitting((subjects.plans)(&config), available, &mut notes);
    notes.extend(plans.iter().flat_map(|plan| plan.notes.clone()));
    if options.unpinned {
        notes.push("subjects ran on any processor (--unpinned)".into());
    }
    notes.into_iter().for_each(|text| recorder.note(text));
    let stretch = f64::from(options.stretch);
    share(&mut plans, subjects.seconds(config.effort).map(|seconds| seconds * stretch));
    let groups: Vec<_> = plans.into_iter().map(|plan| plan.group).collect();
    conduct(&mut Processes::new(stage), &mut recorder, &groups, common.seed);
    Ok(recorder)
}

/// This program, the library, and what the options say of both.
pub fn stage(options: &SubjectOptions) -> Result<Stage> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Stage {
        library: library(&program),
        program,
        image: options.image.clone(),
        cpu: last_cpu().filter(|_| !options.unpinned),
    })
}

/// Where the library is, or should be.
pub fn library(program: &Path) -> PathBuf {
    let named = std::env::var_os("ODFORK_LIB").map(PathBuf::from);
    let found = || libraries::places(program, LIBRARY).into_iter().find(|place| place.exists());
    let library = named.or_else(found).unwrap_or_else(|| program.with_file_name(LIBRARY));
    std::path::absolute(&library).unwrap_or(library)
}
