//! The judgement of one run: against its header, its statistics and the run under stock fork.
//!
//! Owns: what counts as a pass. A run that passes its own checks but never froze anything is a
//! failure (it would show nothing), and so is one that says more or less than it says on stock.

use serde_json::Value;

use crate::header::{Expect, Header};
use crate::mode::Mode;
use crate::run::Outcome;

/// Exit status by which a program says it cannot run here; the reason is on its stdout.
pub const SKIP_STATUS: i32 = 77;

/// What became of a trial.
#[derive(Debug)]
pub enum Verdict {
    Pass,
    Skip(String),
    Fail(String),
}

/// Judges a run of stock fork, or the program's own half of any run.
pub fn judge_alone(outcome: &Outcome, header: &Header) -> Verdict {
    if outcome.code() == Some(SKIP_STATUS) {
        let text = String::from_utf8_lossy(&outcome.stdout);
        let line = text.lines().find(|l| l.starts_with("SKIP:"));
        return Verdict::Skip(line.unwrap_or("SKIP: no reason given").to_string());
    }
    let mut wrong = Vec::new();
    if outcome.code() != Some(header.exit) {
        wrong.push(format!("the program {} (want {})", outcome.ending(), header.exit));
    }
    wrong.extend(outcome.litter.iter().cloned());
    finish(wrong, outcome)
}

/// Judges a run with the library loaded; `stock` is the same program without it.
pub fn judge(outcome: &Outcome, stock: &Outcome, header: &Header, mode: Mode) -> Verdict {
    match judge_alone(outcome, header) {
        Verdict::Pass => {}
        other => return other,
    }
    let mut wrong = Vec::new();
    if header.same_output {
        wrong.extend(differing("stdout", &outcome.stdout, &stock.stdout));
        wrong.extend(differing("stderr", &outcome.stderr, &stock.stderr));
    }
    let expect = header.expect_in(mode);
    wrong.extend(check_stats(outcome.stats.as_ref(), &expect, mode).err());
    finish(wrong, outcome)
}

/// Checks what the statistics show against what the header expects.
pub fn check_stats(stats: Option<&Value>, expect: &Expect, mode: Mode) -> Result<(), String> {
    if *expect == Expect::Any {
        return Ok(());
    }
    let stats = stats.ok_or("no statistics were written: was the library loaded?")?;
    let freezes = number(stats, "/freeze/count");
    let folds = number(stats, "/fold/in_place") + number(stats, "/fold/rebuilt");
    let reasons = fallback_reasons(stats);
    match expect {
        Expect::Plain(reason) => {
            if freezes != 0 {
                return Err(format!(
                    "froze {freezes} times, want plain fork because of '{reason}'"
                ));
            }
            if !reasons.contains(reason) {
                return Err(format!("fallback '{reason}' is not recorded, only {reasons:?}"));
            }
        }
        _ => {
            // Nothing is held by ptrace there, and an ordinary user has no userfaultfd.
            let held = !cfg!(target_arch = "aarch64") || !mode.unprivileged();
            if freezes == 0 && !held && reasons.iter().any(|reason| reason == "threads") {
                return Ok(());
            }
            if freezes == 0 {
                return Err("nothing was frozen, so the run shows nothing".into());
            }
            let lenient = matches!(expect, Expect::Froze | Expect::Shared);
            if !reasons.is_empty() && !lenient {
                return Err(format!("fell back: {reasons:?}"));
            }
            if *expect == Expect::Shared && number(stats, "/live/switches") == 0 {
                return Err("nothing was live, so the run shows nothing".into());
            }
            // Live memory stays clean: there is nothing to fold.
            let clean = mode == Mode::Live && number(stats, "/live/switches") > 0;
            if *expect == Expect::Fold && folds == 0 && !clean {
                return Err("nothing was folded, so the run shows nothing".into());
            }
            check_engine(stats, mode)?;
        }
    }
    Ok(())
}

/// The image must be of the kind asked for; at its end a process may hold nothing frozen any more.
fn check_engine(stats: &Value, mode: Mode) -> Result<(), String> {
    let engine = stats.pointer("/engine").and_then(Value::as_str);
    let engine = engine.unwrap_or("not said");
    let want = match mode {
        Mode::Huge | Mode::Live => "huge",
        Mode::Small => "small",
        _ => return Ok(()),
    };
    let emptied = engine == "plain" && number(stats, "/frozen_bytes") == 0;
    if engine == want || emptied {
        Ok(())
    } else {
        Err(format!("engine is {engine}, want {want}"))
    }
}

/// A number of the statistics; 0 when it is not there.
pub fn number(stats: &Value, pointer: &str) -> u64 {
    stats.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn fallback_reasons(stats: &Value) -> Vec<String> {
    let list = stats.pointer("/fallbacks").and_then(Value::as_array);
    let reasons = list.into_iter().flatten();
    reasons.filter_map(|f| f.get("reason")?.as_str().map(str::to_string)).collect()
}

/// Where two outputs part, with the two lines; none when they are equal.
fn differing(what: &str, ours: &[u8], stock: &[u8]) -> Option<String> {
    if ours == stock {
        return None;
    }
    let (ours, stock) = (String::from_utf8_lossy(ours), String::from_utf8_lossy(stock));
    let (mut a, mut b) = (ours.lines(), stock.lines());
    for line in 1.. {
        let (ours, stock) = (a.next(), b.next());
        if ours != stock || ours.is_none() {
            return Some(format!(
                "{what} differs from stock at line {line}:\n  stock: {}\n  here:  {}",
                stock.unwrap_or("(end)"),
                ours.unwrap_or("(end)")
            ));
        }
    }
    None
}

/// A pass when nothing is wrong, else everything one needs to see.
fn finish(wrong: Vec<String>, outcome: &Outcome) -> Verdict {
    if wrong.is_empty() {
        return Verdict::Pass;
    }
    let mut text = wrong.join("\n");
    for (name, bytes) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if !bytes.is_empty() {
            text.push_str(&format!("\n-- {name}:\n{}", tail(bytes)));
        }
    }
    if let Some(stats) = &outcome.stats {
        text.push_str(&format!("\n-- statistics: {stats}"));
    }
    Verdict::Fail(text)
}

/// The last 40 lines.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stats(freezes: u64, folds: u64, fallbacks: &[&str]) -> Value {
        let list: Vec<Value> = fallbacks.iter().map(|r| json!({ "reason": r })).collect();
        json!({"engine": "huge", "freeze": {"count": freezes},
               "fold": {"in_place": 0, "rebuilt": folds}, "fallbacks": list})
    }

    #[test]
    fn a_run_that_froze_nothing_is_no_pass() {
        let ok = |s: Value, e: Expect| check_stats(Some(&s), &e, Mode::Huge).is_ok();
        assert!(ok(stats(1, 0, &[]), Expect::Frozen));
        assert!(ok(stats(1, 0, &["traced"]), Expect::Froze));
        assert!(!ok(stats(0, 0, &["traced"]), Expect::Froze));
        assert!(!ok(stats(0, 0, &[]), Expect::Frozen));
        assert!(!ok(stats(1, 0, &["memory"]), Expect::Frozen));
        assert!(!ok(stats(1, 0, &[]), Expect::Fold));
        assert!(ok(stats(1, 2, &[]), Expect::Fold));
        assert!(ok(stats(0, 0, &["threads"]), Expect::Plain("threads".into())));
        assert!(!ok(stats(1, 0, &["threads"]), Expect::Plain("threads".into())));
        assert!(!ok(stats(0, 0, &[]), Expect::Plain("threads".into())));
        assert!(check_stats(None, &Expect::Any, Mode::Huge).is_ok());
        assert!(check_stats(None, &Expect::Frozen, Mode::Huge).is_err());
    }

    #[test]
    fn the_engine_must_be_the_one_asked_for() {
        let got = stats(1, 0, &[]);
        assert!(check_stats(Some(&got), &Expect::Frozen, Mode::Small).is_err());
        assert!(check_stats(Some(&got), &Expect::Frozen, Mode::User).is_ok());
    }

    #[test]
    fn the_first_differing_line_is_shown() {
        let text = differing("stdout", b"a\nb\n", b"a\nc\n").unwrap();
        assert!(text.contains("line 2"), "{text}");
        assert!(differing("stdout", b"a", b"a").is_none());
        assert!(differing("stdout", b"a\n", b"a").is_some());
    }
}
