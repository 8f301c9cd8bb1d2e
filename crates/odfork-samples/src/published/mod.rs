//! The published figures: data, with the place each comes from, and what stands beside ours.
//!
//! Owns reading `points.json` and `lines.json`: no fit, no judgement (see `fit::reproduction` for
//! what our code makes of them). x and y follow the parameters of our sample files, so a report can
//! draw both in one plot: `latency` x bytes, y ns; `access` x share of 50 GB, y relative change of
//! time; `parent-writes` x turn (1..10, `what` says before or after; 100,000 pages a round), y ns;
//! `exec` x used bytes, y seconds for an unstated number of runs, so only ratios can be compared;
//! `grid` x bytes, y seconds for 1000 forks; `copy-rate` x fraction written; `writes` x the number
//! of the phase; `redis` and `apache` x percentile.
//!
//! What stands here is what text and tables of the papers state; their plots are not readable. A
//! "GB" of the 2021 paper is 2^30 bytes: it allocates in steps of 512 MB.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Bytes of heap of the grid of 1988.
pub const GRID_BYTES: [u32; 7] = [0, 1_000, 3_162, 10_000, 31_622, 100_000, 316_228];
/// Bytes of the copy that was timed in 1988.
pub const COPY_BYTES: f64 = 316_228.0;
/// Seconds of user time of that copy, on the 3B2 and on the HP9000.
pub const COPY_SECONDS: [f64; 2] = [0.39, 0.06];
/// The prediction for a size that was not measured: bytes, fraction, seconds for 1000 forks on the
/// 3B2.
pub const PREDICTED: (f64, f64, f64) = (1.0e6, 0.5, 797.5);
/// The machines of 1988, and the bytes of a page on each.
pub const MACHINES: [(&str, u64); 2] = [("3B2", 2048), ("HP9000", 4096)];

/// One number somebody else measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedPoint {
    /// Which curve or machine it belongs to.
    pub series: &'static str,
    /// The varied number, in the unit of the publication's axis.
    pub x: f64,
    /// The measured number.
    pub y: f64,
    /// Of y: ns, s, bytes/s, share, count, us, 1/s.
    pub unit: &'static str,
    /// What `y` is.
    pub what: &'static str,
    /// Publication, and the figure or table in it.
    pub source: &'static str,
}

/// One printed regression line: y = slope x bytes + intercept, in seconds for 1000 forks.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct PublishedLine {
    /// The machine.
    pub series: &'static str,
    /// Seconds a byte.
    pub slope: f64,
    /// Seconds at 0 bytes.
    pub intercept: f64,
    /// The share of pages that the child writes.
    pub frac: f64,
    /// Publication, and the figure or table in it.
    pub source: &'static str,
}

/// Points of one place, each with its series, x, y and what it is.
#[derive(Deserialize)]
struct Table {
    source: &'static str,
    unit: &'static str,
    points: Vec<(&'static str, f64, f64, &'static str)>,
}

static TABLES: LazyLock<BTreeMap<&'static str, Vec<Table>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("points.json")).expect("points.json is checked by tests")
});

static LINES: LazyLock<Vec<PublishedLine>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("lines.json")).expect("lines.json is checked by tests")
});

/// What was published for one experiment; empty when nothing was.
pub fn points(experiment: &str) -> Vec<PublishedPoint> {
    let tables = TABLES.get(experiment).into_iter().flatten();
    let of_table = |table: &'static Table| {
        let Table { source, unit, points } = table;
        let point = |&(series, x, y, what)| PublishedPoint { series, x, y, unit, what, source };
        points.iter().map(point)
    };
    tables.flat_map(of_table).collect()
}

/// The regression lines published for one experiment: six for `grid`.
pub fn lines(experiment: &str) -> &'static [PublishedLine] {
    if experiment == "grid" {
        &LINES
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_points_and_every_point_a_source() {
        assert_eq!((TABLES.len(), lines("grid").len()), (14, 6));
        for point in TABLES.keys().flat_map(|name| points(name)) {
            assert!(point.x.is_finite() && point.y.is_finite(), "{point:?}");
            let year = |word: &str| word.len() == 4 && word.parse::<u32>().is_ok();
            assert!(point.source.split([' ', ',']).any(year), "{point:?}");
            assert!(!point.what.is_empty() && !point.series.is_empty(), "{point:?}");
        }
        assert!(points("weather").is_empty() && lines("latency").is_empty());
    }

    #[test]
    fn the_figures_of_the_mission_are_there() {
        for (experiment, y) in [
            ("grid", 505.82),
            ("grid", PREDICTED.2),
            ("latency", 6_540_000.0),
            ("latency", 940_000.0),
            ("latency", 22_400_000.0),
            ("fault", 198_400.0),
            ("parent-writes", 64_901_010.0),
            ("exec", 21.60),
            ("copy-rate", 5_270_467.0),
            ("copy-rate", 667_161.0),
            ("writes", 0.23),
            ("afl", 206.0),
            ("vm", 145.0),
            ("unit-tests", 330_000.0),
            ("redis", 5_535_000.0),
            ("apache", 33_700.0),
        ] {
            assert!(points(experiment).iter().any(|point| point.y == y), "{experiment} {y}");
        }
    }

    #[test]
    fn four_runs_of_twenty_rounds_of_parent_writes() {
        let points = points("parent-writes");
        assert_eq!(points.len(), 80);
        let first_after = |series: &str| {
            let mut found = points.iter().filter(|p| p.series == series && p.what == "after");
            found.next().map_or(f64::NAN, |point| point.y)
        };
        assert_eq!(first_after("Ruby 2.1.10 system (fork)"), 63_275_750.0);
        assert_eq!(first_after("Ruby 2.6.2 system (vfork)"), 6_740_130.0);
    }
}
