//! The subject: a process that holds memory, forks on command and measures itself.
//!
//! `protocol` is the language between driver and subject, `memory` the pattern it holds and checks
//! (`layout`: how it is obtained, `hugetlb`: from the pool of huge pages), `operations` and
//! `reruns` what it can do, `program` the tiny program it starts by the methods of `spawn` and
//! `posix_spawn` (`python`: from another kind of subject), `spawn_methods` their words, `interface`
//! the engine's C API when a library is preloaded. This file owns the loop. The same program is the
//! subject of every configuration: it never knows which, and forks through libc's dynamic `fork`
//! symbol so that a preloaded library can take its place.

mod buffer;
pub mod children;
mod extensions;
pub mod hugetlb;
pub mod interface;
mod layout;
pub mod memory;
pub mod operations;
mod posix_spawn;
pub mod program;
pub mod protocol;
pub mod python;
mod reruns;
mod spawn;
mod spawn_methods;
pub mod subject;
mod vfork;

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::Args;
use rustix::thread::{sched_setaffinity, CpuSet};

use memory::{Layout, Memory};
use odfork_proc::cow_fork;
use protocol::{Answer, Command};
use subject::Subject;

pub const PAGE: usize = 4096;

/// Exit status of a subject that could not hold what it was asked for.
const CANNOT: u8 = 2;

/// What a subject is told on its command line.
#[derive(Clone, Copy, Debug, Args)]
pub struct Setup {
    /// Bytes of memory
    #[arg(long, value_name = "BYTES")]
    pub size: u64,
    /// Fill and work on the first BYTES only; the rest stays untouched [default: all]
    #[arg(long, value_name = "BYTES")]
    pub touched: Option<u64>,
    /// How memory is obtained: mapped, huge, malloced or hugetlb
    #[arg(long, value_name = "LAYOUT", default_value = "mapped")]
    pub layout: Layout,
    /// Stay on this processor
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// The harness alone: no fork, no exec, no access, all clocks and loops
    #[arg(long)]
    pub null: bool,
    /// Use the page-table sharing of a kernel with on-demand-fork
    #[arg(long)]
    pub kernel_odf: bool,
    /// Threads that only sleep
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u32,
}

#[cfg(test)]
impl Setup {
    pub fn new(size: u64, layout: Layout) -> Self {
        Setup { size, touched: None, layout, threads: 0, cpu: None, null: false, kernel_odf: false }
    }
}

/// Runs the subject until its driver closes the pipe. Answers one line per command line; the first
/// line says that it is ready, or why it never will be (then the exit status is CANNOT).
pub fn serve(setup: Setup) -> Result<u8> {
    let mut answers = std::io::stdout();
    let mut subject = match prepare(setup) {
        Ok(subject) => subject,
        Err(error) => {
            writeln!(answers, "{}", Answer::Unavailable(format!("{error:#}")))?;
            return Ok(CANNOT);
        }
    };
    idle_threads(setup.threads);
    writeln!(answers, "{}", Answer::Text("ready".into()))?;
    answers.flush()?;
    for line in std::io::stdin().lock().lines() {
        let answer = match line?.parse::<Command>() {
            Ok(command) => subject.obey(command),
            Err(error) => Answer::Unavailable(error.to_string()),
        };
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(0)
}

/// A whole program instead of a subject: fill memory, fork and wait `forks` times, check, end.
pub fn run_program(setup: Setup, forks: u32) -> Result<()> {
    let mut subject = prepare(setup)?;
    if forks > 0 {
        match subject.obey(Command::Fork { calls: forks }) {
            Answer::Values(_) => {}
            other => bail!("{other}"),
        }
    }
    if !subject.is_intact() {
        bail!("the parent's memory changed over {forks} forks");
    }
    Ok(())
}

/// A subject as its command line wants it: on its processor, its memory held. The error: what is
/// missing for that.
pub fn prepare(setup: Setup) -> Result<Subject> {
    pin(setup.cpu);
    if setup.null {
        children::leave_harness_alone();
    }
    if setup.kernel_odf {
        use_kernel_engine()?;
    }
    let touched = setup.touched.unwrap_or(setup.size) as usize;
    Ok(Subject::new(Memory::hold_part(setup.size as usize, touched, setup.layout)?))
}

/// Asks the kernel to share page tables in this process's forks; programs it starts are without
/// again.
fn use_kernel_engine() -> Result<()> {
    if let Some(obstacle) = cow_fork::support().obstacle() {
        bail!("{obstacle}");
    }
    cow_fork::set(cow_fork::Mode::On).context("cannot switch this process to shared page tables")
}

/// Keeps the process, and the children that inherit it, on one processor. Best effort.
pub(crate) fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu.filter(|&cpu| cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Starts threads that only sleep: their existence is what is measured.
fn idle_threads(count: u32) {
    for _ in 0..count {
        std::thread::spawn(|| loop {
            std::thread::sleep(Duration::from_secs(3600));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setup_asks_for_is_held_or_refused_with_a_reason() {
        let setup = Setup::new(8 << 20, Layout::Malloced);
        let held = prepare(Setup { touched: Some(5 << 20), ..setup }).unwrap();
        assert_eq!(held.memory.bytes(), 5 << 20);
        assert!(prepare(Setup { touched: Some(9 << 20), ..setup }).is_err());
        if !cow_fork::support().usable() {
            let refusal = prepare(Setup { kernel_odf: true, ..setup }).err().unwrap();
            assert!(format!("{refusal:#}").contains("page tables"), "{refusal:#}");
        }
    }
}
