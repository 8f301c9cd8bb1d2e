//! Whole programs of Zhao, Gong and Fonseca 2021 (on-demand-fork): what their users see.
//!
//! Owns these constants. x is what the row compares by (a percentile, a place in the table); times
//! are nanoseconds.

use super::figure::{p, PublishedPoint, FORK, ODF};

const FIG_9: &str = "Zhao, Gong and Fonseca 2021, section 5.3.1, figure 9";
const FIG_10: &str = "Zhao, Gong and Fonseca 2021, section 5.3.4, figure 10";
const TABLE_2: &str = "Zhao, Gong and Fonseca 2021, table 2";
const TABLE_3: &str = "Zhao, Gong and Fonseca 2021, table 3";
const TABLE_4: &str = "Zhao, Gong and Fonseca 2021, table 4";
const TABLE_5: &str = "Zhao, Gong and Fonseca 2021, table 5";
const TABLE_6: &str = "Zhao, Gong and Fonseca 2021, table 6";

/// Executions a second.
pub const FUZZING: [PublishedPoint; 4] = [
    p((FORK, 1.0, 63.0), "1/s", "AFL on SQLite with a 1 GB database", FIG_9),
    p((ODF, 1.0, 206.0), "1/s", "AFL on SQLite with a 1 GB database", FIG_9),
    p((FORK, 2.0, 91.0), "1/s", "TriforceAFL, virtual machine of 188 MB", FIG_10),
    p((ODF, 2.0, 145.0), "1/s", "TriforceAFL, virtual machine of 188 MB", FIG_10),
];

/// Phases of SQLite's unit tests in children of one process of 1 GB.
pub const UNIT_TESTS: [PublishedPoint; 7] = [
    p((FORK, 0.0, 24_189_360_000.0), "ns", "initialisation", TABLE_2),
    p((FORK, 1.0, 13_150_000.0), "ns", "fork", TABLE_3),
    p((ODF, 1.0, 120_000.0), "ns", "fork", TABLE_3),
    p((FORK, 2.0, 180_000.0), "ns", "test", TABLE_3),
    p((ODF, 2.0, 210_000.0), "ns", "test", TABLE_3),
    p((FORK, 3.0, 13_330_000.0), "ns", "fork and test", TABLE_3),
    p((ODF, 3.0, 330_000.0), "ns", "fork and test", TABLE_3),
];

/// Redis of about 1 GB under load with snapshots: x percentile for latency, 0 for the time in fork.
pub const SNAPSHOTS: [PublishedPoint; 16] = [
    p((FORK, 50.0, 4_319_000.0), "ns", "request latency", TABLE_4),
    p((ODF, 50.0, 3_871_000.0), "ns", "request latency", TABLE_4),
    p((FORK, 90.0, 5_247_000.0), "ns", "request latency", TABLE_4),
    p((ODF, 90.0, 4_159_000.0), "ns", "request latency", TABLE_4),
    p((FORK, 95.0, 5_343_000.0), "ns", "request latency", TABLE_4),
    p((ODF, 95.0, 4_255_000.0), "ns", "request latency", TABLE_4),
    p((FORK, 99.0, 5_695_000.0), "ns", "request latency", TABLE_4),
    p((ODF, 99.0, 4_575_000.0), "ns", "request latency", TABLE_4),
    p((FORK, 99.9, 6_335_000.0), "ns", "request latency", TABLE_4),
    p((ODF, 99.9, 4_799_000.0), "ns", "request latency", TABLE_4),
    p((FORK, 99.99, 16_255_000.0), "ns", "request latency", TABLE_4),
    p((ODF, 99.99, 5_535_000.0), "ns", "request latency", TABLE_4),
    p((FORK, 0.0, 7_400_000.0), "ns", "time in fork, mean", TABLE_5),
    p((ODF, 0.0, 120_000.0), "ns", "time in fork, mean", TABLE_5),
    p((FORK, 0.0, 420_000.0), "ns", "time in fork, standard deviation", TABLE_5),
    p((ODF, 0.0, 7_000.0), "ns", "time in fork, standard deviation", TABLE_5),
];

/// Apache prefork, response latency after start.
pub const PREFORK: [PublishedPoint; 4] = [
    p((FORK, 0.0, 34_300.0), "ns", "mean", TABLE_6),
    p((ODF, 0.0, 33_700.0), "ns", "mean", TABLE_6),
    p((FORK, 100.0, 285_200.0), "ns", "maximum", TABLE_6),
    p((ODF, 100.0, 304_000.0), "ns", "maximum", TABLE_6),
];
