//! What a person reads: the table of phases, the mappings that changed most, and the paper's
//! figures beside ours.
//!
//! Owns words and columns; every number comes from `change`.

use std::fmt::Write as _;

use super::change::Counts;
use super::method::Method;
use super::session::{Outcome, Phase};
use odfork_proc::table::columns;
use odfork_samples::unit::grouped;

/// A figure of Smith and Maguire 1988, section 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    pub program: &'static str,
    pub phase: &'static str,
    pub text: &'static str,
}

/// What the paper measured, by the program and phase of our suite that stands for it.
pub const PUBLISHED: [Published; 3] = [
    Published {
        program: "planner (sbcl)",
        phase: "load",
        text: "Franz Lisp, ABSTRIPS loaded: 56,937 of 556,032 bytes, 0.10",
    },
    Published {
        program: "planner (sbcl)",
        phase: "run",
        text: "Franz Lisp, ABSTRIPS run: 270 of 1,198 pages (512 bytes), 0.23; \
               77,910 of 613,376 bytes, 0.13",
    },
    Published {
        program: "hanoi (emacs)",
        phase: "hanoi",
        text: "GNU Emacs, hanoi 10: bytes 0.35 (VAX), 0.30 (3B2), 0.48 (HP9000)",
    },
];

fn heading(first: &str, method: Method) -> Vec<String> {
    let mut row = vec![first, "pages", "changed", "new", "share"];
    if method.counts_bytes() {
        row.extend(["bytes", "changed", "share"]);
    }
    row.into_iter().map(String::from).collect()
}

fn cells(first: String, counts: &Counts, method: Method) -> Vec<String> {
    let mut row = vec![
        first,
        grouped(counts.pages),
        grouped(counts.changed),
        grouped(counts.new),
        format!("{:.3}", counts.page_share()),
    ];
    if method.counts_bytes() {
        row.push(grouped(counts.bytes_all()));
        row.push(grouped(counts.bytes));
        row.push(format!("{:.3}", counts.byte_share()));
    }
    row
}

/// All phases of a measurement.
pub fn phases(outcome: &Outcome, method: Method) -> String {
    let mut rows = vec![heading("phase", method)];
    for phase in &outcome.phases {
        rows.push(cells(phase.name.clone(), &phase.change.counts, method));
    }
    let mut text = columns(&rows);
    let held = outcome.held.as_secs_f64();
    let _ = writeln!(text, "method {}; the process was held for {held:.2} s", method.word());
    for phase in outcome.phases.iter().filter(|phase| phase.change.gone > 0) {
        let gone = grouped(phase.change.gone);
        let _ = writeln!(text, "{}: {gone} pages were given back (in no count above)", phase.name);
    }
    text
}

/// The mappings that changed most in a phase.
pub fn hot_spots(phase: &Phase, method: Method, top: usize) -> String {
    let hottest = phase.change.hottest(top);
    if hottest.is_empty() {
        return String::new();
    }
    let mut rows = vec![heading("mapping", method)];
    for spot in hottest {
        rows.push(cells(format!("{:x} {}", spot.start, spot.name), &spot.counts, method));
    }
    format!("\nchanged most in {}:\n{}", phase.name, columns(&rows))
}

/// A row of the suite's table.
#[derive(Debug)]
pub struct SuiteRow {
    pub program: &'static str,
    pub phase: String,
    pub counts: Counts,
}

/// Ours and, under it, the paper's.
pub fn suite(rows: &[SuiteRow], method: Method) -> String {
    let mut table = vec![heading("program, phase", method)];
    for row in rows {
        table.push(cells(format!("{}, {}", row.program, row.phase), &row.counts, method));
    }
    let mut text = columns(&table);
    text.push_str("\nSmith and Maguire 1988, section 4, for comparison (\"less than half\"):\n");
    for Published { program, phase, text: published } in PUBLISHED {
        let counts = rows.iter().find(|row| row.program == program && row.phase == phase);
        let ours = match counts.map(|row| &row.counts) {
            None => "not measured".into(),
            Some(counts) if method.counts_bytes() => {
                format!("pages {:.2}, bytes {:.2}", counts.page_share(), counts.byte_share())
            }
            Some(counts) => format!("pages {:.2}", counts.page_share()),
        };
        let _ = writeln!(text, "  {published}\n    ours ({program}, {phase}): {ours}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::change::{Change, Spot};

    #[test]
    fn tables_are_printed_as_recorded() {
        let counts = |pages, changed, new, bytes| Counts { pages, changed, new, bytes };
        let spot = |name: &str, start: u64, counts| Spot {
            name: name.into(),
            start,
            end: start + 4096,
            counts,
        };
        let phase = |name: &str, gone, counts: Counts| Phase {
            name: name.into(),
            change: Change {
                counts,
                gone,
                unreadable: 0,
                spots: vec![
                    spot("anonymous", 0x7f00_0000_1000, counts),
                    spot("[heap]", 0x55d0_d000, Counts { pages: 9, changed: 3, new: 1, bytes: 77 }),
                    spot(
                        "libx.so (private data)",
                        0x1000,
                        Counts { pages: 2, ..Counts::default() },
                    ),
                ],
            },
        };
        let phases_of = vec![
            phase("load", 0, counts(1_234_567, 1_000_000, 1_000, 4_096_000_000)),
            phase("run", 12, counts(10, 0, 0, 0)),
        ];
        let outcome = Outcome {
            phases: phases_of,
            held: std::time::Duration::from_millis(1234),
            ..Outcome::default()
        };
        let rows: Vec<SuiteRow> = [
            ("planner (sbcl)", "run"),
            ("hanoi (emacs)", "hanoi"),
            ("table (sqlite3)", "delete 1 %"),
        ]
        .map(|(program, phase)| SuiteRow {
            program,
            phase: phase.into(),
            counts: counts(1000, 250, 3, 77_910),
        })
        .into();
        for method in Method::ALL {
            let spots: String =
                outcome.phases.iter().map(|phase| hot_spots(phase, method, 2)).collect();
            let text = phases(&outcome, method) + &spots + "\n" + &suite(&rows, method);
            crate::golden::check(&format!("writes-{}.txt", method.word()), &text);
        }
    }
}
