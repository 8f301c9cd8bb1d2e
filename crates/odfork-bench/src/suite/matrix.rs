//! The medians of `exec` in one view: a row for each way and what was asked of it, a column for
//! each parent.
//!
//! Owns the order of rows and columns. Only the kernel's own fork: what a configuration changes is
//! in the long table (`tables`), intervals too. Pure: samples in, text out.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::tables::quantity;
use crate::workload::protocol::{Actions, Method};
use odfork_samples::samples::Sample;
use odfork_samples::stats::median;

/// (used, allocated), megabytes.
type Parent = (u64, u64);

const METRIC: &str = "each";
const COLUMN: usize = 10;

/// Nothing when nothing was measured.
pub fn matrix(samples: &[Sample]) -> String {
    let mut values: BTreeMap<(Parent, &str, &str), Vec<f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.engine == "plain" && s.metric == METRIC) {
        let key = (parent(sample), sample.word("method"), sample.word("actions"));
        values.entry(key).or_default().push(sample.value);
    }
    let mut parents: Vec<Parent> = values.keys().map(|(parent, _, _)| *parent).collect();
    parents.dedup();
    if parents.is_empty() {
        return String::new();
    }
    let heads =
        parents.iter().fold(String::new(), |line, one| format!("{line}{:>COLUMN$}", head(one)));
    let mut text = format!("medians, no engine; MB used (of MB allocated)\n  {:<29}{heads}\n", "");
    for (method, actions) in rows() {
        let cell = |parent: &Parent| values.get(&(*parent, method, actions));
        if parents.iter().any(|parent| cell(parent).is_some()) {
            let written =
                |parent| cell(parent).and_then(|all| median(all)).map(|ns| quantity(ns, "ns"));
            let cells = parents.iter().fold(String::new(), |line, parent| {
                format!("{line}{:>COLUMN$}", written(parent).unwrap_or_else(|| "-".into()))
            });
            let _ = writeln!(text, "  {:<29}{cells}", format!("{method}, {actions}"));
        }
    }
    text
}

fn parent(sample: &Sample) -> Parent {
    let megabytes = |name| sample.number(name) as u64 >> 20;
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
    use odfork_samples::samples::Params;

    fn sample(method: &str, used: u64, allocated: u64, value: f64) -> Sample {
        let words = [("method", method.into()), ("actions", "plain".into())];
        let sizes = [("used", (used << 20).into()), ("allocated", (allocated << 20).into())];
        Sample {
            experiment: "exec".into(),
            engine: "plain".into(),
            metric: METRIC.into(),
            unit: "ns".into(),
            value,
            params: Params::from_iter(
                words.into_iter().chain(sizes).map(|(name, value)| (name.to_string(), value)),
            ),
            round: 1,
            at_s: 0.0,
        }
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
