//! The page: front matter, chapters, style; one file without anything outside.
//!
//! Owns the order of the report and the words that belong to no chapter: environment, method,
//! configurations, what is missing. The theme follows the system; three radio buttons and `:has()`
//! override it without a script.

use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde_json::Value;

use crate::blocks::{Block, Chapter, Table};
use crate::chapters::PLANS;
use crate::colour;
use odfork_proc::text::date;
use odfork_samples::samples::Recording;
use odfork_samples::unit::{digits, Unit};

/// All that a report says.
#[derive(Debug)]
pub struct Page<'a> {
    pub recordings: &'a [Recording],
    pub chapters: &'a [Chapter],
    /// Files that could not be read, in one line each.
    pub remarks: &'a [String],
}

impl Page<'_> {
    pub fn html(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                (head())
                body {
                    // First, so that `:has()` and keyboards reach them.
                    fieldset.theme {
                        legend { "Colours" }
                        @for name in ["auto", "light", "dark"] {
                            label {
                                input type="radio" name="theme" id={ "theme-" (name) }
                                    checked[name == "auto"];
                                (name)
                            }
                        }
                    }
                    header {
                        h1 { "What fork costs: measured and published" }
                        p {
                            "Each chapter repeats a published measurement on this machine, with \
                             stock fork and with odfork, and shows both beside each other."
                        }
                        @for remark in self.remarks {
                            (Block::Warning(format!(
                                "Not all could be read: {}",
                                remark.rsplit('/').next().unwrap_or(remark)
                            )))
                        }
                        (self.contents())
                    }
                    main {
                        section #summary .front {
                            h2 { "Summary" }
                            (self.summary()) (self.missing())
                        }
                        section #environment { h2 { "Environment" } (self.environment()) }
                        section #method {
                            h2 { "Method" }
                            @for sentence in METHOD { p { (sentence) } }
                        }
                        section #configurations { h2 { "Configurations" } (configurations()) }
                        @for chapter in self.chapters { (section(chapter)) }
                    }
                    footer { p {
                        "Made by odfork report " (env!("CARGO_PKG_VERSION"))
                        " from the samples beside it. Published figures belong to their authors; \
                         sources stand with each."
                    } }
                }
            }
        }
    }

    fn contents(&self) -> Markup {
        let front = ["Summary", "Environment", "Method", "Configurations"];
        html! {
            nav aria-label="Contents" { ul {
                @for title in front { li { a href={ "#" (title.to_lowercase()) } { (title) } } }
                @for chapter in self.chapters {
                    li { a href={ "#" (chapter.id) } { (chapter.title) } }
                }
            } }
        }
    }

    fn summary(&self) -> Markup {
        let row = |chapter: &Chapter| {
            let ours: Vec<String> = chapter
                .content
                .headlines
                .iter()
                .map(|(what, value)| format!("{what}: {value}"))
                .collect();
            let ours = if ours.is_empty() { "–".into() } else { ours.join("\n") };
            vec![chapter.title.clone(), ours, chapter.published.clone()]
        };
        let head = ["experiment", "ours (95 % interval)", "published"];
        // Never folded: it is what a reader comes for.
        Table::new("Headline of each experiment", &head, 3)
            .with(self.chapters.iter().map(row))
            .open()
    }

    fn missing(&self) -> Table {
        let measured = |name: &str| self.recordings.iter().any(|r| r.experiment() == name);
        let absent = PLANS.iter().filter(|plan| !measured(plan.name));
        Table::new("Not measured yet", &["experiment", "command"], 2)
            .with(absent.map(|plan| [plan.title, plan.command].map(String::from).to_vec()))
    }

    /// Machines of all files; files of the same machine share an entry.
    fn environment(&self) -> Markup {
        let mut seen: Vec<(String, Vec<&str>)> = Vec::new();
        for recording in self.recordings {
            let unknown = || html! { p { "unknown: the line that describes the run is missing" } };
            let text =
                recording.run.as_ref().map_or_else(unknown, |run| machine(&run.environment)).0;
            match seen.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(recording.experiment()),
                None => seen.push((text, vec![recording.experiment()])),
            }
        }
        let runs = Table::new("Runs", &RUN_HEAD, 4).with(self.recordings.iter().map(run_row));
        html! {
            @for (text, names) in &seen {
                @if seen.len() > 1 { h3 { (names.join(", ")) } }
                (PreEscaped(text))
            }
            (runs.open())
        }
    }
}

const RUN_HEAD: [&str; 10] = [
    "experiment",
    "effort",
    "configurations",
    "date (UTC)",
    "seed",
    "samples",
    "seconds",
    "load",
    "available",
    "state",
];

fn run_row(recording: &Recording) -> Vec<String> {
    let run = recording.run.as_ref();
    let state = match &recording.end {
        None => "incomplete",
        Some(end) if end.interrupted => "interrupted",
        Some(end) if !end.wrongs.is_empty() => "wrong content",
        Some(_) if recording.damage.is_some() => "damaged",
        Some(_) => "complete",
    };
    let at_start = |key: &str| {
        let value = run.and_then(|run| run.environment.get(key));
        value.map_or("–".into(), |value| fact(key, value))
    };
    vec![
        recording.experiment().into(),
        run.map_or("–".into(), |run| run.effort.clone()),
        run.map_or("–".into(), |run| run.engines.join(", ")),
        at_start("unix_seconds"),
        run.map_or("–".into(), |run| run.seed.to_string()),
        digits(recording.samples.len() as f64),
        recording.end.as_ref().map_or("–".into(), |end| digits(end.seconds.round())),
        at_start("load"),
        at_start("available_bytes"),
        state.into(),
    ]
}

/// Facts of the moment, which the table of runs shows: the rest is the machine.
const OF_THE_MOMENT: [&str; 3] = ["available_bytes", "load", "unix_seconds"];

const FACTS: [(&str, &str); 10] = [
    ("kernel", "Kernel"),
    ("cpu", "Processor"),
    ("cores", "Processors to use"),
    ("memory_bytes", "Memory"),
    ("thp", "Transparent huge pages"),
    ("shmem_thp", "… for shared memory"),
    ("kernel_engine", "Forks share page tables"),
    ("virtualised", "Virtualised"),
    ("user_id", "User id"),
    ("version", "odfork"),
];

/// The known facts in words; others by their name, so that nothing recorded is hidden.
fn machine(environment: &Value) -> Markup {
    let Some(facts) = environment.as_object() else { return html! { p { "unknown" } } };
    let known = FACTS
        .iter()
        .filter_map(|(key, name)| Some((name.to_string(), fact(key, facts.get(*key)?))));
    let other =
        |key: &str| !FACTS.iter().any(|(name, _)| *name == key) && !OF_THE_MOMENT.contains(&key);
    let others = facts.iter().filter(|(key, _)| other(key));
    let others = others.map(|(key, value)| (key.replace('_', " "), fact(key, value)));
    html! { dl { @for (name, text) in known.chain(others) { dt { (name) } dd { (text) } } } }
}

fn fact(key: &str, value: &Value) -> String {
    match (key, value) {
        ("unix_seconds", value) => date(value.as_u64().unwrap_or(0)),
        ("user_id", value) if value.as_u64() == Some(0) => "0 (root)".into(),
        (key, value) if key.ends_with("_bytes") => {
            Unit::Bytes.write(value.as_f64().unwrap_or(f64::NAN))
        }
        (_, Value::String(text)) => text.clone(),
        (_, Value::Bool(yes)) => if *yes { "yes" } else { "no" }.into(),
        (_, other) => other.to_string(),
    }
}

const METHOD: [&str; 6] = [
    "Interleaving: configurations are measured in turns within one run; the samples of a round \
     are taken next to each other, in random order. Ratios are formed between samples of the \
     same round, so what slows the whole machine cancels. Figures of different runs are not \
     divided by each other.",
    "Warm-up: memory is filled with a pattern before anything is measured, and the first fork \
     of a process, which contains one-time work, is not counted.",
    "Statistics: medians. Intervals hold 95 % of the medians of 2,000 resamples (bootstrap); \
     below three samples no interval is given. The resampling is seeded: the same samples give \
     the same report.",
    "Outliers are kept. Every raw sample is a faint dot, axes span them all, and medians bear \
     them.",
    "Harness: the configuration null does everything but the measured thing. Its share of the \
     smallest figure is told in each chapter.",
    "Published figures are hollow marks or tables beside ours. They come from other machines, \
     other kernels and other decades: ratios and shapes can be compared, absolute times \
     rarely.",
];

fn configurations() -> Table {
    let rows = [
        ("plain", "stock fork, pages of 4 KB (MADV_NOHUGEPAGE), nothing preloaded"),
        ("thp", "stock fork, transparent huge pages asked for (MADV_HUGEPAGE)"),
        ("hugetlb", "stock fork, explicit huge pages of 2 MB (MAP_HUGETLB)"),
        (
            "image",
            "odfork: libodfork.so is preloaded and the memory is frozen in an image; the \
             kernel's fork is stock",
        ),
        (
            "kernel",
            "on-demand-fork: the process asks a kernel with the patches to share page \
             tables at fork; nothing preloaded, pages of 4 KB",
        ),
        ("null", "the harness alone: everything but the measured thing"),
    ];
    Table::new("Configurations", &["configuration", "what it is"], 2)
        .with(rows.map(|(configuration, what)| vec![configuration.into(), what.into()]))
}

fn section(chapter: &Chapter) -> Markup {
    html! {
        section id=(chapter.id) {
            h2 { (chapter.title) }
            p.question { (chapter.question) }
            @for block in &chapter.content.blocks { (block) }
        }
        "\n"
    }
}

fn head() -> Markup {
    let (light, dark) = colour::variables();
    let style = format!(
        ":root{{color-scheme:light;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root:not(:has(#theme-light:checked)){{\
         color-scheme:dark;{dark}}}}}\n\
         :root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}\n\
         @media print{{:root:root:root{{color-scheme:light;{light}}}}}\n{}",
        include_str!("style.css"),
    );
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { "What fork costs" }
            link rel="icon" href="data:,";
            style { (PreEscaped(style)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_worded_and_escaped_and_none_is_hidden() {
        let environment = serde_json::json!({
            "kernel": "6.18<x>", "memory_bytes": 1073741824u64, "user_id": 0,
            "new_fact": "here", "virtualised": true
        });
        let html = machine(&environment).0;
        for part in
            ["6.18&lt;x&gt;", "1 GB", "0 (root)", "new fact", "<dd>here</dd>", "<dd>yes</dd>"]
        {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(machine(&Value::Null).0, "<p>unknown</p>");
    }

    #[test]
    fn what_was_not_measured_is_named_with_its_command() {
        let page =
            Page { recordings: &[], chapters: &[], remarks: &["/a/b/c.jsonl: <broken>".into()] };
        let html = page.html().0;
        for plan in PLANS.iter() {
            assert!(html.contains(plan.command), "{}", plan.command);
        }
        assert!(html.contains("c.jsonl: &lt;broken&gt;") && !html.contains("/a/b/"));
    }
}
