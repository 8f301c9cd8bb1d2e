//! The tables of promised figures: a line each, by section; goal, both sides, ratio with its
//! interval, verdict. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use odfork_proc::table::aligned;
use odfork_proc::text::{amount, digits, size, time};
use odfork_samples::promises::{Figure, Finding, Goal, Section, Verdict, GROUP};
use odfork_samples::samples::Recording;
use odfork_samples::stats::Estimate;

const HEADINGS: [&str; 8] =
    ["  figure", "what", "base", "odfork", "thp", "ratio [95 %]", "goal", "verdict"];
/// Columns that read better aligned to the right.
const RIGHT: [bool; 8] = [false, false, true, true, true, true, true, false];

const LEGEND: &str = "\
base is stock fork unless the figure names another; thp is stock fork on transparent huge pages.
'361x' = the base takes 361 times as long; '1.03 of base' = takes 1.03 times as long as the base.
Times are medians; intervals are 95 % bootstrap intervals over interleaved rounds; (close) = the
interval holds the goal, so one run does not decide. Children's times run from fork to reaped.";

/// The whole report as text. Of a run that was interrupted, what was measured.
pub fn tables(findings: &[Finding], recording: &Recording, interrupted: bool) -> String {
    let mut text = String::new();
    for section in Section::ALL {
        let lines = findings
            .iter()
            .filter(|finding| finding.figure.section == section)
            .filter(|finding| !interrupted || finding.subject.is_some());
        let rows: Vec<[String; 8]> = lines.map(row).collect();
        if !rows.is_empty() {
            let all = [vec![HEADINGS.map(String::from)], rows].concat();
            let _ = write!(text, "\n{}\n{}", section.title(), aligned(&all, &RIGHT));
        }
    }
    let _ = writeln!(text, "\n{LEGEND}");
    for (engine, groups) in engines(recording) {
        let _ = writeln!(text, "engine {engine}: {}", groups.join(", "));
    }
    let _ = writeln!(text, "{}", summary(findings));
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

/// What the subjects say of the engine they used, and in which groups.
fn engines(recording: &Recording) -> BTreeMap<String, Vec<String>> {
    let mut engines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, detail) in &recording.engines {
        let (says, place) = detail.split_once(" {").unwrap_or((detail, ""));
        let engine = match says.split_once(": ") {
            Some(("plain", reason)) => format!("plain ({reason})"),
            Some((engine, _)) => engine.to_owned(),
            None => says.to_owned(),
        };
        let place: serde_json::Value =
            serde_json::from_str(&format!("{{{place}")).unwrap_or_default();
        let group = place[GROUP].as_str().unwrap_or_default().to_owned();
        let groups = engines.entry(engine).or_default();
        if groups.last() != Some(&group) {
            groups.push(group);
        }
    }
    engines
}

fn row(finding: &Finding) -> [String; 8] {
    let figure = finding.figure;
    let is_bytes = matches!(figure.goal, Goal::Bytes(_));
    let side = |estimate: &Option<Estimate>| match estimate {
        None => "-".to_string(),
        Some(estimate) if is_bytes => amount(estimate.value),
        Some(estimate) => time(estimate.value),
    };
    [
        format!("  {}", figure.name),
        figure.about.into(),
        if is_bytes { "-".into() } else { side(&finding.base) },
        side(&finding.subject),
        side(&finding.third),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use odfork_samples::promises::{figures, judge, BYTES, SERIES};
    use odfork_samples::samples::Skip;
    use odfork_samples::stats::Rng;

    fn recording() -> Recording {
        golden::recording(golden::FOLDER, "promises-full")
    }

    fn text(recording: &Recording, interrupted: bool) -> String {
        let mut rng = Rng::with_seed(1);
        let judged = figures().into_iter().map(|figure| judge(figure, recording, &mut rng));
        tables(&judged.collect::<Vec<_>>(), recording, interrupted)
    }

    fn line<'a>(text: &'a str, name: &str) -> &'a str {
        text.lines().find(|line| line.trim_start().starts_with(name)).unwrap()
    }

    /// The same samples, the same words and numbers as before the runners became one; resampling
    /// draws other numbers.
    #[test]
    fn recorded_samples_give_the_tables_they_gave() {
        for name in ["promises-full", "promises-quick", "promises-noengine"] {
            let recording = golden::recording(golden::FOLDER, name);
            let mut rng = Rng::with_seed(1);
            let was_run = |figure: &Figure| {
                recording.samples.iter().any(|sample| sample.word(GROUP) == figure.group)
            };
            let chosen = figures().into_iter().filter(was_run);
            let findings: Vec<Finding> =
                chosen.map(|figure| judge(figure, &recording, &mut rng)).collect();
            let text = tables(&findings, &recording, false);
            golden::assert_same_but_intervals(&text, &golden::expected(name));
        }
    }

    #[test]
    fn columns_are_aligned() {
        let text = text(&recording(), false);
        let column = |name: &str, word: &str| line(&text, name).find(word).unwrap();
        assert_eq!(column("fork-1g", "met"), column("full-1g", "MISSED"));
        assert_eq!(column("fork-1g", "fork()"), column("full-1g", "child"));
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let mut recording = recording();
        let dirty = recording.samples.iter().find(|s| s.word(GROUP) == "dirty-1g").unwrap().clone();
        let mut skip = Skip { engine: "image".into(), params: dirty.params, reason: "why".into() };
        skip.params.insert(SERIES.into(), "odfork".into());
        recording.skips.push(skip);
        for sample in &mut recording.samples {
            sample.params.insert(BYTES.into(), (32 << 20).into());
        }
        let text = text(&recording, false);
        assert!(line(&text, "dirty-folded").ends_with("n/a: why"), "{text}");
        assert!(line(&text, "fork-1g").ends_with("not judged: at 32 MB"), "{text}");
    }

    #[test]
    fn an_interrupted_run_shows_only_what_was_measured() {
        let mut recording = recording();
        recording.samples.retain(|sample| sample.word(GROUP) == "static-1g");
        let text = text(&recording, true);
        assert!(text.contains("  fork-1g") && !text.contains("  fork-8g"));
        assert!(!text.contains(Section::Loss.title()));
        assert!(text.contains("engine huge: size-64m, static-1g"));
    }

    #[test]
    fn the_list_has_every_figure() {
        assert_eq!(list(&figures()).lines().count(), figures().len());
    }
}
