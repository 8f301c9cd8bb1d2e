//! The page: front matter, chapters, style; one file without anything outside.
//!
//! Owns the order of the report and the words that belong to no chapter: environment, method, engines, what is
//! missing. The theme follows the system; three radio buttons and `:has()` override it without a script.

use serde_json::Value;

use super::blocks::{Block, Table};
use super::chapters::{Chapter, PLANS};
use super::colour;
use super::svg::escape;
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
    pub fn html(&self) -> String {
        let mut out = opening();
        out += "<header><h1>What fork costs: measured and published</h1>\n";
        out += &Block::Text("Each chapter repeats a published measurement on this machine, with stock fork and with odfork, and shows both beside each other.".into()).html();
        for remark in self.remarks {
            let remark = remark.rsplit('/').next().unwrap_or(remark);
            out += &Block::Warning(format!("Not all could be read: {remark}")).html();
        }
        out += &self.contents();
        out += "</header>\n<main>\n";
        out += &format!(
            "<section id=\"summary\" class=\"front\"><h2>Summary</h2>\n{}{}</section>\n",
            self.summary(),
            self.missing()
        );
        out += &format!(
            "<section id=\"environment\"><h2>Environment</h2>\n{}</section>\n",
            self.environment()
        );
        out += &format!("<section id=\"method\"><h2>Method</h2>\n{}</section>\n", method());
        out += &format!("<section id=\"engines\"><h2>Engines</h2>\n{}</section>\n", engines());
        out += &self.chapters.iter().map(chapter).collect::<String>();
        out += "</main>\n<footer><p>Made by odfork report ";
        out += env!("CARGO_PKG_VERSION");
        out + " from the samples beside it. Published figures belong to their authors; sources stand with each.</p></footer>\n</body>\n</html>\n"
    }

    fn contents(&self) -> String {
        let entry = |chapter: &Chapter| {
            format!("<li><a href=\"#{}\">{}</a></li>", escape(&chapter.id), escape(&chapter.title))
        };
        let entries: String = self.chapters.iter().map(entry).collect();
        format!(
            "<nav aria-label=\"Contents\"><ul><li><a href=\"#summary\">Summary</a></li><li><a href=\"#environment\">Environment</a></li>\
             <li><a href=\"#method\">Method</a></li><li><a href=\"#engines\">Engines</a></li>{entries}</ul></nav>\n"
        )
    }

    fn summary(&self) -> String {
        let head = ["experiment", "row", "ours (95 % interval)", "published"];
        let mut table = Table::new("Headline of each experiment", &head, 4);
        for chapter in self.chapters {
            let line = |(what, value): &(String, String)| format!("{what}: {value}");
            let ours: Vec<String> = chapter.content.headlines.iter().map(line).collect();
            let ours = if ours.is_empty() { "–".into() } else { ours.join("\n") };
            table.rows.push(vec![
                chapter.title.clone(),
                chapter.row.clone(),
                ours,
                chapter.published.clone(),
            ]);
        }
        // Never folded: it is what a reader comes for.
        table.open_html()
    }

    fn missing(&self) -> String {
        let absent = |plan: &&super::chapters::Plan| {
            !self.recordings.iter().any(|r| r.experiment() == plan.name)
        };
        let mut table = Table::new("Not measured yet", &["experiment", "row", "command"], 3);
        table.rows = PLANS
            .iter()
            .filter(absent)
            .map(|plan| vec![plan.title.into(), plan.row.into(), plan.command.into()])
            .collect();
        Block::Table(table).html()
    }

    /// Machines of all files; files of the same machine share an entry.
    fn environment(&self) -> String {
        let mut seen: Vec<(String, Vec<&str>)> = Vec::new();
        for recording in self.recordings {
            let text = recording.run.as_ref().map_or_else(
                || "<p>unknown: the line that describes the run is missing</p>".into(),
                |run| machine(&run.environment),
            );
            match seen.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(recording.experiment()),
                None => seen.push((text, vec![recording.experiment()])),
            }
        }
        let many = seen.len() > 1;
        let entry = |(text, names): &(String, Vec<&str>)| {
            if many {
                format!("<h3>{}</h3>\n{text}", escape(&names.join(", ")))
            } else {
                text.clone()
            }
        };
        let efforts = Table {
            rows: self.recordings.iter().map(run_row).collect(),
            ..Table::new(
                "Runs",
                &[
                    "experiment",
                    "effort",
                    "engines",
                    "date (UTC)",
                    "seed",
                    "samples",
                    "seconds",
                    "load",
                    "available",
                    "state",
                ],
                4,
            )
        };
        seen.iter().map(entry).collect::<String>() + &efforts.open_html()
    }
}

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

/// The known facts in words; others by their name, so that nothing recorded is hidden.
fn machine(environment: &Value) -> String {
    let Some(facts) = environment.as_object() else { return "<p>unknown</p>".into() };
    let names = [
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
    let known = names
        .iter()
        .filter_map(|(key, name)| Some((name.to_string(), fact(key, facts.get(*key)?))));
    let others = facts.iter().filter(|(key, _)| {
        !names.iter().any(|(name, _)| name == key) && !OF_THE_MOMENT.contains(&key.as_str())
    });
    let others = others.map(|(key, value)| (key.replace('_', " "), fact(key, value)));
    let rows: String = known
        .chain(others)
        .map(|(name, text)| format!("<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&text)))
        .collect();
    format!("<dl>{rows}</dl>\n")
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

/// Days to a date after Howard Hinnant's civil_from_days: no time zone, no library.
fn date(unix_seconds: u64) -> String {
    let days = (unix_seconds / 86_400) as i64 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (unix_seconds % 86_400 / 3600, unix_seconds % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

fn method() -> String {
    let sentences = [
        "Interleaving: engines are measured in turns within one run; the samples of a round are taken next to each other, in random order. Ratios are formed between samples of the same round, so what slows the whole machine cancels. Figures of different runs are not divided by each other.",
        "Warm-up: memory is filled with a pattern before anything is measured, and the first fork of a process, which contains one-time work, is not counted.",
        "Statistics: medians. Intervals hold 95 % of the medians of 2,000 resamples (bootstrap); below three samples no interval is given. The resampling is seeded: the same samples give the same report.",
        "Outliers are kept. Every raw sample is a faint dot, axes span them all, and medians bear them.",
        "Harness: the engine null does everything but the measured thing. Its share of the smallest figure is told in each chapter.",
        "Published figures are hollow marks or tables beside ours. They come from other machines, other kernels and other decades: ratios and shapes can be compared, absolute times rarely.",
    ];
    sentences.iter().map(|text| Block::Text((*text).into()).html()).collect()
}

fn engines() -> String {
    let rows = [
        ("plain", "stock fork, pages of 4 KB (MADV_NOHUGEPAGE), nothing preloaded"),
        ("thp", "stock fork, transparent huge pages asked for (MADV_HUGEPAGE)"),
        ("hugetlb", "stock fork, explicit huge pages of 2 MB (MAP_HUGETLB)"),
        ("image", "odfork: libodfork.so is preloaded and the memory is frozen in an image; the kernel's fork is stock"),
        ("kernel", "on-demand-fork: the process asks a kernel with the patches to share page tables at fork; nothing preloaded, pages of 4 KB"),
        ("null", "the harness alone: everything but the measured thing"),
    ];
    let mut table = Table::new("Engines", &["engine", "what it is"], 2);
    table.rows = rows.iter().map(|(engine, what)| vec![(*engine).into(), (*what).into()]).collect();
    Block::Table(table).html()
}

fn chapter(chapter: &Chapter) -> String {
    let blocks: String = chapter.content.blocks.iter().map(Block::html).collect();
    format!(
        "<section id=\"{}\"><h2>{} <span class=\"row\">{}</span></h2>\n<p class=\"question\">{}</p>\n{blocks}</section>\n",
        escape(&chapter.id),
        escape(&chapter.title),
        escape(&chapter.row),
        escape(&chapter.question),
    )
}

/// Everything before the content; the radio buttons come first, so that `:has()` and keyboards reach them.
fn opening() -> String {
    let (light, dark) = colour::variables();
    let choices: String = [("auto", " checked"), ("light", ""), ("dark", "")]
        .iter()
        .map(|(name, checked)| format!("<label><input type=\"radio\" name=\"theme\" id=\"theme-{name}\"{checked}/>{name}</label>"))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>What fork costs</title>\n\
         <link rel=\"icon\" href=\"data:,\"/>\n<style>\n\
         :root{{color-scheme:light;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root:not(:has(#theme-light:checked)){{color-scheme:dark;{dark}}}}}\n\
         :root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}\n\
         @media print{{:root:root:root{{color-scheme:light;{light}}}}}\n{}</style>\n</head>\n<body>\n\
         <fieldset class=\"theme\"><legend>Colours</legend>{choices}</fieldset>\n",
        include_str!("style.css"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(951_782_400), "2000-02-29 00:00");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59");
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00");
    }

    #[test]
    fn facts_are_worded_and_escaped_and_none_is_hidden() {
        let environment = serde_json::json!({
            "kernel": "6.18<x>", "memory_bytes": 1073741824u64, "user_id": 0, "new_fact": "here", "virtualised": true
        });
        let html = machine(&environment);
        for part in
            ["6.18&lt;x&gt;", "1 GB", "0 (root)", "new fact", "<dd>here</dd>", "<dd>yes</dd>"]
        {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(machine(&Value::Null), "<p>unknown</p>");
    }

    #[test]
    fn what_was_not_measured_is_named_with_its_command() {
        let page =
            Page { recordings: &[], chapters: &[], remarks: &["/a/b/c.jsonl: <broken>".into()] };
        let html = page.html();
        for plan in PLANS {
            assert!(html.contains(plan.command), "{}", plan.command);
        }
        assert!(html.contains("c.jsonl: &lt;broken&gt;") && !html.contains("/a/b/"));
    }
}
