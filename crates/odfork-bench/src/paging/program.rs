//! `odfork paged`: the process whose memory is paged. Maps a region, does acts by name, answers with one JSON line each.
//!
//! It knows nothing of who pages it: the same program runs under a memory limit with swap, over a mapped file, under the
//! pager, over umap. It ends with standard input, or at the first page with wrong content.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, FromArgMatches};
use serde::{Deserialize, Serialize};

use super::acts::{Act, Done, Work, FAULT_NS};
use super::bare;
use super::region::{Region, Source};

#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Bytes of memory
    #[arg(long, value_name = "BYTES")]
    pub region: u64,
    /// Bytes of it that may be resident: sizes the working sets
    #[arg(long, value_name = "BYTES")]
    pub resident: u64,
    /// Map this file instead of anonymous memory
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Map it by umap() of this library
    #[arg(long, value_name = "LIBRARY", requires = "file")]
    pub umap: Option<PathBuf>,
    /// Seed of the accesses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Most milliseconds of an act
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub limit: u64,
}

impl Options {
    fn source(&self) -> Source {
        match (&self.file, &self.umap) {
            (Some(file), Some(library)) => {
                Source::Umap { library: library.clone(), file: file.clone() }
            }
            (Some(file), None) => Source::File(file.clone()),
            (None, _) => Source::Anonymous,
        }
    }
}

/// One answer. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub act: String,
    pub accesses: u64,
    pub ns: u64,
    /// Of single accesses; 0 when the act does not time them.
    pub p50: f64,
    pub p99: f64,
    /// Of those that took longer than any access without a fault.
    pub slow: u64,
    pub slow_p50: f64,
    pub slow_p99: f64,
    /// Page faults of this process, as the kernel counts them.
    pub major: u64,
    pub minor: u64,
    /// Processor time of this process.
    pub cpu_ns: u64,
    pub cut: bool,
    /// What was wrong: a page number. Nothing can be measured any more.
    pub wrong: Option<u64>,
    /// Why this act cannot be done here.
    pub unavailable: Option<String>,
}

pub fn command() -> clap::Command {
    Options::augment_args(clap::Command::new("paged"))
        .about("Hold memory that others page, and do what standard input says")
        .hide(true)
        .after_help(
            "Examples:\n  printf 'fill\\nzipf\\n' | odfork paged --region 134217728 --resident 33554432\n\n\
             Acts: fill, seq-read, seq-write, warm, zipf, phase, threads-N, reclaim, continue.",
        )
}

pub fn run(matches: &clap::ArgMatches) -> u8 {
    Options::from_arg_matches(matches)
        .map_err(anyhow::Error::from)
        .and_then(|options| serve(&options))
        .unwrap_or_else(|error| odfork_proc::command::cannot("paged", &error))
}

fn serve(options: &Options) -> Result<u8> {
    // Huge pages would make pages of 4 KB and of 2 MB stand against each other.
    // SAFETY: a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let region = Region::map(&options.source(), options.region)?;
    let mut work = Work::new(region, options.resident, options.seed);
    let limit = Duration::from_millis(options.limit);
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut wrong = false;
    for line in input.lines() {
        let line = line?;
        let word = line.trim();
        let act = Act::from_word(word).with_context(|| {
            format!("there is no act '{word}'; see odfork paged --help for the list")
        })?;
        let answer = perform(&mut work, act, limit);
        wrong = answer.wrong.is_some();
        writeln!(output, "{}", serde_json::to_string(&answer)?)?;
        output.flush()?;
        if wrong {
            break;
        }
    }
    // Straight out: what a library of the user's does at exit is not measured and must not hang.
    // SAFETY: ends the process; everything is flushed.
    unsafe { libc::_exit(i32::from(wrong)) }
}

fn perform(work: &mut Work, act: Act, limit: Duration) -> Answer {
    let before = Usage::now();
    let outcome = match act {
        Act::Continue => bare::bare_continue(limit / 8).map_err(|why| (None, Some(why))),
        _ => work.perform(act, limit).map_err(|wrong| (Some(wrong.0), None)),
    };
    let used = Usage::now();
    let mut answer = Answer {
        act: act.word(),
        major: used.major - before.major,
        minor: used.minor - before.minor,
        cpu_ns: used.cpu_ns - before.cpu_ns,
        ..Answer::default()
    };
    match outcome {
        Ok(done) => answer.take(&done),
        Err((wrong, unavailable)) => (answer.wrong, answer.unavailable) = (wrong, unavailable),
    }
    answer
}

impl Answer {
    fn take(&mut self, done: &Done) {
        let latencies = &done.latencies;
        self.accesses = done.accesses;
        self.ns = done.ns;
        self.cut = done.cut;
        self.p50 = latencies.quantile(0.5);
        self.p99 = latencies.quantile(0.99);
        self.slow = latencies.count_above(FAULT_NS);
        self.slow_p50 = latencies.quantile_above(FAULT_NS, 0.5);
        self.slow_p99 = latencies.quantile_above(FAULT_NS, 0.99);
    }

    /// Accesses per second.
    pub fn rate(&self) -> f64 {
        self.accesses as f64 / (self.ns.max(1) as f64 / 1e9)
    }
}

/// What the kernel has counted of this process so far.
struct Usage {
    major: u64,
    minor: u64,
    cpu_ns: u64,
}

impl Usage {
    fn now() -> Usage {
        // SAFETY: zeroed is a valid value, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Usage {
            major: usage.ru_majflt as u64,
            minor: usage.ru_minflt as u64,
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::pattern::PAGE;

    #[test]
    fn the_definition_is_sound_and_hidden() {
        command().debug_assert();
        assert!(command().is_hide_set());
        let line =
            "paged --region 8192 --resident 4096 --file /tmp/f --umap /lib/libumap.so --seed 3";
        let options =
            Options::from_arg_matches(&command().get_matches_from(line.split(' '))).unwrap();
        assert!(matches!(options.source(), Source::Umap { .. }));
        let alone = "paged --region 1 --resident 1 --umap /lib/libumap.so".split(' ');
        assert!(command().try_get_matches_from(alone).is_err(), "umap needs a file");
    }

    #[test]
    fn an_answer_survives_the_pipe_and_counts_faults() {
        let region = Region::map(&Source::Anonymous, 64 * PAGE).unwrap();
        let mut work = Work::new(region, 32 * PAGE, 1);
        let answer = perform(&mut work, Act::Fill, Duration::from_secs(1));
        assert_eq!((answer.accesses, answer.wrong), (64, None));
        assert!(answer.minor > 0 && answer.rate() > 0.0);
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
    }
}
