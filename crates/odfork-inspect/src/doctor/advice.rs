//! One recommendation from the facts, by rules in a fixed order. Pure.
//!
//! The first rule that fits speaks. Whatever costs little comes first: nobody should change a
//! program for nothing.

use serde::{Deserialize, Serialize};

use super::fork_statistics::Fates;
use odfork_proc::text::time;

/// A fork below this is cheap: starting even a small program takes about as long.
const CHEAP_NS: f64 = 1e6;
/// From this share on, children "only exec".
const MOSTLY: f64 = 0.9;
/// An engine that does not halve the time is not worth a word.
const WORTH: f64 = 2.0;

/// What the rules decide by.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// A process that runs already, and cannot be given a library any more.
    pub running: bool,
    /// The words after `odfork run --`.
    pub command: String,
    pub now_ns: f64,
    /// With 4 KB pages and nothing frozen.
    pub plain_ns: f64,
    pub thp_ns: f64,
    pub image_ns: f64,
    /// Memory whose entries fork copies.
    pub bytes: u64,
    pub huge_share: f64,
    pub loaded: bool,
    pub frozen: bool,
    /// Why odfork cannot help, and what would change that.
    pub obstacle: Option<(String, String)>,
    pub seen: Option<Seen>,
}

/// What was observed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub seconds: f64,
    pub forks: Fates,
    pub lent: u64,
    /// It was still there at the end.
    pub alive: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The rule's name, for programs.
    pub rule: &'static str,
    pub text: String,
}

/// The recommendation.
pub fn recommend(facts: &Facts) -> Advice {
    let rules = [frozen, cheap, never, lent, only_exec, obstacle, loaded, little];
    let found = rules.iter().find_map(|rule| rule(facts));
    let (rule, text) = found.unwrap_or_else(|| ("run", run_it(facts)));
    Advice { rule, text }
}

/// A rule's name and what it says; None when it does not apply.
type Rule = Option<(&'static str, String)>;

fn frozen(facts: &Facts) -> Rule {
    let (now, plain) = (time(facts.now_ns), time(facts.plain_ns));
    if !facts.frozen {
        None
    } else if facts.now_ns * WORTH < facts.plain_ns {
        let text = format!("It is frozen already: fork takes about {now} instead of {plain}.");
        Some(("frozen", text))
    } else {
        let why = "most of it was rewritten since or cannot be frozen";
        let text = format!("It is frozen, but fork takes about {now} of {plain}: {why}.");
        Some(("frozen-worn", text))
    }
}

fn cheap(facts: &Facts) -> Rule {
    let (now, size) = (time(facts.now_ns), bytes(facts.bytes));
    let huge = if facts.huge_share > 0.5 { ", most of it in huge pages" } else { "" };
    let text = format!("Fork is already cheap ({now} for {size}{huge}); nothing to gain.");
    (facts.now_ns < CHEAP_NS).then_some(("cheap", text))
}

fn never(facts: &Facts) -> Rule {
    let seen = facts.seen.filter(|seen| seen.forks.total() + seen.lent == 0)?;
    let mut text = "It never forked".to_owned();
    if seen.alive {
        let seconds = seen.seconds;
        text += &format!(" in the {seconds:.1} s observed; observe longer with --for SECONDS");
    }
    text += &format!(". A fork would take about {}", time(facts.now_ns));
    if facts.obstacle.is_none() && helps(facts, facts.image_ns) {
        text += &format!(", and about {} under `odfork run`", time(facts.image_ns));
    }
    Some(("never-forks", text + "."))
}

fn lent(facts: &Facts) -> Rule {
    let seen = facts.seen.filter(|seen| seen.forks.total() == 0)?;
    let text = format!(
        "All its {} children were made by vfork-class calls (vfork, posix_spawn), which copy no \
         memory; nothing to gain.",
        seen.lent
    );
    Some(("vfork-class", text))
}

fn only_exec(facts: &Facts) -> Rule {
    let forks = facts.seen?.forks;
    let (execs, all) = (forks.execs, forks.total());
    if (execs as f64) < MOSTLY * all as f64 {
        return None;
    }
    let which = if execs == all { format!("all {all}") } else { format!("{execs} of {all}") };
    let now = time(facts.now_ns);
    let spawn = format!(
        "Its children only exec ({which}): use posix_spawn or vfork, which copy nothing; each fork \
         takes about {now}."
    );
    let without = if facts.obstacle.is_none() && helps(facts, facts.image_ns) {
        let (start, image) = (start(facts), time(facts.image_ns));
        format!(
            " Where the program cannot be changed, {start} brings about {image}; it does not help \
             more than that."
        )
    } else {
        thp(facts)
    };
    Some(("only-exec", spawn + &without))
}

fn obstacle(facts: &Facts) -> Rule {
    let (why, change) = facts.obstacle.as_ref()?;
    let change = if change.is_empty() { String::new() } else { format!(" ({change})") };
    let hint = thp(facts);
    Some(("cannot", format!("It cannot be accelerated because it {why}{change}.{hint}")))
}

fn loaded(facts: &Facts) -> Rule {
    let (now, image) = (time(facts.now_ns), time(facts.image_ns));
    let text = format!(
        "libodfork.so is loaded and nothing is frozen yet: it freezes once its forks have cost as \
         much as freezing does, or at the first one with ODFORK_FREEZE=eager. Fork then takes \
         about {image} instead of {now}."
    );
    facts.loaded.then_some(("loaded", text))
}

fn little(facts: &Facts) -> Rule {
    let (now, image, hint) = (time(facts.now_ns), time(facts.image_ns), thp(facts));
    let text = format!(
        "odfork could freeze too little of its memory: fork would still take about {image} of \
         {now}.{hint}"
    );
    (!helps(facts, facts.image_ns)).then_some(("little-to-freeze", text))
}

fn run_it(facts: &Facts) -> String {
    let (now, image) = (time(facts.now_ns), time(facts.image_ns));
    let start = start(facts);
    // The sentence begins with it: its first letter is ASCII.
    let (first, rest) = (start[..1].to_uppercase(), &start[1..]);
    format!("{first}{rest}: fork would take about {image} instead of {now}.")
}

fn helps(facts: &Facts, with_ns: f64) -> bool {
    with_ns * WORTH < facts.now_ns
}

fn start(facts: &Facts) -> String {
    let again = if facts.running { "starting it again with" } else { "running it with" };
    format!("{again} `odfork run -- {}`", facts.command)
}

fn thp(facts: &Facts) -> String {
    if facts.huge_share > 0.5 || !helps(facts, facts.thp_ns) {
        return String::new();
    }
    let (now, thp) = (time(facts.now_ns), time(facts.thp_ns));
    format!(
        " Huge pages (THP) would bring {now} to {thp}: madvise(MADV_HUGEPAGE) in the program, or \
         /sys/kernel/mm/transparent_hugepage/enabled set to always."
    )
}

/// Bytes with three digits and a fitting unit.
pub fn bytes(count: u64) -> String {
    let (value, unit) = match count as f64 {
        n if n < 1024.0 * 1024.0 => (n / 1024.0, "KB"),
        n if n < 1024.0 * 1024.0 * 1024.0 => (n / (1024.0 * 1024.0), "MB"),
        n => (n / (1024.0 * 1024.0 * 1024.0), "GB"),
    };
    if value == 0.0 {
        return "0".to_owned();
    }
    format!("{} {unit}", odfork_proc::text::digits(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Facts {
        Facts {
            running: true,
            command: "server --big".into(),
            now_ns: 120e6,
            plain_ns: 120e6,
            thp_ns: 4e6,
            image_ns: 0.1e6,
            bytes: 8 << 30,
            seen: Some(Seen {
                seconds: 5.0,
                forks: Fates { lives: 2, exits: 2, ..Fates::default() },
                lent: 0,
                alive: true,
            }),
            ..Facts::default()
        }
    }

    fn seen(facts: &Facts, forks: Fates, lent: u64) -> Facts {
        let seen = Seen { forks, lent, ..facts.seen.unwrap() };
        Facts { seen: Some(seen), ..facts.clone() }
    }

    fn says(facts: &Facts, rule: &str, words: &[&str]) {
        let advice = recommend(facts);
        assert_eq!(advice.rule, rule, "{}", advice.text);
        for word in words {
            assert!(advice.text.contains(word), "{word}: {}", advice.text);
        }
        assert!(!advice.text.contains('\n'));
    }

    #[test]
    fn a_large_process_that_copies_itself_is_to_be_run_with_odfork() {
        let words =
            ["Starting it again with `odfork run -- server --big`", "100 us instead of 120 ms"];
        says(&large(), "run", &words);
        says(&Facts { running: false, ..large() }, "run", &["Running it with"]);
        says(&Facts { seen: None, ..large() }, "run", &[]);
    }

    #[test]
    fn children_that_only_exec_are_to_be_spawned() {
        let execs = |execs, exits| Fates { execs, exits, ..Fates::default() };
        let words = ["all 9", "posix_spawn", "does not help more"];
        says(&seen(&large(), execs(9, 0), 3), "only-exec", &words);
        says(&seen(&large(), execs(9, 1), 0), "only-exec", &["9 of 10"]);
        says(&seen(&large(), execs(8, 2), 0), "run", &[]);
        let barred = Facts { obstacle: Some(("is static".into(), String::new())), ..large() };
        says(&seen(&barred, execs(9, 0), 0), "only-exec", &["THP", "120 ms to 4.00 ms"]);
    }

    #[test]
    fn what_is_cheap_or_never_happens_needs_nothing() {
        let small = Facts { now_ns: 0.3e6, bytes: 12 << 20, ..large() };
        says(&small, "cheap", &["300 us for 12.0 MB", "nothing to gain"]);
        let none = seen(&large(), Fates::default(), 0);
        says(&none, "never-forks", &["in the 5.0 s observed", "--for", "120 ms", "odfork run"]);
        let mut ended = none.clone();
        ended.seen.as_mut().unwrap().alive = false;
        says(&ended, "never-forks", &["It never forked."]);
        says(&seen(&large(), Fates::default(), 7), "vfork-class", &["All its 7"]);
    }

    #[test]
    fn an_obstacle_is_named_and_huge_pages_offered() {
        let barred = Some(("is a Go program".to_owned(), "use another".to_owned()));
        let go = Facts { obstacle: barred, ..large() };
        says(&go, "cannot", &["because it is a Go program (use another)", "120 ms to 4.00 ms"]);
        let huge = recommend(&Facts { huge_share: 0.9, ..go });
        assert!(!huge.text.contains("THP"), "{}", huge.text);
    }

    #[test]
    fn what_odfork_has_done_is_seen() {
        let frozen = Facts { frozen: true, loaded: true, now_ns: 0.1e6, ..large() };
        says(&frozen, "frozen", &["frozen already", "100 us instead of 120 ms"]);
        says(&Facts { now_ns: 90e6, ..frozen }, "frozen-worn", &["rewritten"]);
        says(&Facts { loaded: true, ..large() }, "loaded", &["ODFORK_FREEZE=eager"]);
        says(
            &Facts { image_ns: 100e6, ..large() },
            "little-to-freeze",
            &["100 ms of 120 ms", "THP"],
        );
    }

    #[test]
    fn amounts_have_their_unit() {
        assert_eq!([0, 2048, 12 << 20, 3 << 30].map(bytes), ["0", "2.00 KB", "12.0 MB", "3.00 GB"]);
    }
}
