//! Made-up samples of all experiments, for tests of the report. Nothing here was measured.
//!
//! Owns a plausible shape of each experiment (plain rises with size, image does not) with seeded
//! noise and some outliers, and every kind of file state: notes, an interrupted run, a cut file.
//! The machine it names does not exist.

use std::path::Path;

use odfork_samples::samples::{End, Line, Params, Run, Sample, Writer};
use odfork_samples::stats::Rng;
use serde_json::{json, Value};

const MB: f64 = 1048576.0;
const GB: f64 = 1073741824.0;
const ENGINES: [&str; 5] = ["plain", "thp", "hugetlb", "image", "null"];

/// One file under construction.
struct File {
    writer: Writer,
    experiment: &'static str,
    rng: Rng,
    count: u64,
    rounds: u32,
}

impl File {
    fn create(folder: &Path, experiment: &'static str, row: &str, rounds: u32) -> File {
        let mut writer = Writer::create(&folder.join(format!("{experiment}.jsonl"))).unwrap();
        writer.put(&Line::Run(Box::new(Run {
            schema: 1,
            experiment: experiment.into(),
            row: row.into(),
            effort: "default".into(),
            engines: ENGINES.map(String::from).to_vec(),
            seed: 7,
            environment: machine(),
        })));
        writer.put(&Line::Note {
            text: "MADE UP for a test of the report: nothing here was measured <&>".into(),
        });
        File { writer, experiment, rng: Rng::with_seed(experiment.len() as u64), count: 0, rounds }
    }

    /// `rounds` noisy samples around a value; about one in forty is an outlier.
    fn around(&mut self, engine: &str, (metric, unit): (&str, &str), value: f64, params: Value) {
        for round in 1..=self.rounds {
            let noise = 0.95 + self.rng.usize(..1000) as f64 / 10_000.0;
            let outlier = if self.rng.usize(..150) == 0 { 2.5 } else { 1.0 };
            self.put(engine, (metric, unit), value * noise * outlier, (&params, round));
        }
    }

    fn put(
        &mut self,
        engine: &str,
        (metric, unit): (&str, &str),
        value: f64,
        (params, round): (&Value, u32),
    ) {
        let params: Params = params.as_object().unwrap().clone().into_iter().collect();
        let (metric, unit) = (metric.into(), unit.into());
        let (experiment, engine) = (self.experiment.into(), engine.into());
        let sample = Sample { experiment, engine, metric, unit, value, params, round, at_s: 0.1 };
        self.writer.put(&Line::Sample(sample));
        self.count += 1;
    }

    fn end(mut self, interrupted: bool) {
        let samples = self.count;
        self.writer.put(&Line::End(End {
            interrupted,
            samples,
            seconds: 61.0,
            wrongs: Vec::new(),
        }));
        self.writer.finish().unwrap();
    }
}

fn machine() -> Value {
    json!({ "version": "0.1.0", "kernel": "0.0-made-up", "cpu": "Invented CPU <no such> & Co", "cores": 2,
        "memory_bytes": 25_769_803_776u64, "available_bytes": 21_474_836_480u64, "thp": "madvise", "shmem_thp": "never",
        "load": 0.25, "user_id": 0, "unix_seconds": 1_790_000_000u64, "virtualised": true })
}

/// Nanoseconds of a made-up fork.
fn fork(engine: &str, bytes: f64) -> f64 {
    match engine {
        "plain" => 60e3 + bytes / MB * 14e3,
        "thp" => 70e3 + bytes / MB * 110.0,
        "hugetlb" => 58e3 + bytes / MB * 95.0,
        "image" => 52e3 + bytes / MB * 8.0,
        _ => 120.0,
    }
}

/// All experiments of the contract.
pub fn write_all(folder: &Path) {
    for write in [grid, latency, fault, access, profile, parent_writes, exec, copy_rate, writes] {
        write(folder);
    }
}

fn grid(folder: &Path) {
    let mut file = File::create(folder, "grid", "M01", 3);
    let modern: Vec<f64> = [0.0, 16.0, 64.0, 256.0, 1024.0, 2048.0].map(|size| size * MB).to_vec();
    let old = vec![0.0, 1000.0, 3162.0, 10000.0, 31622.0, 100000.0, 316228.0];
    for (scale, sizes, counts) in [
        ("1988", old, vec![0.0, 1.0, 10.0, 100.0, 1000.0]),
        ("modern", modern, vec![1.0, 10.0, 100.0]),
    ] {
        for (bytes, forks) in
            sizes.iter().flat_map(|bytes| counts.iter().map(move |forks| (*bytes, *forks)))
        {
            for (frac, engine) in [0.0, 0.1, 0.5, 0.9, 1.0]
                .iter()
                .flat_map(|frac| ENGINES.map(|engine| (*frac, engine)))
            {
                let written = if engine == "null" { 0.0 } else { bytes / 4096.0 * frac * 450.0 };
                let real = (400e3 + forks * (fork(engine, bytes) + 45e3 + written)) / 1e9;
                let params =
                    json!({ "scale": scale, "forks": forks, "bytes": bytes, "frac": frac });
                file.around(engine, ("real", "s"), real, params.clone());
                file.around(
                    engine,
                    ("sys", "s"),
                    real * (0.85 - 0.5 / (1.0 + forks)),
                    params.clone(),
                );
                file.around(engine, ("user", "s"), real * 0.01, params);
            }
        }
    }
    file.end(false);
}

fn latency(folder: &Path) {
    let mut file = File::create(folder, "latency", "M08", 60);
    for (megabytes, processes) in
        [64.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0].iter().flat_map(|m| [(*m, 1), (*m, 3)])
    {
        for engine in ENGINES {
            let value = fork(engine, megabytes * MB) * if processes == 3 { 1.9 } else { 1.0 };
            let params = json!({ "bytes": megabytes * MB, "processes": processes });
            file.around(engine, ("fork", "ns"), value, params.clone());
            file.around(engine, ("fork-cpu", "ns"), value * 0.97, params.clone());
            file.around(engine, ("total", "ns"), value * 1.8 + 90e3, params);
        }
    }
    file.writer.put(&Line::Engine { engine: "image".into(), detail: "2 MB pages, made up".into() });
    file.end(false);
}

fn fault(folder: &Path) {
    let mut file = File::create(folder, "fault", "M08", 12);
    for (engine, value) in
        [("plain", 1.9e3), ("thp", 2.4e3), ("hugetlb", 165e3), ("image", 3.1e3), ("null", 45.0)]
    {
        file.around(engine, ("fault", "ns"), value, json!({ "bytes": GB }));
    }
    file.end(true);
}

fn access(folder: &Path) {
    let mut file = File::create(folder, "access", "M08", 5);
    for (read, share) in [1.0, 0.75, 0.5, 0.25, 0.0]
        .iter()
        .flat_map(|r| [0.0, 0.2, 0.4, 0.6, 0.8, 1.0].map(|s| (*r, s)))
    {
        for engine in ["plain", "thp", "image"] {
            let fault = if engine == "thp" { 8e3 } else { 26e3 };
            let touched = share * 2048.0 * (20e3 + (1.0 - read) * 9.0 * fault);
            let value =
                fork(engine, 2.0 * GB) + touched * if engine == "image" { 1.03 } else { 1.0 };
            file.around(
                engine,
                ("total", "ns"),
                value,
                json!({ "bytes": 2.0 * GB, "read": read, "share": share }),
            );
        }
    }
    file.end(false);
}

fn profile(folder: &Path) {
    let mut file = File::create(folder, "profile", "M08", 4);
    let names = [
        "copy_present_ptes",
        "folio_try_dup_anon_rmap_ptes",
        "clear_page_erms",
        "__pte_alloc",
        "_compound_head",
        "mas_store",
        "a_symbol_whose_name_is_far_too_long_for_any_plot_of_ours",
    ];
    for (place, name) in names.iter().enumerate() {
        let share = 0.5 / 1.9f64.powi(place as i32);
        file.around(
            "plain",
            ("share", "share"),
            share,
            json!({ "bytes": GB, "source": "perf", "name": name }),
        );
    }
    file.around(
        "plain",
        ("count", "count"),
        525_312.0,
        json!({ "bytes": GB, "source": "counters", "name": "pte copies" }),
    );
    file.end(false);
}

fn parent_writes(folder: &Path) {
    let mut file = File::create(folder, "parent-writes", "M06", 5);
    let engines = ["plain", "thp", "image"];
    for (via, engine) in
        ["fork", "vfork", "spawn"].iter().flat_map(|via| engines.map(|engine| (via, engine)))
    {
        for (phase, turn) in
            ["before", "after"].iter().flat_map(|phase| (1..=10).map(move |turn| (phase, turn)))
        {
            let first = *via == "fork" && *phase == "after" && turn == 1;
            let page = match (first, engine) {
                (true, "plain") => 310.0,
                (true, "thp") => 9.0,
                (true, _) => 350.0,
                _ => 4.0,
            };
            let params =
                json!({ "bytes": 409_600_000.0, "via": via, "phase": phase, "turn": turn });
            file.around(engine, ("round", "ns"), page * 1e5, params);
        }
    }
    file.end(false);
}

/// Method, actions, nanoseconds.
const STARTS: [(&str, &str, f64); 9] = [
    ("fork+exec", "plain", 0.0),
    ("vfork+exec", "plain", 15e3),
    ("posix_spawn", "plain", 35e3),
    ("spawn", "plain", 25e3),
    ("rust-command", "plain", 45e3),
    ("popen", "plain", 600e3),
    ("python-subprocess", "plain", 150e3),
    ("posix_spawn", "chdir", 38e3),
    ("spawn", "chdir", 27e3),
];

fn exec(folder: &Path) {
    let mut file = File::create(folder, "exec", "M15", 6);
    for (used, twice) in [10.0, 20.0, 100.0, 500.0, 1000.0]
        .iter()
        .flat_map(|used| [(used * MB, 1.0), (used * MB, 2.0)])
    {
        for (engine, method) in ["plain", "image"].iter().flat_map(|e| STARTS.map(|m| (*e, m))) {
            let call = if method.0 == "fork+exec" { fork(engine, used) } else { method.2 };
            let params = json!({
                "allocated": used * twice, "used": used, "method": method.0, "actions": method.1,
            });
            file.around(engine, ("each", "ns"), call + 280e3, params.clone());
            file.around(engine, ("sys", "ns"), call + 200e3, params.clone());
            file.around(engine, ("user", "ns"), 30e3, params);
        }
    }
    file.end(false);
}

fn copy_rate(folder: &Path) {
    let mut file = File::create(folder, "copy-rate", "M02", 8);
    for (engine, rate) in [("plain", 2.1e9), ("thp", 4.4e9), ("hugetlb", 4.9e9), ("image", 2.3e9)] {
        file.around(engine, ("copy", "bytes/s"), 8.2e9, json!({ "bytes": 256.0 * MB }));
        file.around(engine, ("service", "bytes/s"), rate, json!({ "bytes": 256.0 * MB }));
    }
    file.end(false);
}

fn writes(folder: &Path) {
    let mut file = File::create(folder, "writes", "M04", 1);
    for (program, phase, share) in [
        ("sbcl", "planner", 0.21),
        ("emacs", "hanoi", 0.33),
        ("python3", "import", 0.47),
        ("redis-server", "1000 SET", 0.02),
    ] {
        let params = json!({ "program": program, "phase": phase, "method": "scan" });
        for (metric, unit, value) in [
            ("pages", "share", share),
            ("bytes", "share", share / 9.0),
            ("pages-changed", "count", f64::round(9000.0 * share)),
            ("pages-all", "count", 9000.0),
        ] {
            file.put("plain", (metric, unit), value, (&params, 1));
        }
    }
    file.end(false);
}
