//! The answer as text and as JSON.
//!
//! Owns the words and the columns; every number was computed in `source`.

use anyhow::Result;
use serde::Serialize;

use super::size::name;
use super::source::{Answer, Answers};
use super::Question;
use odfork_proc::text::time;
use odfork_samples::fit::Term;

/// Changes when a field changes its meaning or goes away.
const SCHEMA: u32 = 1;

const HEAD: [&str; 8] = [
    "engine",
    "total",
    "one fork",
    "95 % interval",
    "process",
    "entries",
    "copies",
    "held-out error",
];

pub fn text(question: &Question, answers: &Answers) -> String {
    let Question { bytes, frac, forks, .. } = question;
    let size = name(*bytes as f64);
    let written = frac * 100.0;
    let plural = if *forks == 1 { "fork" } else { "forks" };
    let mut lines =
        vec![format!("{forks} {plural} of {size}, the child writes {} %", Short(written))];
    let mut rows = vec![HEAD.map(String::from)];
    rows.extend(answers.answers.iter().map(|answer| row(answer, *forks)));
    lines.extend(align(&rows));
    lines.extend(freezing(answers));
    for (form, engines) in forms(&answers.answers) {
        lines.push(format!("model {}: {form}", engines.join(", ")));
    }
    lines.push(format!("data  {}", answers.data));
    lines.extend(answers.warnings.iter().map(|warning| format!("note  {warning}")));
    lines.join("\n")
}

/// A number without needless zeros.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", (self.0 * 1e4).round() / 1e4)
    }
}

fn span(seconds: f64) -> String {
    time(seconds * 1e9)
}

/// Shares of process, entries and copies; terms that refine one of them count with it.
fn shares(answer: &Answer) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for (term, seconds) in &answer.parts {
        let place = match term {
            Term::Process => 0,
            Term::Entry | Term::Huge | Term::FarEntry { .. } => 1,
            Term::Copy | Term::FarCopy { .. } | Term::Table => 2,
        };
        sums[place] += seconds;
    }
    let whole: f64 = sums.iter().sum();
    sums.map(|sum| if whole > 0.0 { sum / whole } else { 0.0 })
}

fn row(answer: &Answer, forks: u64) -> [String; 8] {
    let [process, entries, copies] = shares(answer).map(|share| format!("{:.1} %", share * 100.0));
    let interval = match answer.interval {
        Some((low, high)) => format!("{} .. {}", span(low), span(high)),
        None => "-".into(),
    };
    let error = match &answer.fit {
        Some((_, errors)) => {
            format!("{:.1} %, worst {:.1} %", errors.median * 100.0, errors.worst * 100.0)
        }
        None => "-".into(),
    };
    let total = span(answer.each * forks as f64);
    [answer.engine.clone(), total, span(answer.each), interval, process, entries, copies, error]
}

/// The engine's price, and after how many forks it is earned back.
fn freezing(answers: &Answers) -> Option<String> {
    let image = answers.answers.iter().find(|answer| answer.freeze.is_some())?;
    let freeze = image.freeze?;
    let mut line = format!("image: freezing takes {} once (built-in figure)", span(freeze));
    let plain = answers.answers.iter().find(|answer| answer.engine == "plain");
    if let Some(saved) = plain.map(|plain| plain.each - image.each).filter(|saved| *saved > 0.0) {
        line += &format!(", earned back after {} forks", (freeze / saved).ceil());
    }
    Some(line)
}

/// Each form once, with the engines it holds for.
fn forms(answers: &[Answer]) -> Vec<(String, Vec<&str>)> {
    let mut forms: Vec<(String, Vec<&str>)> = Vec::new();
    for answer in answers {
        let Some((form, _)) = &answer.fit else { continue };
        match forms.iter_mut().find(|(known, _)| known == form) {
            Some((_, engines)) => engines.push(&answer.engine),
            None => forms.push((form.clone(), vec![&answer.engine])),
        }
    }
    forms
}

/// The first column to the left, numbers to the right.
fn align(rows: &[[String; 8]]) -> Vec<String> {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let cell = |(column, (text, &width)): (usize, (&String, &usize))| match column {
        0 => format!("{text:<width$}"),
        _ => format!("{text:>width$}"),
    };
    let line = |row: &[String; 8]| -> String {
        row.iter().zip(&widths).enumerate().map(cell).collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

#[derive(Serialize)]
struct Whole<'a> {
    schema: u32,
    bytes: u64,
    frac: f64,
    forks: u64,
    engines: Vec<Engine<'a>>,
    data: &'a str,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Engine<'a> {
    engine: &'a str,
    total_s: f64,
    each_s: f64,
    each_low_s: Option<f64>,
    each_high_s: Option<f64>,
    process_share: f64,
    entries_share: f64,
    copies_share: f64,
    terms_s: Vec<(String, f64)>,
    model: Option<&'a str>,
    held_out_points: Option<usize>,
    held_out_median_error: Option<f64>,
    held_out_worst_error: Option<f64>,
    /// (bytes, frac, measured s, predicted s) of one fork.
    held_out: Vec<(f64, f64, f64, f64)>,
    freeze_s: Option<f64>,
}

pub fn json(question: &Question, answers: &Answers) -> Result<String> {
    let engine = |answer| engine_object(answer, question.forks);
    let whole = Whole {
        schema: SCHEMA,
        bytes: question.bytes,
        frac: question.frac,
        forks: question.forks,
        engines: answers.answers.iter().map(engine).collect(),
        data: &answers.data,
        warnings: &answers.warnings,
    };
    Ok(serde_json::to_string_pretty(&whole)?)
}

fn engine_object(answer: &Answer, forks: u64) -> Engine<'_> {
    let [process_share, entries_share, copies_share] = shares(answer);
    let errors = answer.fit.as_ref().map(|(_, errors)| *errors);
    Engine {
        engine: &answer.engine,
        total_s: answer.each * forks as f64,
        each_s: answer.each,
        each_low_s: answer.interval.map(|(low, _)| low),
        each_high_s: answer.interval.map(|(_, high)| high),
        process_share,
        entries_share,
        copies_share,
        terms_s: answer.parts.iter().map(|(term, s)| (term.name(), *s)).collect(),
        model: answer.fit.as_ref().map(|(form, _)| form.as_str()),
        held_out_points: errors.map(|errors| errors.count),
        held_out_median_error: errors.map(|errors| errors.median),
        held_out_worst_error: errors.map(|errors| errors.worst),
        held_out: answer
            .held_out
            .iter()
            .map(|point| (point.bytes, point.frac, point.measured, point.predicted))
            .collect(),
        freeze_s: answer.freeze,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::fit::{Errors, Judged};

    fn answers() -> Answers {
        let answer = |engine: &str, copy, freeze| Answer {
            engine: engine.into(),
            each: 0.1 + copy,
            interval: Some((0.9, 1.1)),
            parts: vec![
                (Term::Process, 0.1),
                (Term::Copy, copy / 2.0),
                (Term::FarCopy { beyond: 1 }, copy / 2.0),
            ],
            fit: None,
            held_out: Vec::new(),
            freeze,
        };
        let answers = vec![answer("plain", 0.9, None), answer("image", 0.4, Some(2.1))];
        Answers { answers, data: "file".into(), warnings: vec!["old".into()] }
    }

    fn question() -> Question {
        Question { bytes: 1 << 30, frac: 0.5, forks: 3, engines: Vec::new(), data: None }
    }

    #[test]
    fn the_text_says_what_how_much_and_from_where() {
        let text = text(&question(), &answers());
        assert!(text.contains("3 forks of 1.00 GB, the child writes 50 %"), "{text}");
        assert!(text.contains("10.0 %") && text.contains("90.0 %"), "{text}");
        assert!(text.contains("earned back after 5 forks"), "{text}");
        assert!(text.contains("data  file") && text.contains("note  old"), "{text}");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![HEAD.map(String::from), row(&answers().answers[1], 3)];
        let lines = align(&rows);
        assert_eq!(lines[0].len(), lines[1].len());
    }

    #[test]
    fn answers_are_printed_as_recorded() {
        let mut answers = answers();
        let form = "process + entry + copy".to_string();
        answers.answers[0].fit = Some((form, Errors { count: 17, median: 0.0123, worst: 0.05 }));
        answers.answers[1].interval = None;
        answers.answers[0].held_out =
            vec![Judged { bytes: 4096.0, frac: 0.5, measured: 0.25, predicted: 0.5 }];
        let answers = Answers { warnings: vec!["old".into(), "far".into()], ..answers };
        crate::golden::check("predict.txt", &(text(&question(), &answers) + "\n"));
        crate::golden::check("predict.json", &(json(&question(), &answers).unwrap() + "\n"));
        let asked = Question { forks: 1, frac: 1.0 / 3.0, bytes: 0, ..question() };
        let built_in = super::super::source::built_in(&asked).unwrap();
        crate::golden::check("predict-built-in.txt", &(text(&asked, &built_in) + "\n"));
        crate::golden::check("predict-built-in.json", &(json(&asked, &built_in).unwrap() + "\n"));
    }
}
