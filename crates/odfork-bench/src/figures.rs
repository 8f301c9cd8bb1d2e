//! The tables of promised figures: a line each, by section; goal, both sides, ratio with its
//! interval, verdict. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use odfork_proc::table::aligned;
use odfork_samples::promises::words::{goal, row, summary, HEADINGS};
use odfork_samples::promises::{Figure, Finding, Section, GROUP};
use odfork_samples::samples::Recording;

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
        let rows: Vec<[String; 8]> = lines.map(indented).collect();
        if !rows.is_empty() {
            let mut head = HEADINGS.map(String::from);
            head[0].insert_str(0, "  ");
            let all = [vec![head], rows].concat();
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

fn indented(finding: &Finding) -> [String; 8] {
    let mut cells = row(finding);
    cells[0].insert_str(0, "  ");
    cells
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
