//! The report as text: short sections with aligned columns. Layout only; nothing is computed but shares.

use std::fmt::Write;

use super::advice::bytes;
use super::fork_statistics::{Fates, Summary};
use super::inspection::{Observation, Report};
use super::machine::Machine;
use super::price::{Prediction, Prices};
use super::subject::{printable, Subject};
use odfork_proc::text::time;

const WIDTH: usize = 100;
/// Makers listed; the rest is summed up.
const MAKERS: usize = 8;

/// A report about a process or a command.
pub fn lay_out(report: &Report) -> String {
    let mut text = String::new();
    if let Some(subject) = &report.subject {
        head(&mut text, report, subject);
        memory(&mut text, subject);
        page_tables(&mut text, subject);
        let shown = subject.map.as_ref().is_some_and(|map| map.is_frozen());
        engines(&mut text, report, shown);
    }
    if let Some(observation) = &report.observation {
        who_forks(&mut text, report, observation);
    }
    title(&mut text, "Recommendation");
    let advice = report.advice.as_ref().map_or("None: too little was seen.", |a| &a.text);
    wrap(&mut text, advice);
    for remark in &report.remarks {
        wrap(&mut text, &format!("Note: {remark}."));
    }
    text
}

fn title(text: &mut String, words: &str) {
    let _ = writeln!(text, "{}{words}", if text.is_empty() { "" } else { "\n" });
}

fn row(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "  {key:<20} {value}");
}

/// Paragraph of indented lines.
fn wrap(text: &mut String, words: &str) {
    let mut line = String::from(" ");
    for word in words.split_whitespace() {
        if line.len() > 1 && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

fn head(text: &mut String, report: &Report, subject: &Subject) {
    let status = &subject.status;
    let (name, command) = (printable(&subject.name), shortened(&subject.command));
    let of_command = if report.kind == "command" {
        ", the largest of the command when it forked or ended"
    } else {
        ""
    };
    let threads = if status.threads == 1 { "thread" } else { "threads" };
    let _ = writeln!(
        text,
        "Process {} ({name}), {} {threads}{of_command}: {command}",
        subject.pid, status.threads
    );
}

fn shortened(command: &str) -> String {
    match command.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &command[..at]),
        None => command.to_owned(),
    }
}

fn memory(text: &mut String, subject: &Subject) {
    let memory = &subject.memory;
    title(text, "Memory");
    row(text, "mapped", &bytes(memory.mapped));
    row(text, "resident", &bytes(memory.resident));
    let huge = match memory.huge_share() {
        Some(share) => format!(", {:.0} % in huge pages", share * 100.0),
        None => String::new(),
    };
    row(text, "anonymous private", &format!("{}{huge}", bytes(memory.anonymous)));
    row(text, "swapped", &bytes(memory.swapped));
    if let Some(map) = &subject.map {
        row(text, "odfork could freeze", &bytes(map.freezable.bytes()));
        if !map.kept.is_empty() {
            let kept: Vec<_> =
                map.kept.iter().map(|(why, count)| format!("{why} {}", bytes(*count))).collect();
            row(text, "stays", &kept.join(", "));
        }
        if map.is_frozen() {
            let rewritten = bytes(map.image_rewritten);
            let image = bytes(map.image_bytes);
            row(
                text,
                "frozen",
                &format!("{image} in {} mappings, {rewritten} rewritten since", map.image_mappings),
            );
        } else if map.loaded {
            row(text, "frozen", "nothing yet; libodfork.so is loaded");
        }
    }
    for remark in &subject.remarks {
        wrap(text, remark);
    }
}

fn page_tables(text: &mut String, subject: &Subject) {
    let memory = &subject.memory;
    title(text, "Page tables");
    row(text, "size", &bytes(memory.page_tables));
    let huge = match memory.entries.huge {
        0 => String::new(),
        count => format!(" and {count} of 2 MB"),
    };
    let from = memory.source;
    row(text, "fork copies", &format!("{} entries of 4 KB{huge} ({from})", memory.entries.small));
}

fn engines(text: &mut String, report: &Report, frozen: bool) {
    title(text, "Fork now and with each engine (estimated, not measured)");
    if let Some(now) = report.now_ns {
        row(text, "now", &time(now));
    }
    for line in &report.predictions {
        let about = about(line, report, frozen);
        row(text, line.engine, &format!("{:<10} {about}", time(line.fork_ns)));
    }
    row(text, "figures", &report.prices.source);
}

fn about(line: &Prediction, report: &Report, frozen: bool) -> String {
    let offered = if line.offered { "" } else { "; this kernel is not one" };
    match line.engine {
        "plain" if frozen => "4 KB pages, nothing frozen".to_owned(),
        "plain" => "4 KB pages".to_owned(),
        "thp" => "transparent huge pages, as far as they can be had".to_owned(),
        "image" => match &report.eligibility.obstacle {
            Some(why) => format!("not possible: it {why}"),
            None if report.eligibility.program == "unknown" => {
                "odfork run; whether it can is not known".into()
            }
            None if report.kind == "process" && !frozen => {
                "odfork run, once frozen; only from the start of the program".into()
            }
            None => "odfork run, once frozen".into(),
        },
        _ => format!("kernel with on-demand-fork{offered}"),
    }
}

fn who_forks(text: &mut String, report: &Report, observation: &Observation) {
    let seen = &observation.seen;
    let by = if observation.method == "ptrace" { "by ptrace" } else { "by sampling /proc" };
    title(text, &format!("Who forks ({:.1} s observed {by})", observation.seconds));
    if let Some(reason) = &observation.reason {
        wrap(text, &format!("Sampled, so counts are lower bounds: {reason}."));
    }
    if !seen.calls.is_empty() {
        let calls: Vec<_> = seen.calls.iter().map(|(call, n)| format!("{call} {n}")).collect();
        row(text, "calls", &calls.join(", "));
    }
    if seen.processes == 0 {
        row(text, "processes made", "none");
    } else {
        makers(text, seen);
        shares(text, seen);
    }
    let end = match (&observation.status, observation.alive) {
        (Some(status), _) => Some(format!("ended with {status}")),
        (None, false) => Some("ended meanwhile".to_owned()),
        (None, true) if observation.interrupted => {
            Some("runs on; observing was interrupted".into())
        }
        (None, true) if report.kind == "command" => Some("runs on".into()),
        (None, true) => None,
    };
    if let Some(end) = end {
        row(text, report.kind, &end);
    }
}

fn makers(text: &mut String, seen: &Summary) {
    let _ = writeln!(
        text,
        "  {:<16} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "made by", "forks", "exec", "work", "exit", "live", "lent"
    );
    let line = |text: &mut String, name: &str, forks: &Fates, lent: u64| {
        let _ = writeln!(
            text,
            "  {name:<16} {:>7} {:>7} {:>7} {:>7} {:>7} {lent:>7}",
            forks.total(),
            forks.execs,
            forks.forks_then_execs,
            forks.exits,
            forks.lives,
        );
    };
    for maker in seen.makers.iter().take(MAKERS) {
        line(text, &printable(&maker.name), &maker.forks, maker.lent.total());
    }
    if seen.makers.len() > 1 {
        line(text, "all", &seen.forks, seen.lent.total());
    }
    wrap(
        text,
        "(exec: only execs; work: forks itself, then execs; exit: ends as it was born; live: still there; lent: by \
         vfork-class calls, no copy)",
    );
}

fn shares(text: &mut String, seen: &Summary) {
    let percent = |part: u64, all: u64| format!("{:.0} %", 100.0 * part as f64 / all.max(1) as f64);
    let (execs, all) = (seen.forks.execs + seen.lent.execs, seen.processes);
    let (copied, forks) = (seen.forks.execs, seen.forks.total());
    let of_copies = format!("of the forks that copy: {copied} of {forks}");
    row(
        text,
        "only exec",
        &format!("{} of all processes ({execs} of {all}); {of_copies}", percent(execs, all)),
    );
    if forks > 0 {
        let cost = time(seen.predicted_ns as f64);
        row(text, "forks cost", &format!("{cost} in all, estimated from memory at each"));
    }
    let (shells, all) = (seen.from_shells, seen.processes);
    row(
        text,
        "from shells",
        &format!("{} of all processes ({shells} of {all})", percent(shells, all)),
    );
    if let Some(seconds) = seen.until_exec_s {
        let faults =
            seen.faults_until_exec.map_or(String::new(), |n| format!(", {n:.0} page faults"));
        row(
            text,
            "from birth to exec",
            &format!("{} (median, observing included){faults}", time(seconds * 1e9)),
        );
    }
}

/// The report about the machine.
pub fn machine(machine: &Machine) -> String {
    let mut text = format!("{}\n", machine.summary);
    title(&mut text, "Fork by size and engine (estimated, not measured)");
    let _ = writeln!(
        text,
        "  {:<10} {:>10} {:>10} {:>10} {:>10}",
        "memory", "plain", "thp", "image", "kernel"
    );
    for line in &machine.sizes {
        let _ = write!(text, "  {:<10}", bytes(line.bytes));
        for prediction in &line.predictions {
            let _ = write!(text, " {:>10}", time(prediction.fork_ns));
        }
        text.push('\n');
    }
    figures(&mut text, &machine.prices);
    title(&mut text, "Largest processes that may be looked at");
    let _ = writeln!(
        text,
        "  {:>8} {:<16} {:>10} {:>12} {:>8} {:>10}",
        "process", "name", "anonymous", "page tables", "huge", "fork now"
    );
    for process in &machine.processes {
        let huge = process
            .memory
            .huge_share()
            .map_or("?".into(), |share| format!("{:.0} %", share * 100.0));
        let memory = &process.memory;
        let _ = writeln!(
            text,
            "  {:>8} {:<16} {:>10} {:>12} {huge:>8} {:>10}",
            process.pid,
            printable(&process.name),
            bytes(memory.anonymous),
            bytes(memory.page_tables),
            time(process.fork_ns)
        );
    }
    if machine.processes.is_empty() {
        wrap(&mut text, "none");
    }
    for remark in &machine.remarks {
        wrap(&mut text, &format!("Note: {remark}."));
    }
    title(&mut text, "Next: odfork doctor PID, or odfork doctor -- COMMAND");
    text
}

fn figures(text: &mut String, prices: &Prices) {
    wrap(text, &format!("{}.", prices.source));
    if !prices.kernel_offered {
        wrap(text, "kernel: on-demand-fork, which this kernel does not have.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_and_indented() {
        let mut text = String::new();
        wrap(&mut text, &"word ".repeat(60));
        assert!(text.lines().count() > 2);
        assert!(text.lines().all(|line| line.starts_with("  ") && line.len() <= WIDTH));
        assert_eq!(shortened(&"ä".repeat(70)).chars().count(), 63);
    }

    #[test]
    fn the_columns_of_makers_stand_under_each_other() {
        let mut seen = Summary { processes: 3, ..Summary::default() };
        seen.forks = Fates { execs: 2, exits: 1, ..Fates::default() };
        let maker = crate::doctor::fork_statistics::Maker {
            name: "a\u{7}b".into(),
            forks: seen.forks,
            ..Default::default()
        };
        seen.makers = vec![maker];
        let mut text = String::new();
        makers(&mut text, &seen);
        shares(&mut text, &seen);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].len(), lines[1].len());
        assert!(lines[1].starts_with("  a?b "), "{text}");
        assert!(
            text.contains("67 % of all processes (2 of 3); of the forks that copy: 2 of 3"),
            "{text}"
        );
    }
}
