//! `odfork session`: one process of a session: the script of three jobs, or the trivial command
//! again and again.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, FromArgMatches};
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::jobs::Job;
use crate::accounting::Usage;
use crate::mapping::Mapping;

#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Bytes of memory of a job, or of the trivial command
    #[arg(long, value_name = "BYTES")]
    pub bytes: u64,
    /// Which session: seed of the jobs, and which of them comes first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Be the trivial command, every so many milliseconds, until standard input ends
    #[arg(long, value_name = "MS")]
    pub trivial: Option<u64>,
}

/// What a process of a session says at its end. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Job and how long it took.
    pub jobs: Vec<(String, u64)>,
    /// Of the trivial command: from when it was due to when it was done.
    pub responses: Vec<u64>,
    pub user_ns: u64,
    pub system_ns: u64,
    pub major: u64,
    pub wrong: Option<String>,
}

pub fn command() -> clap::Command {
    Options::augment_args(clap::Command::new("session"))
        .about("Be a process of a session of the paging experiment")
        .hide(true)
        .after_help(
            "Examples:\n  odfork session --bytes 100663296\n  sleep 3 | odfork session \
             --bytes 1048576 --trivial 100",
        )
}

pub fn run(matches: &clap::ArgMatches) -> u8 {
    Options::from_arg_matches(matches)
        .map_err(anyhow::Error::from)
        .and_then(|options| serve(&options))
        .unwrap_or_else(|error| odfork_proc::command::cannot("session", &error))
}

fn serve(options: &Options) -> Result<u8> {
    // SAFETY: a flag of this process: pages of 4 KB for everybody.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let mut report = match options.trivial {
        Some(period) => trivial(options.bytes, Duration::from_millis(period.max(1)))?,
        None => script(options),
    };
    let usage = Usage::now();
    (report.user_ns, report.system_ns) = (usage.user_ns, usage.system_ns);
    report.major = usage.major;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&report)?)?;
    output.flush()?;
    Ok(u8::from(report.wrong.is_some()))
}

/// Sessions begin with different jobs, so that not all sort at the same time.
fn script(options: &Options) -> Report {
    let mut report = Report::default();
    for at in 0..Job::ALL.len() {
        let job = Job::ALL[(options.seed as usize + at) % Job::ALL.len()];
        let begin = Instant::now();
        if let Err(error) = job.run(options.bytes, options.seed) {
            report.wrong = Some(format!("{error:#}"));
            break;
        }
        report.jobs.push((job.word().into(), begin.elapsed().as_nanos() as u64));
    }
    report
}

/// Due on a fixed schedule: whoever is late for one is late for those behind it, too, as at a
/// terminal that hangs.
fn trivial(bytes: u64, period: Duration) -> Result<Report> {
    let mut memory = Mapping::anonymous(bytes)?;
    let words = memory.words();
    let mut report = Report::default();
    let begin = Instant::now();
    for turn in 1u32.. {
        let due = period * turn;
        if ended(due.saturating_sub(begin.elapsed())) {
            break;
        }
        // One word of every page: the last turn's value is read, this turn's is written.
        for word in words.iter_mut().step_by(512) {
            if *word != u64::from(turn - 1) {
                report.wrong = Some(format!("trivial: a page holds {word}, not {}", turn - 1));
            }
            *word = u64::from(turn);
        }
        report.responses.push(begin.elapsed().saturating_sub(due).as_nanos() as u64);
    }
    Ok(report)
}

/// Waits; true as soon as standard input ends.
fn ended(time: Duration) -> bool {
    let begin = Instant::now();
    loop {
        let left = time.saturating_sub(begin.elapsed());
        let (input, wait) = (std::io::stdin(), left.try_into().ok());
        match rustix::event::poll(&mut [PollFd::new(&input, PollFlags::IN)], wait.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_begin_with_different_jobs() {
        let first = |seed| script(&Options { bytes: 1 << 18, seed, trivial: None }).jobs;
        assert_eq!(first(0)[0].0, "compile");
        assert_eq!(first(1)[0].0, "sort");
        assert_eq!(first(2).len(), 3);
    }
}
