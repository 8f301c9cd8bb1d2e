//! The report as text: short sections with aligned columns. Nothing is computed but shares.

use super::advice::bytes;
use super::fork_statistics::{Fates, Summary};
use super::inspection::{Observation, Report};
use super::machine::Machine;
use super::price::Prediction;
use super::subject::{Memory, Subject};
use odfork_proc::process::printable;
use odfork_proc::table::columns;
use odfork_proc::text::time;

const WIDTH: usize = 100;
/// Makers listed; the rest is summed up.
const MAKERS: usize = 8;

/// Text that grows by sections.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: &str) {
        self.0 += line;
        self.0.push('\n');
    }

    fn title(&mut self, words: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        self.line(&format!("{gap}{words}"));
    }

    fn row(&mut self, key: &str, value: &str) {
        self.line(&format!("  {key:<20} {value}"));
    }

    /// Paragraph of indented lines.
    fn wrap(&mut self, words: &str) {
        let mut line = String::from(" ");
        for word in words.split_whitespace() {
            if line.len() > 1 && line.len() + 1 + word.len() > WIDTH {
                self.line(&line);
                line = String::from(" ");
            }
            line.push(' ');
            line.push_str(word);
        }
        self.line(&line);
    }

    fn notes(&mut self, remarks: &[String]) {
        for remark in remarks {
            self.wrap(&format!("Note: {remark}."));
        }
    }

    fn table<const N: usize>(&mut self, head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
        let rows: Vec<_> = std::iter::once(head.map(String::from)).chain(rows).collect();
        columns(&rows).lines().for_each(|line| self.line(&format!("  {line}")));
    }
}

/// A report about a process or a command.
pub fn lay_out(report: &Report) -> String {
    let mut page = Page::default();
    if let Some(subject) = &report.subject {
        head(&mut page, report.kind, subject);
        memory(&mut page, subject);
        engines(&mut page, report, subject);
    }
    if let Some(observation) = &report.observation {
        who_forks(&mut page, report.kind, observation);
    }
    page.title("Recommendation");
    page.wrap(report.advice.as_ref().map_or("None: too little was seen.", |a| &a.text));
    page.notes(&report.remarks);
    page.0
}

fn head(page: &mut Page, kind: &str, subject: &Subject) {
    let command = shortened(&subject.command);
    let (pid, name, count) = (subject.pid, printable(&subject.name), subject.status.threads);
    let threads = if count == 1 { "thread" } else { "threads" };
    let of_command = match kind {
        "command" => ", the largest of the command when it forked or ended",
        _ => "",
    };
    page.line(&format!("Process {pid} ({name}), {count} {threads}{of_command}: {command}"));
}

fn shortened(command: &str) -> String {
    match command.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &command[..at]),
        None => command.to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn memory(page: &mut Page, subject: &Subject) {
    let Memory { mapped, resident, anonymous, swapped, page_tables, entries, source, .. } =
        subject.memory;
    page.title("Memory");
    page.row("mapped", &bytes(mapped));
    page.row("resident", &bytes(resident));
    let huge =
        subject.memory.huge_share().map(|share| format!(", {} in huge pages", percent(share)));
    page.row("anonymous private", &(bytes(anonymous) + &huge.unwrap_or_default()));
    page.row("swapped", &bytes(swapped));
    if let Some(map) = &subject.map {
        page.row("odfork could freeze", &bytes(map.freezable.bytes()));
        let kept: Vec<_> =
            map.kept.iter().map(|(why, count)| format!("{why} {}", bytes(*count))).collect();
        if !kept.is_empty() {
            page.row("stays", &kept.join(", "));
        }
        if map.is_frozen() {
            let (size, rewritten) = (bytes(map.backing_bytes), bytes(map.backing_rewritten));
            let count = map.backing_mappings;
            let frozen = format!("{size} in {count} mappings, {rewritten} rewritten since");
            page.row("frozen", &frozen);
        } else if map.loaded {
            page.row("frozen", "nothing yet; libodfork.so is loaded");
        }
    }
    subject.remarks.iter().for_each(|remark| page.wrap(remark));
    page.title("Page tables");
    page.row("size", &bytes(page_tables));
    let huge = match entries.huge {
        0 => String::new(),
        count => format!(" and {count} of 2 MB"),
    };
    page.row("fork copies", &format!("{} entries of 4 KB{huge} ({source})", entries.small));
}

fn engines(page: &mut Page, report: &Report, subject: &Subject) {
    page.title("Fork now and with each engine (estimated, not measured)");
    if let Some(now) = report.now_ns {
        page.row("now", &time(now));
    }
    let frozen = subject.map.as_ref().is_some_and(|map| map.is_frozen());
    for line in &report.predictions {
        let about = about(line, report, frozen);
        page.row(line.engine, &format!("{:<10} {about}", time(line.fork_ns)));
    }
    page.row("figures", &report.prices.source);
}

fn about(line: &Prediction, report: &Report, frozen: bool) -> String {
    let image = || {
        match &report.eligibility.obstacle {
            Some(why) => return format!("not possible: it {why}"),
            None if report.eligibility.program == "unknown" => {
                "odfork run; whether it can is not known"
            }
            None if report.kind == "process" && !frozen => {
                "odfork run, once frozen; only from the start of the program"
            }
            None => "odfork run, once frozen",
        }
        .to_owned()
    };
    match line.engine {
        "plain" if frozen => "4 KB pages, nothing frozen".into(),
        "plain" => "4 KB pages".into(),
        "thp" => "transparent huge pages, as far as they can be had".into(),
        "image" => image(),
        _ if line.offered => "kernel with on-demand-fork".into(),
        _ => "kernel with on-demand-fork; this kernel is not one".into(),
    }
}

fn who_forks(page: &mut Page, kind: &str, observation: &Observation) {
    let seen = &observation.seen;
    let by = if observation.method == "ptrace" { "by ptrace" } else { "by sampling /proc" };
    page.title(&format!("Who forks ({:.1} s observed {by})", observation.seconds));
    if let Some(reason) = &observation.reason {
        page.wrap(&format!("Sampled, so counts are lower bounds: {reason}."));
    }
    if !seen.calls.is_empty() {
        let calls: Vec<_> = seen.calls.iter().map(|(call, n)| format!("{call} {n}")).collect();
        page.row("calls", &calls.join(", "));
    }
    if seen.processes == 0 {
        page.row("processes made", "none");
    } else {
        makers(page, seen);
        shares(page, seen);
    }
    match &observation.status {
        Some(status) => page.row(kind, &format!("ended with {status}")),
        None if !observation.alive => page.row(kind, "ended meanwhile"),
        None if observation.interrupted => page.row(kind, "runs on; observing was interrupted"),
        None if kind == "command" => page.row(kind, "runs on"),
        None => {}
    }
}

fn makers(page: &mut Page, seen: &Summary) {
    let row = |name: &str, forks: &Fates, lent: &Fates| {
        let counts = [forks.execs, forks.forks_then_execs, forks.exits, forks.lives];
        let [execs, works, exits, lives] = counts.map(|count| count.to_string());
        let (all, lent) = (forks.total().to_string(), lent.total().to_string());
        [printable(name), all, execs, works, exits, lives, lent]
    };
    let makers = seen.makers.iter().take(MAKERS).map(|m| row(&m.name, &m.forks, &m.lent));
    let all = (seen.makers.len() > 1).then(|| row("all", &seen.forks, &seen.lent));
    page.table(["made by", "forks", "exec", "work", "exit", "live", "lent"], makers.chain(all));
    page.wrap(
        "(exec: only execs; work: forks itself, then execs; exit: ends as it was born; live: still \
         there; lent: by vfork-class calls, no copy)",
    );
}

fn shares(page: &mut Page, seen: &Summary) {
    let all = seen.processes;
    let of_all = |part: u64| {
        let share = percent(part as f64 / all.max(1) as f64);
        format!("{share} of all processes ({part} of {all})")
    };
    let (copied, forks) = (seen.forks.execs, seen.forks.total());
    let execs = of_all(copied + seen.lent.execs);
    page.row("only exec", &format!("{execs}; of the forks that copy: {copied} of {forks}"));
    if forks > 0 {
        let cost = time(seen.predicted_ns as f64);
        page.row("forks cost", &format!("{cost} in all, estimated from memory at each"));
    }
    page.row("from shells", &of_all(seen.from_shells));
    if let Some(seconds) = seen.until_exec_s {
        let faults = seen.faults_until_exec.map(|count| format!(", {count:.0} page faults"));
        let (took, faults) = (time(seconds * 1e9), faults.unwrap_or_default());
        page.row("from birth to exec", &format!("{took} (median, observing included){faults}"));
    }
}

/// The report about the machine.
pub fn machine(machine: &Machine) -> String {
    let mut page = Page(format!("{}\n", machine.summary));
    page.title("Fork by size and engine (estimated, not measured)");
    let sizes = machine.sizes.iter().map(|size| {
        let [plain, thp, image, kernel] = size.predictions.each_ref().map(|p| time(p.fork_ns));
        [bytes(size.bytes), plain, thp, image, kernel]
    });
    page.table(["memory", "plain", "thp", "image", "kernel"], sizes);
    page.wrap(&format!("{}.", machine.prices.source));
    if !machine.prices.kernel_offered {
        page.wrap("kernel: on-demand-fork, which this kernel does not have.");
    }
    page.title("Largest processes that this user may read");
    let processes = machine.processes.iter().map(|process| {
        let Memory { anonymous, page_tables, .. } = process.memory;
        let huge = process.memory.huge_share().map_or("?".into(), percent);
        let (name, pid) = (printable(&process.name), process.pid.to_string());
        [name, pid, bytes(anonymous), bytes(page_tables), huge, time(process.fork_ns)]
    });
    page.table(["name", "process", "anonymous", "page tables", "huge", "fork now"], processes);
    if machine.processes.is_empty() {
        page.wrap("none");
    }
    page.notes(&machine.remarks);
    page.title("Next: odfork doctor PID, or odfork doctor -- COMMAND");
    page.0
}
