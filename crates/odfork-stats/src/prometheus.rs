//! Statistics in the text format that metrics collectors read.
//!
//! Owns the names of the metrics. One metric is written for all processes before the next, as the
//! format wants it.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::page::Stats;
use crate::reason::Reason;
use crate::text::tells;

/// A process and its statistics.
pub struct Metrics<'a> {
    /// The label `pid`.
    pub pid: i32,
    /// The label `program`.
    pub program: &'a str,
    /// A copy of its page that [`Stats::check`] has found sound.
    pub stats: &'a Stats,
}

enum Value {
    Count(fn(&Stats) -> &AtomicU64),
    Seconds(fn(&Stats) -> &AtomicU64),
}

struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    value: Value,
}

use Value::{Count, Seconds};

const fn counter(name: &'static str, help: &'static str, value: Value) -> Metric {
    Metric { name, help, kind: "counter", value }
}

const fn gauge(name: &'static str, help: &'static str, value: Value) -> Metric {
    Metric { name, help, kind: "gauge", value }
}

const METRICS: [Metric; 23] = [
    counter("forks_total", "Forks that succeeded.", Count(|s| &s.forks)),
    counter("fork_failures_total", "Forks that failed.", Count(|s| &s.forks_failed)),
    counter("fork_seconds_total", "Time in fork(2).", Seconds(|s| &s.fork_ns)),
    gauge("fork_max_seconds", "Longest fork(2).", Seconds(|s| &s.fork_max_ns)),
    counter("stalls_total", "Times odfork held a thread up.", Count(|s| &s.stalls)),
    counter("stall_seconds_total", "Time odfork held threads up.", Seconds(|s| &s.stall_ns)),
    gauge("stall_max_seconds", "Longest stall by odfork.", Seconds(|s| &s.stall_max_ns)),
    counter("freezes_total", "Passes that froze memory.", Count(|s| &s.freezes)),
    counter("freeze_bytes_total", "Bytes frozen.", Count(|s| &s.freeze_bytes)),
    counter("freeze_seconds_total", "Time spent freezing.", Seconds(|s| &s.freeze_ns)),
    counter("refreezes_in_place_total", "Refreezes in place.", Count(|s| &s.folds_in_place)),
    counter("refreezes_rebuilt_total", "Refreezes into new files.", Count(|s| &s.folds_rebuilt)),
    counter("refreeze_bytes_total", "Bytes refrozen.", Count(|s| &s.fold_bytes)),
    counter("refreeze_seconds_total", "Time spent refreezing.", Seconds(|s| &s.fold_ns)),
    counter("thaws_total", "Thaws.", Count(|s| &s.thaws)),
    counter("thaw_bytes_total", "Bytes thawed.", Count(|s| &s.thaw_bytes)),
    gauge("frozen_bytes", "Address space that shows backing files.", Count(|s| &s.frozen_bytes)),
    gauge("live_bytes", "Frozen memory that is mapped shared.", Count(|s| &s.live_bytes)),
    counter("switches_total", "Switches of live memory.", Count(|s| &s.switches)),
    counter("switch_seconds_total", "Time spent switching.", Seconds(|s| &s.switch_ns)),
    gauge("backing_bytes", "Content of backing files.", Count(|s| &s.image_bytes)),
    gauge("rent_paid_seconds", "Cost of forks since the last pass.", Seconds(|s| &s.paid_ns)),
    gauge("price_seconds", "What freezing would cost.", Seconds(|s| &s.price_ns)),
];

/// All metrics of all processes.
///
/// # Errors
/// Those of the writer.
pub fn write_prometheus(w: &mut dyn Write, all: &[Metrics]) -> fmt::Result {
    for metric in &METRICS {
        let (name, kind) = (metric.name, metric.kind);
        write_head(w, name, metric.help, kind)?;
        for one in all {
            write_name(w, name, one)?;
            match metric.value {
                Count(of) => writeln!(w, "}} {}", of(one.stats).load(Relaxed))?,
                Seconds(of) => writeln!(w, "}} {}", of(one.stats).load(Relaxed) as f64 / 1e9)?,
            }
        }
    }
    write_head(w, "engine", "1 for the engine in use.", "gauge")?;
    for one in all {
        write_name(w, "engine", one)?;
        writeln!(w, ",engine=\"{}\"}} 1", one.stats.engine_word())?;
    }
    write_head(w, "plain_total", "Passes left out or stopped, by reason.", "counter")?;
    for one in all {
        write_reasons(w, one)?;
    }
    Ok(())
}

fn write_reasons(w: &mut dyn Write, one: &Metrics) -> fmt::Result {
    for (reason, count) in Reason::ALL.iter().zip(&one.stats.fallbacks) {
        let count = count.load(Relaxed);
        if count > 0 && tells(one.stats, *reason) {
            write_name(w, "plain_total", one)?;
            writeln!(w, ",reason=\"{}\"}} {count}", reason.word())?;
        }
    }
    Ok(())
}

fn write_head(w: &mut dyn Write, name: &str, help: &str, kind: &str) -> fmt::Result {
    writeln!(w, "# HELP odfork_{name} {help}\n# TYPE odfork_{name} {kind}")
}

/// The name and the labels that every value has, without the closing brace.
fn write_name(w: &mut dyn Write, name: &str, one: &Metrics) -> fmt::Result {
    write!(w, "odfork_{name}{{pid=\"{}\",program=\"", one.pid)?;
    for c in one.program.chars() {
        match c {
            '"' | '\\' => write!(w, "\\{c}")?,
            c if c.is_control() => w.write_char('?')?,
            c => w.write_char(c)?,
        }
    }
    w.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_said_once_with_all_processes() {
        let (a, b) = (Stats::new(), Stats::new());
        a.count_fork(2_000_000_000);
        b.count_stop(Reason::Memory, 12);
        let all = [
            Metrics { pid: 7, program: "x\"y", stats: &a },
            Metrics { pid: 8, program: "z", stats: &b },
        ];
        let mut text = String::new();
        write_prometheus(&mut text, &all).unwrap();
        let has = |line: &str| text.lines().any(|l| l == line);
        assert!(has("odfork_forks_total{pid=\"7\",program=\"x\\\"y\"} 1"), "{text}");
        assert!(has("odfork_fork_seconds_total{pid=\"7\",program=\"x\\\"y\"} 2"), "{text}");
        assert!(has("odfork_plain_total{pid=\"8\",program=\"z\",reason=\"memory\"} 1"), "{text}");
        assert!(has("odfork_engine{pid=\"8\",program=\"z\",engine=\"plain\"} 1"), "{text}");
        let types: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let mut once = types.clone();
        once.dedup();
        assert_eq!((types.len(), once.len()), (METRICS.len() + 2, METRICS.len() + 2));
    }
}
