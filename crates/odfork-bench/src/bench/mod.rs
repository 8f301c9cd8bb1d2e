//! `odfork bench`: the published experiments, rerun on this machine. Parses, plans, runs, prints.
//!
//! The way of one experiment: `catalogue` names it, `plans` (and `exec`) make its groups for the engines and the memory
//! that are there, `runner` interleaves their cells and writes every sample (`samples`), `screen` prints the medians.
//! What a subject does on command is in `workload`; what becomes of the files is in `odfork-report` and `fit`.

pub mod catalogue;
pub mod engine;
pub mod exec;
mod keeper;
mod matrix;
pub mod plans;
pub mod pool;
pub mod profile;
pub mod runner;
pub mod screen;
pub mod trial;

use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::demo;
use crate::executor::{Processes, Stage};
use crate::paging;
use crate::pairing::Executor;
use crate::progress::Progress;
use crate::sessions;
use catalogue::{Entry, EXPERIMENTS};
use engine::Engine;
use keeper::Keeper;
use odfork_proc::command::cannot;
use odfork_proc::cow_fork;
use odfork_proc::interrupt;
use odfork_samples::environment::{self, last_cpu, Environment};
use odfork_samples::samples::{End, Line, Params, Run, Sample, Writer, SCHEMA};
use odfork_samples::stats::Rng;
use pool::Pool;
use runner::{Runner, Sink};
use trial::{Brief, Effort, Group};

pub use crate::cli::{run_subject, subject_command};

const FOLDER: &str = "odfork-results";
const INTERRUPTED: u8 = 130;
/// Experiments with a runner of their own; `all` leaves them out: they set up swap, and take longer.
const OTHERS: [(&str, &str, &str, &str); 3] = [
    (paging::NAME, paging::ROW, paging::QUESTION, paging::PUBLISHED),
    (sessions::NAME, sessions::ROW, sessions::QUESTION, sessions::PUBLISHED),
    (demo::NAME, demo::ROW, demo::QUESTION, demo::PUBLISHED),
];
/// Loading memory, rough: for the time left.
const LOAD_BYTES_PER_S: f64 = 7e8;

const EXAMPLES: &str = "\
Examples:
  odfork bench latency                    2 minutes; samples in odfork-results/
  odfork bench grid --quick               below a minute: does it run here?
  odfork bench all                        every experiment, about 10 minutes
  odfork bench fault --engine plain,thp   these engines only
  odfork bench exec --json exec.jsonl     samples into this file
  odfork bench list                       what there is, and what was published
  odfork report odfork-results            then: one HTML file with all plots

Engines: plain (4 KB pages), thp (transparent huge pages), hugetlb (the
kernel's pool), image (libodfork.so, frozen), kernel (on-demand-fork kernel),
null (the harness alone). All that can be had here run interleaved.

Exit status: 0 whatever the times are, 1 when memory had wrong content, 2 when
it could not run, 130 when interrupted (what was measured is kept).";

/// The command and one subcommand for each experiment.
pub fn command() -> Command {
    let experiments = EXPERIMENTS.iter().map(|entry| {
        let about = format!("{} ({})", entry.question, entry.row);
        with_options(Command::new(entry.name).about(about))
            .after_help(format!("Published: {}", entry.published))
    });
    Command::new("bench")
        .about("Rerun published measurements of fork on this machine")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(experiments)
        .subcommand(paging::command())
        .subcommand(sessions::command())
        .subcommand(demo::command())
        .subcommand(with_options(
            Command::new("all")
                .about("Every experiment but paging and sessions, one after the other"),
        ))
        .subcommand(
            Command::new("list")
                .about("List the experiments and the row of the mission each serves")
                .arg(
                    Arg::new("json")
                        .long("json")
                        .action(ArgAction::SetTrue)
                        .help("As one JSON array"),
                ),
        )
}

/// Where an experiment writes its samples.
pub fn output_options(command: Command) -> Command {
    let path = || clap::value_parser!(PathBuf);
    command
        .arg(
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(path())
                .help("Write the samples (JSON Lines) here instead of DIR/NAME.jsonl"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(path())
                .default_value(FOLDER)
                .help("Folder of the sample files"),
        )
}

fn with_options(command: Command) -> Command {
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let command = command
        .arg(switch("quick").help("Small sizes, few rounds: shows that it runs"))
        .arg(
            switch("full")
                .conflicts_with("quick")
                .help("The published scale, as far as memory goes"),
        )
        .arg(
            Arg::new("engine")
                .long("engine")
                .value_name("LIST")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(["plain", "thp", "hugetlb", "image", "kernel", "null"])
                .help("Only these engines"),
        );
    output_options(command)
        .arg(
            Arg::new("image")
                .long("image")
                .value_name("IMAGE")
                .value_parser(["auto", "huge", "small"])
                .help("Which image the engine 'image' uses"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(clap::value_parser!(u64))
                .default_value("1")
                .help("Seed of the random order"),
        )
        .arg(
            Arg::new("stretch")
                .long("stretch")
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..=1000))
                .default_value("1")
                .help("Take N times as long: an emulated guest needs 10"),
        )
        .arg(switch("unpinned").help("Let subjects run on any processor"))
}

pub fn run(matches: &ArgMatches) -> u8 {
    let outcome = match matches.subcommand() {
        Some(("list", inner)) => list(inner.get_flag("json")),
        Some(("all", inner)) => all(inner),
        Some((paging::NAME, inner)) => paging::run(inner),
        Some((sessions::NAME, inner)) => sessions::run(inner),
        Some((demo::NAME, inner)) => demo::run(inner),
        Some((name, inner)) => match Entry::find(name) {
            Some(entry) => one(entry, inner),
            None => Err(anyhow::anyhow!("no experiment {name}; see `odfork bench list`")),
        },
        None => Err(anyhow::anyhow!("name an experiment; see `odfork bench list`")),
    };
    outcome.unwrap_or_else(|error| cannot("bench", &error))
}

fn list(json: bool) -> Result<u8> {
    if json {
        let all: Vec<_> = EXPERIMENTS.iter().map(Entry::json).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        for entry in &EXPERIMENTS {
            println!("{:<14} {}  {}", entry.name, entry.row, entry.question);
            println!("{:<19} published: {}", "", entry.published);
        }
        for (name, row, question, published) in OTHERS {
            println!("{name:<14} {row}  {question}");
            println!("{:<19} published: {published}", "");
        }
    }
    Ok(0)
}

fn all(matches: &ArgMatches) -> Result<u8> {
    if matches.get_one::<PathBuf>("json").is_some() {
        bail!("--json names one file and `all` writes one for each experiment; use --dir");
    }
    let mut worst = 0;
    for entry in &EXPERIMENTS {
        worst = worst.max(one(entry, matches)?);
        if worst == INTERRUPTED {
            break;
        }
    }
    println!("\nsamples are in {0}; odfork report {0} makes the report", folder(matches).display());
    Ok(worst)
}

fn folder(matches: &ArgMatches) -> &Path {
    matches.get_one::<PathBuf>("dir").map_or(Path::new(FOLDER), PathBuf::as_path)
}

/// One experiment from opening its file to printing its table.
fn one(entry: &'static Entry, matches: &ArgMatches) -> Result<u8> {
    let stage = stage(matches)?;
    // Inherited from a shell, it would make all subjects alike; those of engine kernel ask for themselves.
    let _ = cow_fork::set(cow_fork::Mode::Off);
    let (engines, mut notes) = engines(entry, matches, &stage)?;
    let effort = match (matches.get_flag("quick"), matches.get_flag("full")) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Full,
        _ => Effort::Default,
    };
    let seed = *matches.get_one::<u64>("seed").unwrap_or(&1);
    let mut keeper = Keeper::new(open(entry, matches)?);
    let environment = Environment::observe();
    println!("{}", environment.summary());
    keeper.put(Line::Run(Box::new(Run {
        schema: SCHEMA,
        experiment: entry.name.into(),
        row: entry.row.into(),
        effort: effort.word().into(),
        engines: engines.iter().map(|engine| engine.word().to_string()).collect(),
        seed,
        environment: serde_json::to_value(&environment)?,
    })));
    interrupt::listen();
    let brief = Brief { engines, effort, available: environment::memory_available() };
    let groups = brief.fitting((entry.groups)(&brief), &mut notes);
    notes.extend(groups.iter().flat_map(|group| group.notes.clone()));
    if matches.get_flag("unpinned") {
        notes.push("subjects ran on any processor (--unpinned)".into());
    }
    for text in notes {
        keeper.put(Line::Note { text });
    }
    let stretch = *matches.get_one::<u32>("stretch").unwrap_or(&1);
    let time = entry.seconds(effort) * f64::from(stretch);
    let end = measure((entry.name, time), stage, &brief, groups, (seed, &mut keeper));
    let status = status(&end);
    keeper.put(Line::End(end));
    keeper.print(entry)?;
    Ok(status)
}

fn measure(
    (name, seconds): (&'static str, f64),
    stage: Stage,
    brief: &Brief,
    groups: Vec<Group>,
    (seed, keeper): (u64, &mut Keeper),
) -> End {
    let weights: f64 = groups.iter().map(|group| group.weight).sum();
    let part = |group: &Group| seconds * group.weight / weights;
    let expected = |group: &Group| part(group) + 0.3 + group.needs() as f64 / LOAD_BYTES_PER_S;
    let planned: f64 = groups.iter().map(expected).sum::<f64>().max(seconds);
    let mut progress = Progress::on_stderr(planned);
    let mut processes = Processes::new(stage.clone());
    let begun = processes.now();
    let mut runner = Runner {
        experiment: name,
        executor: &mut processes,
        rng: &mut Rng::with_seed(seed),
        progress: &mut progress,
        sink: keeper,
        begun,
        round: 0,
        wrongs: Vec::new(),
        interrupted: false,
    };
    if name == "profile" {
        runner.progress.begin(name, planned);
        profile_engines(&stage, brief, seconds, runner.sink);
    }
    for group in groups {
        if runner.interrupted {
            break;
        }
        runner.progress.begin(&group.title, expected(&group));
        let (time, group) = (part(&group), group);
        let (_pool, group) = with_pool(group, runner.sink);
        runner.run(group, time);
        runner.progress.end();
    }
    runner.progress.clear();
    let (wrongs, interrupted) = (runner.wrongs, runner.interrupted || interrupt::asked());
    let seconds = processes.now().saturating_sub(begun).as_secs_f64();
    End { interrupted, samples: keeper.count(), seconds, wrongs }
}

/// Enlarges the pool of huge pages for a group that needs it, or takes that engine out of the group.
fn with_pool(mut group: Group, sink: &mut dyn Sink) -> (Option<Pool>, Group) {
    if group.pool_pages == 0 {
        return (None, group);
    }
    match Pool::reserve(group.pool_pages) {
        Ok(pool) => (pool, group),
        Err(why) => {
            sink.put(Line::Note { text: format!("hugetlb left out at {}: {why}", group.title) });
            let gone: Vec<usize> = group
                .cells
                .iter()
                .filter(|cell| cell.engine == Engine::Hugetlb)
                .flat_map(|cell| cell.subjects.clone())
                .collect();
            group.cells.retain(|cell| cell.engine != Engine::Hugetlb);
            // Their seats stay, so that the others keep theirs, but hold nothing.
            for subject in gone {
                group.subjects[subject] = Engine::Null.subject(0);
            }
            (None, group)
        }
    }
}

fn profile_engines(stage: &Stage, brief: &Brief, seconds: f64, sink: &mut dyn Sink) {
    let size = if brief.effort == Effort::Quick { 64 << 20 } else { 1 << 30 };
    let each = seconds / brief.engines.len().max(1) as f64;
    for (round, &engine) in (1..).zip(&brief.engines) {
        if interrupt::asked() {
            return;
        }
        match profile::profile(stage, engine.subject(size), each) {
            Ok(found) => put_profile(&found, engine, size, round, sink),
            Err(error) => {
                sink.put(Line::Note { text: format!("{}: {error:#}", engine.word()) });
            }
        }
    }
}

fn put_profile(
    found: &profile::Profile,
    engine: Engine,
    size: u64,
    round: u32,
    sink: &mut dyn Sink,
) {
    let mut put = |metric: &str, (name, value, unit): (&str, f64, &str)| {
        sink.put(Line::Sample(Sample {
            experiment: "profile".into(),
            engine: engine.word().into(),
            metric: metric.into(),
            unit: unit.into(),
            value,
            params: Params::from([
                ("bytes".to_string(), size.into()),
                ("source".to_string(), found.source.into()),
                ("name".to_string(), name.into()),
            ]),
            round,
            at_s: 0.0,
        }));
    };
    for part in &found.parts {
        put("share", (&part.name, part.share, "share"));
    }
    for (name, value, unit) in &found.counters {
        put("count", (name, *value, unit));
    }
    if let Some(why) = &found.why {
        sink.put(Line::Note { text: format!("{}: no perf: {why}", engine.word()) });
    }
}

/// The engines asked for, or all of the experiment that can be had; notes say which cannot.
fn engines(
    entry: &Entry,
    matches: &ArgMatches,
    stage: &Stage,
) -> Result<(Vec<Engine>, Vec<String>)> {
    let asked: Vec<Engine> = matches
        .get_many::<String>("engine")
        .into_iter()
        .flatten()
        .filter_map(|word| Engine::from_word(word))
        .collect();
    let wanted = |engine: &Engine| asked.is_empty() || asked.contains(engine);
    let mut notes = Vec::new();
    let mut taken = Vec::new();
    for &engine in entry.engines.iter().filter(|engine| wanted(engine)) {
        match engine.refusal(stage) {
            None => taken.push(engine),
            Some(why) => notes.push(format!("{} left out: {why}", engine.word())),
        }
    }
    for engine in asked.iter().filter(|engine| !entry.engines.contains(engine)) {
        notes.push(format!("{} has no engine {}", entry.name, engine.word()));
    }
    if taken.is_empty() {
        bail!("no engine is left to measure: {}", notes.join("; "));
    }
    Ok((taken, notes))
}

fn stage(matches: &ArgMatches) -> Result<Stage> {
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

fn open(entry: &Entry, matches: &ArgMatches) -> Result<Writer> {
    if let Some(path) = matches.get_one::<PathBuf>("json") {
        return Writer::create(path);
    }
    let folder = folder(matches);
    std::fs::create_dir_all(folder).with_context(|| {
        format!("cannot make the folder {}; name another with --dir", folder.display())
    })?;
    Writer::create(&folder.join(format!("{}.jsonl", entry.name)))
}

fn status(end: &End) -> u8 {
    match (end.wrongs.is_empty(), end.interrupted) {
        (false, _) => 1,
        (true, true) => INTERRUPTED,
        (true, false) => 0,
    }
}
