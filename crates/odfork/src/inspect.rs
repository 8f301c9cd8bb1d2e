//! Inspecting the program's code, step by step, while the price of the pass allows it.
//!
//! Owns the step `code`. Runs in the helper task: code that is unmapped or cut off meanwhile ends
//! the helper, and the process stays as it was. How far it came is in the results; a later pass
//! goes on from there. Code loaded since the last pass is found like any other.

use odfork_model::Trial;

use crate::code::{unseen, Code, Unseen, BEFORE};
use crate::reason::{Done, Reason, Stop};
use crate::scan::Subject;
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::now_ns;

/// Bytes searched between two looks at the clock.
const PART: usize = 256 << 10;

/// Searches what was not searched before, at least a part of it: on a slow machine a slice may be
/// over when it begins.
pub fn inspect(s: &mut Scratch, subject: &Subject, trial: Trial) -> Done<()> {
    s.kernel.enter(Step::Code);
    let mut is_first = true;
    for i in 0..s.code().len() {
        let Some(&code) = s.code().get(i) else { break };
        let from = subject.searched.reached(&code);
        if from < code.end && !s.results.has_inspected_room() {
            return Err(Stop::of(Reason::Price));
        }
        let (reached, done) = search(s, &code, from, subject.sanitizer, || {
            core::mem::take(&mut is_first) || trial.affords(now_ns())
        });
        if reached > from {
            s.results.note_inspected(&Code { end: reached, ..code });
        }
        done?;
    }
    Ok(())
}

/// Searches one mapping from there on; tells how far it came. What a sanitizer's runtime does in
/// `known` frozen memory does not hear of; live memory would.
fn search(
    s: &Scratch,
    code: &Code,
    from: usize,
    known: [usize; 2],
    mut may_go_on: impl FnMut() -> bool,
) -> (usize, Done<()>) {
    let mut at = from;
    while at < code.end {
        if !may_go_on() {
            return (at, Err(Stop::of(Reason::Price)));
        }
        if known[0] <= at && at < known[1] {
            s.results.report.unfit.set(1);
            at = known[1].min(code.end);
            continue;
        }
        let (least, most) = match at < known[0] {
            true => (code.start, known[0].min(code.end)),
            false => (code.start.max(known[1]), code.end),
        };
        let end = (at + PART).min(most);
        let begin = at.saturating_sub(BEFORE + 2).max(least);
        // SAFETY: readable program memory, of a mapping seen just now; nobody writes to code that
        // is mapped read-only. If it is gone by now this task ends, and no other.
        let part = unsafe { core::slice::from_raw_parts(begin as *const u8, end - begin) };
        match unseen(part) {
            Unseen::Nothing => {}
            Unseen::Unfit => s.results.report.unfit.set(1),
            Unseen::Keeps => {
                s.results.report.unfit.set(1);
                s.results.report.keeps.set(1);
            }
            Unseen::Gives => return (at, Err(Stop::of(Reason::RawCalls))),
        }
        at = end;
    }
    (at, Ok(()))
}
