//! The table: one line per figure, grouped; goal, both sides, ratio with its interval, verdict. Pure.

use std::fmt::Write;

use crate::figures::{Figure, Finding, Goal, Group, Verdict};
use crate::record::Record;
use odfork_proc::text::{amount, digits, size, time};
use odfork_samples::stats::Estimate;

const HEADINGS: [&str; 8] =
    ["figure", "what", "base", "odfork", "thp", "ratio [95 %]", "goal", "verdict"];
/// Columns that read better aligned to the right.
const RIGHT: [bool; 8] = [false, false, true, true, true, true, true, false];

const LEGEND: &str = "\
base is stock fork unless the figure names another; thp is stock fork on transparent huge pages.
'361x' = the base takes 361 times as long; '1.03 of base' = takes 1.03 times as long as the base.
Times are medians; intervals are 95 % bootstrap intervals over interleaved rounds; (close) = the
interval holds the goal, so one run does not decide. Children's times run from fork to reaped.";

/// The whole report as text.
pub fn render(findings: &[Finding], record: &Record) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let lines: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.figure.group == group)
            .filter(|finding| !record.interrupted || finding.subject.is_some())
            .collect();
        if !lines.is_empty() {
            let rows: Vec<[String; 8]> = lines.into_iter().map(row).collect();
            let _ = writeln!(text, "\n{}", group.title());
            text.push_str(&align(&rows));
        }
    }
    let _ = writeln!(text, "\n{LEGEND}");
    for (engine, places) in record.engines() {
        let _ = writeln!(text, "engine {engine}: {}", places.join(", "));
    }
    for note in &record.notes {
        let _ = writeln!(text, "note: {note}");
    }
    if record.interrupted {
        let _ = writeln!(text, "note: interrupted; the table holds what was measured");
    }
    let _ = writeln!(text, "{}", summary(findings));
    for wrong in &record.wrongs {
        let _ = writeln!(text, "WRONG CONTENT OR LOST PROCESS: {wrong}");
    }
    text
}

/// The figures without numbers: name, what, goal.
pub fn list(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures {
        let (name, about) = (figure.name, figure.about);
        let _ = writeln!(text, "{name:16}  {about:48}  {}", goal(figure.goal));
    }
    text
}

fn row(finding: &Finding) -> [String; 8] {
    let figure = finding.figure;
    let is_bytes = matches!(figure.goal, Goal::Bytes(_));
    let cell = |estimate: &Option<Estimate>| match estimate {
        None => "-".to_string(),
        Some(estimate) if is_bytes => amount(estimate.value),
        Some(estimate) => time(estimate.value),
    };
    [
        figure.name.into(),
        figure.about.into(),
        if is_bytes { "-".into() } else { cell(&finding.base) },
        cell(&finding.subject),
        cell(&finding.third),
        ratio(figure.goal, finding.ratio),
        goal(figure.goal),
        verdict(&finding.verdict),
    ]
}

fn ratio(goal: Goal, estimate: Option<Estimate>) -> String {
    let Some(estimate) = estimate else {
        return "-".into();
    };
    let number = |value: f64| match goal {
        Goal::Bytes(_) => amount(value),
        _ => digits(value),
    };
    let unit = match goal {
        Goal::Times(_) | Goal::TimesReported => "x",
        Goal::Share(_) | Goal::ShareReported => " of base",
        Goal::Bytes(_) => "",
    };
    let value = format!("{}{unit}", number(estimate.value));
    match estimate.interval {
        Some((low, high)) => format!("{value} [{}, {}]", number(low), number(high)),
        None => value,
    }
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::Times(least) => format!(">= {least}x"),
        Goal::Share(most) => format!("<= {most}"),
        Goal::Bytes(most) => format!("<= {}", size(most)),
        Goal::TimesReported | Goal::ShareReported => "-".into(),
    }
}

fn verdict(verdict: &Verdict) -> String {
    let close = |close: &bool| if *close { " (close)" } else { "" };
    match verdict {
        Verdict::Met { close: near } => format!("met{}", close(near)),
        Verdict::Missed { close: near } => format!("MISSED{}", close(near)),
        Verdict::Reported => "-".into(),
        Verdict::Scaled { size: actual } => format!("not judged: at {}", size(*actual)),
        Verdict::Unavailable(reason) => format!("n/a: {reason}"),
    }
}

/// Counts of the figures that have a goal.
fn summary(findings: &[Finding]) -> String {
    let goals: Vec<&Finding> =
        findings.iter().filter(|finding| goal(finding.figure.goal) != "-").collect();
    let count = |wanted: fn(&Verdict) -> bool| {
        goals.iter().filter(|finding| wanted(&finding.verdict)).count()
    };
    let met = count(|verdict| matches!(verdict, Verdict::Met { .. }));
    let missed = count(|verdict| matches!(verdict, Verdict::Missed { .. }));
    let unjudged = goals.len() - met - missed;
    format!("goals: {met} met, {missed} missed, {unjudged} not judged")
}

fn align(rows: &[[String; 8]]) -> String {
    let headings = HEADINGS.map(String::from);
    let mut widths = headings.clone().map(|heading| heading.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .zip(RIGHT)
            .map(|((cell, width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::figures;
    use crate::figures::judge;
    use crate::record::{SeriesName, Sizes};
    use odfork_samples::stats::Rng;

    fn findings(names: &[&str], record: &Record) -> Vec<Finding> {
        figures()
            .into_iter()
            .filter(|figure| names.contains(&figure.name))
            .map(|figure| judge(figure, record, &mut Rng::with_seed(1)))
            .collect()
    }

    fn record() -> Record {
        let mut record = Record::default();
        for _ in 0..5 {
            for (arm, label, value) in [
                ("stock", "fork", 16.2e6),
                ("odfork", "fork", 45e3),
                ("thp", "fork", 340e3),
                ("stock", "full", 500e6),
                ("odfork", "full", 600e6),
            ] {
                record.add(SeriesName::new("static-1g", arm, label), value);
            }
        }
        record
    }

    #[test]
    fn a_line_has_both_sides_ratio_goal_and_verdict() {
        let record = record();
        let text = render(&findings(&["fork-1g", "full-1g"], &record), &record);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line("fork-1g"),
            "fork-1g fork() of a 1 GB static parent 16.2 ms 45.0 us 340 us 360x [360, 360] >= 200x met"
        );
        assert_eq!(
            line("full-1g"),
            "full-1g child writes every page 500 ms 600 ms - 1.20 of base [1.20, 1.20] <= 1.1 MISSED"
        );
        assert!(text.contains("goals: 1 met, 1 missed, 0 not judged"));
    }

    #[test]
    fn columns_are_aligned() {
        let record = record();
        let text = render(&findings(&["fork-1g", "full-1g"], &record), &record);
        let column = |name: &str, word: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.find(word).unwrap()
        };
        assert_eq!(column("fork-1g", "met"), column("full-1g", "MISSED"));
        assert_eq!(column("fork-1g", "fork()"), column("full-1g", "child"));
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let mut record = record();
        record.silence("dirty-1g", "odfork", "no engine is loaded");
        let sizes = Sizes { actual: 32 << 20, nominal: 1 << 30 };
        record.set_sizes("static-1g", sizes);
        record.notes.push("size-8g: left out".into());
        record.wrongs.push("static-1g, odfork: page 7".into());
        let text = render(&findings(&["fork-1g", "dirty-folded"], &record), &record);
        for expected in [
            "n/a: no engine is loaded",
            "not judged: at 32 MB",
            "note: size-8g: left out",
            "WRONG CONTENT OR LOST PROCESS: static-1g, odfork: page 7",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }

    #[test]
    fn an_interrupted_run_shows_only_what_was_measured() {
        let mut record = record();
        record.interrupted = true;
        record.set_engine("static-1g", "huge");
        let text = render(&findings(&["fork-1g", "fork-8g", "fork-2g"], &record), &record);
        assert!(text.contains("  fork-1g") && !text.contains("  fork-8g"));
        assert!(!text.contains(Group::Curve.title()));
        assert!(text.contains("note: interrupted"));
        assert!(text.contains("engine huge: static-1g"));
    }
}
