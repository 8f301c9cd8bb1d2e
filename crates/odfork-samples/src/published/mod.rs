//! The published figures, as data: where each comes from, and what stands beside ours.
//!
//! Owns the constants: no fit, no judgement (see `fit::reproduction` for what our code makes of
//! them). Facts only, each with its source and the place in it. x and y follow the parameters of
//! our sample files, so a report can draw both in one plot: `latency` x bytes, y ns; `access` x
//! share, y relative change of time; `parent-writes` x turn (1..10, `what` says before or after), y
//! ns; `exec` x used bytes, y seconds; `grid` x bytes, y seconds for 1000 forks.

mod applications;
mod figure;
mod smith;
mod systems;

pub use figure::{PublishedLine, PublishedPoint};
pub use smith::{
    COPY_BYTES, COPY_SECONDS, GRID_BYTES, GRID_FORKS, GRID_FRACS, MACHINES, PREDICTED,
};

/// The names `points` knows.
pub const EXPERIMENTS: [&str; 13] = [
    "grid",
    "latency",
    "profile",
    "fault",
    "access",
    "parent-writes",
    "exec",
    "copy-rate",
    "writes",
    "fuzzing",
    "unit-tests",
    "snapshots",
    "prefork",
];

/// What was published for one experiment; empty when nothing was.
pub fn points(experiment: &str) -> Vec<PublishedPoint> {
    match experiment {
        "grid" => smith::GRID.to_vec(),
        "copy-rate" => smith::COPY_RATES.to_vec(),
        "writes" => smith::WRITES.to_vec(),
        "latency" => systems::LATENCY.to_vec(),
        "profile" => systems::PROFILE.to_vec(),
        "fault" => systems::FAULT.to_vec(),
        "access" => systems::ACCESS.to_vec(),
        "parent-writes" => systems::parent_writes(),
        "exec" => systems::EXEC.to_vec(),
        "fuzzing" => applications::FUZZING.to_vec(),
        "unit-tests" => applications::UNIT_TESTS.to_vec(),
        "snapshots" => applications::SNAPSHOTS.to_vec(),
        "prefork" => applications::PREFORK.to_vec(),
        _ => Vec::new(),
    }
}

/// The regression lines published for one experiment: six for `grid`.
pub fn lines(experiment: &str) -> Vec<PublishedLine> {
    if experiment == "grid" {
        smith::LINES.to_vec()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_points_and_every_point_a_source() {
        for name in EXPERIMENTS {
            let points = points(name);
            assert!(!points.is_empty(), "{name}");
            for point in points {
                assert!(point.x.is_finite() && point.y.is_finite(), "{point:?}");
                let year = |word: &str| word.len() == 4 && word.parse::<u32>().is_ok();
                assert!(point.source.split([' ', ',']).any(year), "{point:?}");
                assert!(!point.what.is_empty() && !point.series.is_empty(), "{point:?}");
            }
        }
        assert!(points("weather").is_empty() && lines("latency").is_empty());
    }

    #[test]
    fn the_figures_of_the_mission_are_there() {
        let has = |experiment: &str, y: f64| points(experiment).iter().any(|point| point.y == y);
        for (experiment, y) in [
            ("grid", 505.82),
            ("grid", 797.5),
            ("latency", 6_540_000.0),
            ("latency", 940_000.0),
            ("latency", 22_400_000.0),
            ("fault", 198_400.0),
            ("parent-writes", 64_901_010.0),
            ("exec", 21.60),
            ("copy-rate", 5_270_467.0),
            ("copy-rate", 667_161.0),
            ("writes", 0.23),
            ("fuzzing", 206.0),
            ("unit-tests", 330_000.0),
            ("snapshots", 5_535_000.0),
            ("prefork", 33_700.0),
        ] {
            assert!(has(experiment, y), "{experiment} {y}");
        }
        assert_eq!(lines("grid").len(), 6);
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
