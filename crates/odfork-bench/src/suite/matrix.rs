//! The medians of `exec` in one view: a row for each way and what was asked of it, a column for
//! each parent.
//!
//! Owns the order of rows and columns. Only the kernel's own fork: what a configuration changes is
//! in the long table (`tables`), intervals too. Pure: samples in, text out.

use crate::tables::quantity;
use crate::workload::protocol::{Actions, Method};
use odfork_proc::table::columns;
use odfork_samples::digest::{Digest, Point};
use odfork_samples::samples::Sample;

/// (used, allocated), megabytes.
type Parent = (u64, u64);

const METRIC: &str = "each";

/// Nothing when nothing was measured.
pub fn matrix(samples: &[Sample]) -> String {
    let digest = Digest::of_samples(samples.iter().filter(|sample| sample.engine == "plain"));
    let mut parents: Vec<Parent> = digest.of_metric(METRIC).map(parent).collect();
    parents.sort_unstable();
    parents.dedup();
    if parents.is_empty() {
        return String::new();
    }
    let mut table = vec![vec![String::new()]];
    table[0].extend(parents.iter().map(head));
    for (method, actions) in rows() {
        let is_of = |p: &&Point| p.word("method") == method && p.word("actions") == actions;
        let measured: Vec<&Point> = digest.of_metric(METRIC).filter(is_of).collect();
        let cell = |of: &Parent| {
            let point = measured.iter().find(|point| parent(point) == *of);
            point.map_or_else(|| "-".into(), |point| quantity(point.median(), point.unit))
        };
        if !measured.is_empty() {
            let name = format!("  {method}, {actions}");
            table.push(std::iter::once(name).chain(parents.iter().map(cell)).collect());
        }
    }
    format!("medians, no engine; MB used (of MB allocated)\n{}", columns(&table))
}

fn parent(point: &Point) -> Parent {
    let megabytes = |name| point.number(name) as u64 >> 20;
    (megabytes("used"), megabytes("allocated"))
}

fn head(&(used, allocated): &Parent) -> String {
    if used == allocated {
        used.to_string()
    } else {
        format!("{used} ({allocated})")
    }
}

/// Every way, then those with actions by what is asked.
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    Actions::ALL.into_iter().flat_map(|actions| {
        let ways =
            Method::ALL.into_iter().filter(move |m| actions == Actions::Plain || m.has_actions());
        ways.map(move |method| (method.word(), actions.word()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(method: &str, used: u64, allocated: u64, value: f64) -> Sample {
        let sample = Sample::of("plain", (METRIC, "ns"), value).with("method", method);
        let sample = sample.with("actions", "plain").with("used", used << 20);
        sample.with("allocated", allocated << 20)
    }

    #[test]
    fn parents_are_columns_by_size_and_ways_rows_in_their_order() {
        let samples = [
            sample("spawn", 20, 40, 3e5),
            sample("spawn", 20, 20, 2e5),
            sample("spawn", 8, 8, 1e5),
            sample("fork+exec", 20, 20, 7e6),
        ];
        let text = matrix(&samples);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["8", "20", "20", "(40)"]);
        assert_eq!(lines[1], ["fork+exec,", "plain", "-", "7.00", "ms", "-"]);
        assert_eq!(lines[2][2..], ["100", "us", "200", "us", "300", "us"]);
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(matrix(&[]), "");
    }
}
