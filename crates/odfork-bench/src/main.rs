//! odfork-bench: parses, then is a driver or one of its subjects. Only wiring lives here.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, Context, Result};
use clap::Parser;

use odfork_bench::catalogue::figures;
use odfork_bench::cli::{Cli, Role, SubjectOptions};
use odfork_bench::executor::{Processes, Stage};
use odfork_bench::experiments::Experiment;
use odfork_bench::figures::{judge, Figure, Finding};
use odfork_bench::plan;
use odfork_bench::progress::Progress;
use odfork_bench::record::Record;
use odfork_bench::report::lines::Lines;
use odfork_bench::report::table;
use odfork_bench::session;
use odfork_bench::workload::{run_program, serve};
use odfork_proc::cow_fork;
use odfork_proc::interrupt;
use odfork_samples::environment::{last_cpu, Environment};
use odfork_samples::stats::Rng;

/// Other work on this machine beyond this load shows in the figures.
const BUSY: f64 = 0.7;

const WRONG: u8 = 1;
const CANNOT_RUN: u8 = 2;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.role {
        Some(Role::Subject(SubjectOptions { holding, threads })) => {
            serve(holding.setup(threads)).map(ExitCode::from)
        }
        Some(Role::Program { holding, forks }) => {
            run_program(holding.setup(0), forks).map(|()| ExitCode::SUCCESS)
        }
        None => drive(&cli),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("odfork-bench: {error:#}");
        ExitCode::from(CANNOT_RUN)
    })
}

fn drive(cli: &Cli) -> Result<ExitCode> {
    let chosen = choose(&cli.only)?;
    if cli.list {
        print!("{}", table::list(&chosen));
        return Ok(ExitCode::SUCCESS);
    }
    let stage = stage(cli)?;
    let mut lines = match &cli.json {
        Some(path) => Lines::to_file(path)?,
        None => Lines::nowhere(),
    };
    // Inherited from a shell, it would make stock forks cheap.
    let _ = cow_fork::set(cow_fork::Mode::Off);
    let environment = Environment::observe();
    println!("{}", environment.summary());
    lines.environment(&environment, cli.seed, cli.quick);
    interrupt::listen();

    let mut record = measure(cli, stage, &chosen, &mut lines);
    if environment.load > BUSY {
        record.notes.push(format!(
            "load {:.1} at the start: other work shares the processors; for better figures run alone",
            environment.load
        ));
    }
    let mut rng = Rng::with_seed(cli.seed);
    let findings: Vec<Finding> =
        chosen.into_iter().map(|figure| judge(figure, &record, &mut rng)).collect();
    print!("{}", table::render(&findings, &record));
    lines.findings(&findings);
    lines.end(&record)?;
    Ok(ExitCode::from(status(&record)))
}

fn measure(cli: &Cli, stage: Stage, chosen: &[Figure], lines: &mut Lines) -> Record {
    let effort = if cli.quick { plan::Effort::Quick } else { plan::Effort::Full };
    let plan = session::needed(plan::experiments(effort), chosen);
    let seconds = plan.iter().map(Experiment::expected_seconds).sum();
    session::run(
        plan,
        &mut Processes::new(stage),
        &mut Rng::with_seed(cli.seed),
        &mut Progress::on_stderr(seconds),
        lines,
    )
}

fn status(record: &Record) -> u8 {
    if !record.wrongs.is_empty() {
        WRONG
    } else if record.interrupted {
        INTERRUPTED
    } else {
        0
    }
}

/// The figures whose name begins with one of the words; all when there is none.
fn choose(words: &[String]) -> Result<Vec<Figure>> {
    let all = figures();
    for word in words {
        if !all.iter().any(|figure| figure.name.starts_with(word)) {
            let names: Vec<&str> = all.iter().map(|figure| figure.name).collect();
            bail!("no figure begins with {word:?}; there are: {}", names.join(", "));
        }
    }
    let is_chosen = |figure: &Figure| {
        words.is_empty() || words.iter().any(|word| figure.name.starts_with(word))
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn stage(cli: &Cli) -> Result<Stage> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let library = match std::env::var_os("ODFORK_LIB") {
        Some(path) => PathBuf::from(path),
        None => program.with_file_name("libodfork.so"),
    };
    let library = library.canonicalize().with_context(|| {
        format!(
            "needed: the library at {}; build it with `cargo build --release --workspace`, \
             or name it in ODFORK_LIB",
            library.display()
        )
    })?;
    Ok(Stage {
        program,
        library,
        image: cli.image.clone(),
        cpu: last_cpu().filter(|_| !cli.unpinned),
    })
}
