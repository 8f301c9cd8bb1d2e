//! `odfork paged`: the process whose memory is paged. Maps a region, does ops by name, answers each
//! with one line of JSON.
//!
//! It does not know who pages it: the same program runs under a memory limit with swap, over a
//! mapped file, under the pager, over umap. It ends with standard input, or at the first page with
//! wrong content.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, FromArgMatches};
use serde::{Deserialize, Serialize};

use super::continue_fault::bare_continue;
use super::op::Op;
use super::region::{Region, Source};
use super::workload::{Done, Workload};
use crate::accounting::Usage;

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
    /// Most milliseconds of an op
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub limit: u64,
}

impl Options {
    fn source(&self) -> Source {
        match (self.file.clone(), self.umap.clone()) {
            (Some(file), Some(library)) => Source::Umap { library, file },
            (Some(file), None) => Source::File(file),
            (None, _) => Source::Anonymous,
        }
    }
}

/// One answer. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub accesses: u64,
    pub ns: u64,
    /// Of single accesses; 0 when the op does not time them.
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
    /// A page with wrong content. Nothing can be measured any more.
    pub wrong: Option<u64>,
    /// Why this op cannot be done here.
    pub unavailable: Option<String>,
}

pub fn command() -> clap::Command {
    Options::augment_args(clap::Command::new("paged"))
        .about("Hold memory that others page, and do what standard input says")
        .hide(true)
        .after_help(
            "Examples:\n  printf 'fill\\nzipf\\n' | odfork paged --region 134217728 --resident \
             33554432\n\n\
             Ops: fill, seq-read, seq-write, warm, zipf, phase, threads-N, settle, reclaim, \
             continue.",
        )
}

pub fn run(matches: &clap::ArgMatches) -> u8 {
    Options::from_arg_matches(matches)
        .map_err(anyhow::Error::from)
        .and_then(|options| serve(&options))
        .unwrap_or_else(|error| odfork_proc::command::cannot("paged", &error))
}

fn serve(options: &Options) -> Result<u8> {
    // With huge pages, pages of 4 KB would be compared with pages of 2 MB.
    // SAFETY: a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let region = Region::map(&options.source(), options.region)?;
    let mut workload = Workload::new(region, options.resident, options.seed);
    let limit = Duration::from_millis(options.limit);
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut wrong = false;
    for line in input.lines() {
        let line = line?;
        let word = line.trim();
        let op = Op::from_word(word).with_context(|| {
            format!("there is no op '{word}'; see odfork paged --help for the list")
        })?;
        let answer = perform(&mut workload, op, limit);
        wrong = answer.wrong.is_some();
        writeln!(output, "{}", serde_json::to_string(&answer)?)?;
        output.flush()?;
        if wrong {
            break;
        }
    }
    // At once: what a library of the user's does at exit is not measured and must not hang.
    // SAFETY: ends the process; everything is flushed.
    unsafe { libc::_exit(i32::from(wrong)) }
}

fn perform(workload: &mut Workload, op: Op, limit: Duration) -> Answer {
    let before = Usage::now();
    let mut answer = match op {
        Op::Continue => bare_continue(limit / 8).map_or_else(
            |why| Answer { unavailable: Some(why), ..Answer::default() },
            |done| Answer::of(&done),
        ),
        _ => workload.perform(op, limit).map_or_else(
            |wrong| Answer { wrong: Some(wrong.0), ..Answer::default() },
            |done| Answer::of(&done),
        ),
    };
    let used = Usage::now().since(before);
    (answer.major, answer.minor) = (used.major, used.minor);
    answer.cpu_ns = used.user_ns + used.system_ns;
    answer
}

impl Answer {
    fn of(done: &Done) -> Answer {
        let latencies = &done.latencies;
        Answer {
            accesses: done.accesses,
            ns: done.ns,
            p50: latencies.quantile(0.5),
            p99: latencies.quantile(0.99),
            slow: latencies.slow_count(),
            slow_p50: latencies.slow_quantile(0.5),
            slow_p99: latencies.slow_quantile(0.99),
            ..Answer::default()
        }
    }

    /// Accesses per second.
    pub fn rate(&self) -> f64 {
        self.accesses as f64 / (self.ns.max(1) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::page::PAGE;

    #[test]
    fn the_definition_is_hidden_and_umap_needs_a_file() {
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
        let mut workload = Workload::new(region, 32 * PAGE, 1);
        let answer = perform(&mut workload, Op::Fill, Duration::from_secs(1));
        assert_eq!((answer.accesses, answer.wrong), (64, None));
        assert!(answer.minor > 0 && answer.rate() > 0.0);
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
    }
}
