//! `where FILE`: measures in every place what freezing, forking and giving memory back cost, stock
//! and odfork in turn, and writes the table of it: one section of the document for each kernel.
//! `where FILE OTHER` takes the sections of OTHER, which a guest has written, into FILE.
//!
//! Owns the document and its words.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use odfork_tests::confine::Confinement;
use odfork_tests::header::Header;
use odfork_tests::machine;
use odfork_tests::mode::Mode;
use odfork_tests::places::{Place, PLACES};
use odfork_tests::run::{run, Order};
use odfork_tests::stage::{find_library, programs_dir, Program, Stage};

const MEGABYTES: &str = "128";
const ROUNDS: usize = 5;

const HEAD: &str = "\
# Where it runs

What `make where` found, with the program `tests/confine/cost.c`. Filters and privileges are
emulated from the lists their makers publish (`tests/confine`, `tests/src/places.rs`); file systems,
cgroups and other namespaces around them are not. \"Threads\": how those of a program with a second
one are held; \"no\": it stays plain. Times are medians of pairs, stock and odfork in turn: read
them as ratios. Emulated guests (`STEPS=where .ci/kernels`) take some ten times as long for
everything. With transparent huge pages for all (`always`, as Debian has it) stock's fork copies one
entry for 2 MB. Nothing is killed in any of these places but the helper task.
";

/// The heading of each kernel's section, before its version; and that of what follows them all.
const SECTION: &str = "\n## Linux ";
const AFTER: &str = "\n## What else";
const EMULATED: &str = ", emulated";

const TAIL: &str = "
## What else to know

**gVisor** answers system calls by a kernel of its own, without `userfaultfd`, `fsopen` and page
tables to copy as Linux does. It was not tried. What is missing there means plain fork.

**What would help** is told by `odfork check` there, found by trying. 2 MB pages: a tmpfs of the
host passed in, and `ODFORK_IMAGE_DIR`; `shmem_enabled` set to `advise` on the host; in a service,
calls beside `@system-service`. Threads: the device `/dev/userfaultfd` passed in (Linux 6.1) or
given to the user, the sysctl `vm.unprivileged_userfaultfd=1`, or a filter that allows ptrace
([what shows of it](limits.md#what-is-not-preserved)). In files:

```text
# systemctl edit NAME
[Service]
SystemCallFilter=fsopen fsconfig fsmount mincore

# /etc/udev/rules.d/70-userfaultfd.rules
KERNEL==\"userfaultfd\", GROUP=\"NAME\", MODE=\"0660\"

# /etc/fstab
odfork /run/odfork tmpfs huge=always,size=0,mode=1777 0 0
```
";

/// Medians of one way of running, by what was measured.
type Costs = BTreeMap<String, f64>;

struct Found {
    engine: String,
    stock: Costs,
    ours: Costs,
}

fn main() -> ExitCode {
    let args = Vec::from_iter(std::env::args().skip(1));
    let made = match &args[..] {
        [file] => section().and_then(|own| merge(file, &own)),
        [file, other] => read(other).and_then(|text| merge(file, &text)),
        _ => Err("usage: where FILE [OTHER]".to_owned()),
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("where: {why}");
            ExitCode::FAILURE
        }
    }
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}

/// Writes the document, with the sections of `new` in place of those of the same kernel.
fn merge(file: &str, new: &str) -> Result<(), String> {
    let mut all = BTreeMap::new();
    let old = if Path::new(file).exists() { read(file)? } else { String::new() };
    for text in [&old[..], new] {
        let text = text.split(AFTER).next().unwrap_or_default();
        for one in text.split(SECTION).skip(1) {
            all.insert(place(one), format!("{SECTION}{}\n", one.trim_end()));
        }
    }
    let sections = String::from_iter(all.into_values());
    std::fs::write(file, format!("{HEAD}{sections}{TAIL}"))
        .map_err(|error| format!("{file}: {error}"))
}

/// Where a section stands: machines before emulated ones, newer kernels before older ones.
fn place(section: &str) -> (bool, Reverse<Vec<u32>>) {
    let heading = section.lines().next().unwrap_or_default();
    let numbers = heading.split(|letter: char| !letter.is_ascii_digit());
    let version = numbers.take(2).filter_map(|number| number.parse().ok()).collect();
    (heading.ends_with(EMULATED), Reverse(version))
}

fn section() -> Result<String, String> {
    if !machine::is_root() {
        return Err("needs root to put on what others put on".to_owned());
    }
    let before = load()?;
    let cache = std::env::temp_dir().join(format!("odfork-where-{}", std::process::id()));
    let stage = Stage::new(Some(&find_library()?), &cache)?;
    let made = program(&stage).and_then(|binary| table(&stage, &binary));
    let _ = std::fs::remove_dir_all(&cache);
    let (kernel, date) = (said("uname", "-r")?, said("date", "+%F")?);
    // Without what a distribution puts behind the number.
    let kernel = kernel.split(['-', '+']).next().unwrap_or_default();
    let emulated = if read("/proc/cpuinfo")?.contains("QEMU TCG") { EMULATED } else { "" };
    let huge = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let huge = huge.split(['[', ']']).nth(1).unwrap_or("none");
    let conditions = format!(
        "load {before} to {}, {MEGABYTES} MB of memory in use, transparent huge pages: {huge}",
        load()?
    );
    Ok(format!("{SECTION}{kernel}{emulated}\n\n{date}, {conditions}.\n\n{}", made?))
}

fn program(stage: &Stage) -> Result<std::path::PathBuf, String> {
    let source = programs_dir().join("../confine/cost.c");
    stage.compile(&Program { name: "cost".to_owned(), source, header: Header::default() })
}

/// Of the last minute.
fn load() -> Result<String, String> {
    let text = std::fs::read_to_string("/proc/loadavg").map_err(|e| e.to_string())?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

fn said(program: &str, argument: &str) -> Result<String, String> {
    let output = Command::new(program).arg(argument).output().map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn table(stage: &Stage, binary: &Path) -> Result<String, String> {
    let mut text = "| place | backing file | threads | freeze | fork: stock, odfork | \
                    give back 64 KB: stock, odfork |\n| --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for place in &PLACES {
        let alone = measure(stage, binary, place, None)?;
        let held = |how| measure(stage, binary, place, Some(how)).map(|it| it.engine != "plain");
        let threads = match (held("userfaultfd")?, held("ptrace")?) {
            (true, _) => "userfaultfd",
            (false, true) => "ptrace",
            _ => "no",
        };
        let kind = match &*alone.engine {
            "huge" => "2 MB pages",
            "small" => "4 KB pages",
            other => other,
        };
        let cost = |costs: &Costs, what| costs.get(what).copied().unwrap_or(f64::NAN);
        let pair = |what| {
            let (stock, ours) = (cost(&alone.stock, what), cost(&alone.ours, what));
            format!("{stock:.0}, {ours:.0} us")
        };
        let _ = writeln!(
            text,
            "| {} | {kind} | {threads} | {:.0} ms | {} | {} |",
            place.words,
            cost(&alone.ours, "freeze") / 1000.0,
            pair("fork"),
            pair("give"),
        );
    }
    Ok(text)
}

fn measure(
    stage: &Stage,
    binary: &Path,
    place: &'static Place,
    threads: Option<&str>,
) -> Result<Found, String> {
    let there = Confinement::prepare(place)?;
    let mut args = vec![MEGABYTES.to_owned()];
    args.extend(threads.map(|_| "threads".to_owned()));
    let env = threads.map(|how| ("ODFORK_THREADS".to_owned(), how.to_owned()));
    let env = Vec::from_iter(env);
    let (mut stock, mut ours, mut engine) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..ROUNDS {
        for (mode, list) in [(Mode::Stock, &mut stock), (Mode::User, &mut ours)] {
            let order = Order {
                binary,
                args: &args,
                mode,
                unprivileged: place.user != 0,
                timeout: Duration::from_secs(60),
                place: Some(&there),
                env: &env,
            };
            let outcome = run(stage, &order)?;
            if outcome.code() != Some(0) {
                return Err(format!("in {}: the program {}", place.name, outcome.ending()));
            }
            list.push(String::from_utf8_lossy(&outcome.stdout).into_owned());
            let stats = outcome.stats.as_ref();
            if let Some(said) = stats.and_then(|stats| stats.pointer("/engine")?.as_str()) {
                engine = said.to_owned();
            }
        }
    }
    Ok(Found { engine, stock: medians(&stock), ours: medians(&ours) })
}

/// Of lines "NAME NUMBER".
fn medians(outputs: &[String]) -> Costs {
    let mut lists: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in outputs.iter().flat_map(|text| text.lines()) {
        if let Some((name, number)) = line.split_once(' ') {
            lists.entry(name.to_owned()).or_default().extend(number.parse::<f64>().ok());
        }
    }
    let median = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list.get(list.len() / 2).copied().unwrap_or(f64::NAN)
    };
    lists.into_iter().map(|(name, list)| (name, median(list))).collect()
}
