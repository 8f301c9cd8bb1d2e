//! What a published figure is: a point or a line, each with its source.

/// One number somebody else measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedPoint {
    pub series: &'static str,
    pub x: f64,
    pub y: f64,
    /// Of y: ns, s, bytes/s, share, count, us, 1/s.
    pub unit: &'static str,
    pub what: &'static str,
    pub source: &'static str,
}

/// A point in one line.
pub(super) const fn p(
    (series, x, y): (&'static str, f64, f64),
    unit: &'static str,
    what: &'static str,
    source: &'static str,
) -> PublishedPoint {
    PublishedPoint { series, x, y, unit, what, source }
}

/// Names of series that several tables share.
pub(super) const FORK: &str = "fork";
pub(super) const ODF: &str = "on-demand-fork";

/// One printed regression line: y = slope x bytes + intercept, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedLine {
    pub series: &'static str,
    /// Seconds a byte, for 1000 forks.
    pub slope: f64,
    /// Seconds, for 1000 forks.
    pub intercept: f64,
    pub frac: f64,
    pub source: &'static str,
}
