//! The tables of `vm`: a row for each arm, ratios and the goal; what was published. Pure.

use std::fmt::Write;

use crate::tables::ratios;
use odfork_proc::table::columns;
use odfork_proc::text::{digits, size, time};
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::published;
use odfork_samples::samples::Sample;
use odfork_samples::stats::median;

/// The experiment whose published figures stand below.
const PUBLISHED: &str = "vm";
/// Executions a second of the arm, in those of `plain`.
const GOAL: (&str, f64) = ("eager", 3.0);

pub fn tables(samples: &[Sample]) -> String {
    let digest = Digest::of_samples(samples);
    let places = digest.places("rate");
    let text: String = places.into_iter().map(|place| case(&digest, place)).collect();
    match text.is_empty() {
        true => "nothing was measured\n".into(),
        false => text + &published(),
    }
}

fn case(digest: &Digest, place: &Point) -> String {
    let mut rows = vec![["", "1/s", "first", "last", "fork"].map(str::to_owned).to_vec()];
    let (mut compared, mut judged) = (Vec::new(), String::new());
    for arm in digest.of_metric("rate").filter(|point| point.params == place.params) {
        rows.push(row(digest, arm));
        let stock = digest.twin(arm, "plain").filter(|_| arm.configuration != "plain");
        let Some(ratio) = stock.and_then(|stock| paired_ratio(arm, stock)) else { continue };
        compared.push((format!("{} / plain", arm.configuration), ratio));
        if arm.configuration == GOAL.0 {
            let word = if ratio.value >= GOAL.1 { "met" } else { "MISSED" };
            let _ = writeln!(judged, "goal: {} at least {} times plain: {word}", GOAL.0, GOAL.1);
        }
    }
    let (held, huge) = (size(place.number("bytes") as u64), place.word("huge"));
    let slices = place.samples.len();
    let (table, ratios) = (columns(&rows), ratios(&compared));
    format!(
        "\n{held} in the guest, huge pages: {huge}, {slices} slices each\n{table}{ratios}{judged}"
    )
}

fn row(digest: &Digest, arm: &Point) -> Vec<String> {
    let rates = arm.values();
    let of = |value: Option<f64>, write: fn(f64) -> String| value.map_or("-".into(), write);
    let mut cells = vec![format!("  {}", arm.configuration)];
    let ends = [median(&rates), rates.first().copied(), rates.last().copied()];
    cells.extend(ends.map(|rate| of(rate, digits)));
    cells.push(of(digest.beside(arm, "fork").map(Point::median), time));
    cells
}

fn published() -> String {
    let points = published::points(PUBLISHED);
    let rates = points.iter().map(|point| format!("{} {} 1/s", point.series, digits(point.y)));
    let source = points.last().map_or("", |point| point.source);
    format!("\npublished: {} ({source})\n", rates.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_arm_has_a_row_a_ratio_and_a_verdict_and_the_published_rates_stand_below() {
        let mut samples = Vec::new();
        for round in 1..=4 {
            for (arm, rate) in [("plain", 100.0), ("eager", 250.0)] {
                let sample = Sample::of(arm, ("rate", "1/s"), rate).with("bytes", 192u64 << 20);
                samples.push(sample.with("huge", "no").in_round(round));
            }
        }
        let text = tables(&samples);
        assert!(text.contains("192 MB in the guest, huge pages: no, 4 slices"), "{text}");
        assert!(text.contains("eager / plain  2.50x") && text.contains("times plain: MISSED"));
        assert!(text.contains("fork 91.0 1/s, on-demand-fork 145 1/s"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
        assert!(tables(&[]).starts_with("nothing was measured"));
    }
}
