//! A figure in words, the same on a terminal and in a report. Pure.

use odfork_proc::text::{amount, digits, size, time};

use super::{Finding, Goal, Verdict};
use crate::stats::Estimate;

/// What the cells of a row are.
pub const HEADINGS: [&str; 8] =
    ["figure", "what", "base", "odfork", "thp", "ratio [95 %]", "goal", "verdict"];

/// The cells of a figure's row, as [`HEADINGS`] names them.
pub fn row(finding: &Finding) -> [String; 8] {
    let figure = finding.figure;
    let is_bytes = matches!(figure.goal, Goal::Bytes(_));
    let side = |estimate: &Option<Estimate>| match estimate {
        None => "-".to_string(),
        Some(estimate) if is_bytes => amount(estimate.value),
        Some(estimate) => time(estimate.value),
    };
    [
        figure.name.into(),
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

/// What was promised; a dash for nothing.
pub fn goal(goal: Goal) -> String {
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
pub fn summary(findings: &[Finding]) -> String {
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
