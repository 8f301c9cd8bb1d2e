//! Smith and Maguire 1988: the grid on two workstations, copy rates, and what real programs write.
//!
//! The paper's 392 points a machine were plotted, and the plots are not in the text we have:
//! readable are six regression lines, one point, one prediction and the rates derived from them.
//! Seconds are real time for 1000 forks.

use super::figure::{p, PublishedLine, PublishedPoint};

/// Forks of the grid.
pub const GRID_FORKS: [u32; 8] = [0, 1, 3, 10, 32, 100, 316, 1000];
/// Bytes of heap of the grid.
pub const GRID_BYTES: [u32; 7] = [0, 1_000, 3_162, 10_000, 31_622, 100_000, 316_228];
/// Fractions of the heap that the child writes.
pub const GRID_FRACS: [f64; 7] = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0];

/// Bytes of the copy that was timed.
pub const COPY_BYTES: f64 = 316_228.0;
/// Seconds of user time of that copy, on the 3B2 and on the HP9000.
pub const COPY_SECONDS: [f64; 2] = [0.39, 0.06];
/// The prediction for a size that was not measured: bytes, fraction, seconds for 1000 forks on the
/// 3B2.
pub const PREDICTED: (f64, f64, f64) = (1.0e6, 0.5, 797.5);

/// The machines, and the bytes of a page on each.
pub const MACHINES: [(&str, u64); 2] = [("3B2", 2048), ("HP9000", 4096)];

const FIGURE_1: &str = "Smith and Maguire 1988, section 3, figure 1";
const FIGURE_2: &str = "Smith and Maguire 1988, section 3, figure 2";
const FIGURE_3: &str = "Smith and Maguire 1988, section 3.1, figure 3";
const RATES: &str = "Smith and Maguire 1988, section 3";
const SECTION_4: &str = "Smith and Maguire 1988, section 4";

/// The printed regression lines.
pub const LINES: [PublishedLine; 6] = [
    line("3B2", 1.709e-4, 31.4, 0.1, FIGURE_1),
    line("3B2", 7.670e-4, 30.5, 0.5, FIGURE_1),
    line("3B2", 1.349e-3, 30.7, 0.9, FIGURE_1),
    line("HP9000", 2.952e-5, 12.7, 0.1, FIGURE_2),
    line("HP9000", 1.264e-4, 12.4, 0.5, FIGURE_2),
    line("HP9000", 2.124e-4, 12.2, 0.9, FIGURE_2),
];

const fn line(
    series: &'static str,
    slope: f64,
    intercept: f64,
    frac: f64,
    source: &'static str,
) -> PublishedLine {
    PublishedLine { series, slope, intercept, frac, source }
}

const LARGEST: &str = "1000 forks, frac 1.0: the largest time of the grid";
const UNMEASURED: &str = "1000 forks, frac 0.5: predicted, not measured";

pub const GRID: [PublishedPoint; 2] = [
    p(("3B2", 316_228.0, 505.82), "s", LARGEST, FIGURE_3),
    p(("3B2", PREDICTED.0, PREDICTED.2), "s", UNMEASURED, RATES),
];

/// Copy and page-service rates: x is the fraction written (1 for the plain copy).
pub const COPY_RATES: [PublishedPoint; 10] = [
    p(("3B2", 1.0, 810_841.0), "bytes/s", "memory copy", RATES),
    p(("HP9000", 1.0, 5_270_467.0), "bytes/s", "memory copy", RATES),
    p(("3B2", 0.1, 585_138.0), "bytes/s", "page service", RATES),
    p(("3B2", 0.5, 651_890.0), "bytes/s", "page service", RATES),
    p(("3B2", 0.9, 667_161.0), "bytes/s", "page service", RATES),
    p(("HP9000", 0.1, 3_387_534.0), "bytes/s", "page service", RATES),
    p(("HP9000", 0.5, 3_955_696.0), "bytes/s", "page service", RATES),
    p(("HP9000", 0.9, 4_237_288.0), "bytes/s", "page service", RATES),
    p(("3B2", 0.9, 0.823), "share", "page service / memory copy", RATES),
    p(("HP9000", 0.9, 0.804), "share", "page service / memory copy", RATES),
];

const LISP: &str = "Franz Lisp ABSTRIPS (VAX)";
const VAX: &str = "Emacs Hanoi (VAX)";

/// What a program changed: x is the number of the phase, y a share or a count.
pub const WRITES: [PublishedPoint; 14] = [
    p((LISP, 2.0, 270.0), "count", "execution: pages changed (512 bytes)", SECTION_4),
    p((LISP, 2.0, 1_198.0), "count", "execution: pages of the data segment", SECTION_4),
    p((LISP, 2.0, 0.23), "share", "execution: pages", SECTION_4),
    p((LISP, 2.0, 77_910.0), "count", "execution: bytes changed", SECTION_4),
    p((LISP, 2.0, 613_376.0), "count", "execution: bytes of the data segment", SECTION_4),
    p((LISP, 1.0, 56_937.0), "count", "loading: bytes changed", SECTION_4),
    p((LISP, 1.0, 556_032.0), "count", "loading: bytes of the data segment", SECTION_4),
    p((LISP, 0.0, 528_384.0), "count", "interpreter started: bytes of the data segment", SECTION_4),
    p((LISP, 3.0, 123_942.0), "count", "loading and execution: bytes changed", SECTION_4),
    p((VAX, 1.0, 183_312.0), "count", "execution: bytes changed", SECTION_4),
    p((VAX, 1.0, 414_720.0), "count", "execution: bytes of the data segment", SECTION_4),
    p((VAX, 1.0, 0.35), "share", "execution, as stated", SECTION_4),
    p(("Emacs Hanoi (3B2)", 1.0, 0.30), "share", "execution", SECTION_4),
    p(("Emacs Hanoi (HP9000)", 1.0, 0.48), "share", "execution", SECTION_4),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_392_points() {
        assert_eq!(GRID_FORKS.len() * GRID_BYTES.len() * GRID_FRACS.len(), 392);
    }

    #[test]
    fn printed_shares_follow_from_printed_counts() {
        assert!((270.0_f64 / 1_198.0 - 0.23).abs() < 0.005);
        assert_eq!(613_376 / 512, 1_198);
    }
}
