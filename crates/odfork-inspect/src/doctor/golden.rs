//! What the doctor prints for recorded values: text and JSON, compared with files in tests/golden.

use super::advice::Advice;
use super::eligibility::Eligibility;
use super::fork_statistics::{Fates, Maker, Summary};
use super::inspection::{Observation, Report, SCHEMA};
use super::layout;
use super::machine::{Machine, Process, Size};
use super::price::Prices;
use super::smaps::{Entries, Map};
use super::subject::{Memory, Subject};
use odfork_proc::status::Status;
use odfork_samples::environment::Environment;

fn prices() -> Prices {
    Prices { kernel_offered: false, ..Prices::built_in() }
}

fn memory() -> Memory {
    Memory {
        mapped: 3 << 30,
        resident: (2 << 30) + (7 << 20),
        anonymous: 2 << 30,
        swapped: 12 << 10,
        page_tables: 4300 << 10,
        huge: Some(1 << 30),
        entries: Entries { small: 262_147, huge: 512 },
        source: "smaps",
    }
}

fn subject(frozen: bool) -> Subject {
    let map = Map {
        mappings: 31,
        entries: memory().entries,
        freezable: Entries { small: 200_000, huge: 500 },
        kept: [("below 1 MB", 40 << 10), ("file", 3 << 20)].into(),
        loaded: frozen,
        backing_mappings: if frozen { 4 } else { 0 },
        backing_bytes: if frozen { 1 << 30 } else { 0 },
        backing_rewritten: if frozen { 5 << 20 } else { 0 },
        pinned: false,
    };
    let status = Status { name: "server\u{7}".into(), threads: 3, ..Status::default() };
    Subject {
        pid: 4711,
        name: status.name.clone(),
        command: format!("server {}", "--flag ".repeat(12)),
        program: Some("/usr/bin/server".into()),
        status,
        memory: memory(),
        map: Some(map),
        remarks: vec![
            "a remark on the process that is long enough to be broken over two lines of text, here"
                .into(),
        ],
    }
}

fn summary() -> Summary {
    let fates =
        |execs, forks_then_execs, exits, lives| Fates { execs, forks_then_execs, exits, lives };
    let maker = |name: &str, shell, forks, lent, predicted_ns| Maker {
        name: name.into(),
        shell,
        forks,
        lent,
        predicted_ns,
    };
    Summary {
        calls: [("clone (fork)".to_owned(), 11), ("clone3 (vfork-class)".to_owned(), 7)].into(),
        threads: 2,
        processes: 18,
        forks: fates(5, 1, 4, 1),
        lent: fates(6, 0, 1, 0),
        own_forks: fates(1, 0, 2, 1),
        own_lent: fates(0, 0, 1, 0),
        makers: vec![
            maker("sh", true, fates(5, 1, 2, 0), fates(6, 0, 0, 0), 9_000_000),
            maker("server\u{7}", false, fates(0, 0, 2, 1), fates(0, 0, 1, 0), 21_000_000),
        ],
        from_shells: 14,
        until_exec_s: Some(0.00125),
        faults_until_exec: Some(41.0),
        predicted_ns: 30_000_000,
    }
}

fn report(kind: &'static str, frozen: bool) -> Report {
    let (subject, prices) = (subject(frozen), prices());
    let entries = subject.memory.entries;
    let sampled = kind == "process";
    Report {
        schema: SCHEMA,
        version: "1.2.3",
        kind,
        asked: "4711".into(),
        now_ns: Some(prices.now_ns(entries)),
        predictions: prices.predict(entries, Entries { small: 62_147, huge: 12 }).into(),
        subject: Some(subject),
        prices,
        eligibility: Eligibility {
            program: "yes".into(),
            image: "huge".into(),
            ..Eligibility::default()
        },
        observation: Some(Observation {
            method: if sampled { "sampling" } else { "ptrace" },
            reason: sampled.then(|| "process 12 traces it already".into()),
            seconds: 5.04,
            alive: sampled,
            interrupted: sampled,
            status: (!sampled).then(|| "exit status 3".into()),
            seen: summary(),
        }),
        advice: Some(Advice { rule: "run", text: "Running it with `odfork run` helps.".into() }),
        remarks: vec!["one broken line".into()],
    }
}

fn machine() -> Machine {
    let environment = Environment {
        version: "1.2.3",
        kernel: "6.18.0".into(),
        cpu: "Some CPU".into(),
        cores: 2,
        memory_bytes: 8 << 30,
        available_bytes: 6 << 30,
        thp: "madvise".into(),
        shmem_thp: "never".into(),
        kernel_engine: "no",
        virtualised: "KVM".into(),
        load: 0.5,
        user_id: 0,
        unix_seconds: 1_700_000_000,
    };
    let prices = prices();
    let size = |bytes| Size {
        bytes,
        predictions: prices.predict(Entries::of(bytes, 0, 0), Entries::default()),
    };
    let process = |pid, name: &str, huge| Process {
        pid,
        name: name.into(),
        memory: Memory { huge, ..memory() },
        fork_ns: 11_500_000.0,
    };
    Machine {
        schema: SCHEMA,
        version: "1.2.3",
        kind: "machine",
        summary: environment.summary(),
        environment,
        sizes: vec![size(100 << 20), size(1 << 30), size(8 << 30)],
        processes: vec![
            process(17, "fifteen-letters", Some(1 << 30)),
            process(4711, "x\u{7}", None),
        ],
        remarks: vec!["one broken line".into()],
        prices: prices.clone(),
    }
}

/// Values as JSON, with the text of the same report.
fn check(name: &str, text: &str, json: &impl serde::Serialize) {
    let json = serde_json::to_string_pretty(json).unwrap() + "\n";
    crate::golden::check(&format!("doctor-{name}.txt"), text);
    crate::golden::check(&format!("doctor-{name}.json"), &json);
}

#[test]
fn reports_are_laid_out_as_ever() {
    for (name, report) in [
        ("command", report("command", false)),
        ("process", report("process", true)),
        (
            "nothing",
            Report { subject: None, observation: None, advice: None, ..report("command", false) },
        ),
    ] {
        check(name, &layout::lay_out(&report), &report);
    }
}

#[test]
fn obstacles_and_unknowns_are_laid_out_as_ever() {
    let mut report = report("process", false);
    report.eligibility.obstacle = Some("is static".into());
    report.prices.kernel_offered = true;
    report.predictions.iter_mut().for_each(|line| line.offered = true);
    let subject = report.subject.as_mut().unwrap();
    subject.map = None;
    subject.memory.huge = None;
    subject.memory.entries.huge = 0;
    let observation = report.observation.as_mut().unwrap();
    observation.seen = Summary::default();
    observation.interrupted = false;
    check("obstacle", &layout::lay_out(&report), &report);
}

#[test]
fn the_machine_is_laid_out_as_ever() {
    let machine = machine();
    check("machine", &layout::machine(&machine), &machine);
    let empty = Machine { processes: Vec::new(), ..machine };
    crate::golden::check("doctor-machine-empty.txt", &layout::machine(&empty));
}
