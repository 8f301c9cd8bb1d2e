//! The answer: a value that is printed as JSON as it is, and its text.
//!
//! Owns the fields and the columns; the numbers come from `source`.

use serde::Serialize;

use super::question::Question;
use super::size::name;
use odfork_proc::table::columns;
use odfork_proc::text::time;
use odfork_samples::fit::{Fit, Prediction, Term};

/// Changes when a field changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// All answers, and what they rest on.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    pub schema: u32,
    pub bytes: u64,
    pub frac: f64,
    pub forks: u64,
    #[serde(rename = "engines")]
    pub answers: Vec<Answer>,
    /// File, date and machine, or that there is none.
    pub data: String,
    pub warnings: Vec<String>,
}

/// One engine's answer. `each_s` is one fork, with what its intervals and parts say of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answer {
    pub engine: String,
    total_s: f64,
    pub each_s: f64,
    each_low_s: Option<f64>,
    each_high_s: Option<f64>,
    process_share: f64,
    entries_share: f64,
    copies_share: f64,
    terms_s: Vec<(String, f64)>,
    /// What the terms are, and how far off they were on points held out. None for built-in figures.
    model: Option<String>,
    held_out_points: Option<usize>,
    held_out_median_error: Option<f64>,
    held_out_worst_error: Option<f64>,
    /// (bytes, frac, measured s, predicted s) of one fork.
    held_out: Vec<(f64, f64, f64, f64)>,
    /// What freezing the memory takes once, by the built-in figures; image engine only.
    freeze_s: Option<f64>,
}

impl Answers {
    pub fn new(question: &Question, answers: Vec<Answer>, data: String) -> Answers {
        let &Question { bytes, frac, forks, .. } = question;
        Answers { schema: SCHEMA, bytes, frac, forks, answers, data, warnings: Vec::new() }
    }
}

impl Answer {
    pub fn new(engine: &str, forks: u64, one: &Prediction, freeze_s: Option<f64>) -> Answer {
        let [process_share, entries_share, copies_share] = shares(&one.parts);
        Answer {
            engine: engine.into(),
            total_s: one.seconds * forks as f64,
            each_s: one.seconds,
            each_low_s: one.interval.map(|(low, _)| low),
            each_high_s: one.interval.map(|(_, high)| high),
            process_share,
            entries_share,
            copies_share,
            terms_s: one.parts.iter().map(|(term, seconds)| (term.name(), *seconds)).collect(),
            freeze_s,
            ..Answer::default()
        }
    }

    /// Where the prediction comes from, when it comes from a fit.
    pub fn with_fit(self, fit: &Fit) -> Answer {
        let held_out = fit.held_out.iter().map(|p| (p.bytes, p.frac, p.measured, p.predicted));
        Answer {
            model: Some(fit.form.describe()),
            held_out_points: Some(fit.errors.count),
            held_out_median_error: Some(fit.errors.median),
            held_out_worst_error: Some(fit.errors.worst),
            held_out: held_out.collect(),
            ..self
        }
    }

    fn row(&self) -> [String; 8] {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let none = || "-".to_string();
        let interval = self.each_low_s.zip(self.each_high_s);
        let errors = self.held_out_median_error.zip(self.held_out_worst_error);
        [
            self.engine.clone(),
            span(self.total_s),
            span(self.each_s),
            interval.map_or_else(none, |(low, high)| format!("{} .. {}", span(low), span(high))),
            percent(self.process_share),
            percent(self.entries_share),
            percent(self.copies_share),
            errors.map_or_else(none, |(median, worst)| {
                format!("{}, worst {}", percent(median), percent(worst))
            }),
        ]
    }
}

/// Shares of process, entries and copies; terms that refine one of them count with it.
fn shares(parts: &[(Term, f64)]) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for (term, seconds) in parts {
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

fn span(seconds: f64) -> String {
    time(seconds * 1e9)
}

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

pub fn text(all: &Answers) -> String {
    let Answers { forks, answers, .. } = all;
    let plural = if *forks == 1 { "fork" } else { "forks" };
    // Without needless zeros.
    let written = (all.frac * 1e6).round() / 1e4;
    let size = name(all.bytes as f64);
    let rows: Vec<_> =
        std::iter::once(HEAD.map(String::from)).chain(answers.iter().map(Answer::row)).collect();
    let mut text = format!("{forks} {plural} of {size}, the child writes {written} %\n");
    text += &columns(&rows);
    text += &freezing(answers).unwrap_or_default();
    for (index, answer) in answers.iter().enumerate().filter(|(_, answer)| answer.model.is_some()) {
        // Each form once, with the engines it holds for.
        let same = |other: &&Answer| other.model == answer.model;
        if !answers[..index].iter().any(|other| same(&other)) {
            let engines: Vec<_> = answers.iter().filter(same).map(|a| a.engine.as_str()).collect();
            let model = answer.model.as_deref().unwrap_or_default();
            text += &format!("model {}: {model}\n", engines.join(", "));
        }
    }
    text += &format!("data  {}", all.data);
    text + &all.warnings.iter().map(|warning| format!("\nnote  {warning}")).collect::<String>()
}

/// What freezing takes, and after how many forks it is earned back.
fn freezing(answers: &[Answer]) -> Option<String> {
    let image = answers.iter().find(|answer| answer.freeze_s.is_some())?;
    let freeze = image.freeze_s?;
    let mut line = format!("image: freezing takes {} once (built-in figure)", span(freeze));
    let plain = answers.iter().find(|answer| answer.engine == "plain");
    if let Some(saved) = plain.map(|plain| plain.each_s - image.each_s).filter(|s| *s > 0.0) {
        line += &format!(", earned back after {} forks", (freeze / saved).ceil());
    }
    Some(line + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn question() -> Question {
        Question { bytes: 1 << 30, frac: 0.5, forks: 3, engines: Vec::new(), data: None }
    }

    fn answers() -> Answers {
        let answer = |engine: &str, copy: f64, freeze| {
            let far = (Term::FarCopy { beyond: 1 }, copy / 2.0);
            let parts = vec![(Term::Process, 0.1), (Term::Copy, copy / 2.0), far];
            let one = Prediction { seconds: 0.1 + copy, interval: Some((0.9, 1.1)), parts };
            Answer::new(engine, 3, &one, freeze)
        };
        let answers = vec![answer("plain", 0.9, None), answer("image", 0.4, Some(2.1))];
        let warnings = vec!["old".into()];
        Answers { warnings, ..Answers::new(&question(), answers, "file".into()) }
    }

    #[test]
    fn answers_are_printed_as_recorded() {
        let mut answers = answers();
        answers.warnings.push("far".into());
        answers.answers[0] = Answer {
            model: Some("process + entry + copy".into()),
            held_out_points: Some(17),
            held_out_median_error: Some(0.0123),
            held_out_worst_error: Some(0.05),
            held_out: vec![(4096.0, 0.5, 0.25, 0.5)],
            ..answers.answers[0].clone()
        };
        answers.answers[1].each_low_s = None;
        answers.answers[1].each_high_s = None;
        let asked = Question { forks: 1, frac: 1.0 / 3.0, bytes: 0, ..question() };
        let built_in = source::built_in(&asked).unwrap();
        for (name, answers) in [("predict", &answers), ("predict-built-in", &built_in)] {
            let json = serde_json::to_string_pretty(answers).unwrap();
            crate::golden::check(&format!("{name}.txt"), &(text(answers) + "\n"));
            crate::golden::check(&format!("{name}.json"), &(json + "\n"));
        }
    }
}
