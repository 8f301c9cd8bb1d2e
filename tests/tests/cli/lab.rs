//! The laboratory as a user runs it: `odfork bench` writes whole sample files, keeps what an
//! interruption leaves, and says in one line why it cannot.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{bare, finish, odfork_path, scratch, skip, start};

fn bench(words: &[&str]) -> Command {
    let mut command = bare(odfork_path());
    command.arg("bench").args(words);
    command
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn samples(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["kind"] == "sample").collect()
}

#[test]
fn the_list_names_every_experiment_and_its_row() {
    let outcome = finish(&mut bench(&["list", "--json"])).silent();
    let list: Vec<Value> = serde_json::from_str(&outcome.out).unwrap();
    let names: Vec<&str> = list.iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert_eq!(
        names,
        ["grid", "latency", "fault", "access", "profile", "parent-writes", "exec", "copy-rate"]
    );
    assert!(list.iter().all(|entry| entry["row"].as_str().is_some_and(|row| row.starts_with('M'))));
}

#[test]
fn every_sample_is_in_the_file_between_run_and_end() {
    let folder = scratch();
    let path = folder.path().join("fault.jsonl");
    let file = path.to_str().unwrap();
    let words = ["fault", "--quick", "--engine", "plain,thp,null", "--json", file];
    let outcome = finish(&mut bench(&words));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines = lines(&path);
    assert_eq!((&lines[0]["kind"], &lines[0]["row"]), (&"run".into(), &"M08".into()));
    let end = lines.last().unwrap();
    assert_eq!((&end["kind"], &end["interrupted"]), (&"end".into(), &false.into()));
    assert_eq!(end["wrongs"].as_array().unwrap().len(), 0, "{end}");
    let samples = samples(&lines);
    assert_eq!(end["samples"], samples.len());
    let count = |engine: &str| samples.iter().filter(|sample| sample["engine"] == engine).count();
    assert!(count("plain") >= 3 && count("plain").abs_diff(count("thp")) <= 1, "{samples:?}");
    assert!(samples.iter().all(|s| s["unit"] == "ns" && s["params"]["bytes"] == 64 << 20));
    assert!(outcome.out.contains("harness: at most"), "{}", outcome.out);
}

#[test]
fn the_image_engine_freezes_its_subject() {
    let library = Path::new(odfork_path()).with_file_name("libodfork.so");
    if !library.exists() {
        let why = format!("{} is not built (cargo build --release --workspace)", library.display());
        return skip("the_image_engine_freezes_its_subject", &why);
    }
    let folder = scratch();
    let outcome =
        finish(bench(&["grid", "--quick", "--engine", "image", "--dir"]).arg(folder.path()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines = lines(&folder.path().join("grid.jsonl"));
    let said = lines.iter().filter(|line| line["kind"] == "engine");
    let froze =
        said.filter(|line| line["detail"].as_str().is_some_and(|d| !d.starts_with("plain")));
    assert!(froze.count() > 0, "{outcome:?}");
    let classic = samples(&lines).iter().filter(|s| s["params"]["scale"] == "1988").count();
    assert!(classic >= 6 * 7 * 7 * 3, "{classic}");
}

#[test]
fn programs_are_started_by_every_way_and_sizes_are_compared_in_one_run() {
    let folder = scratch();
    let words = ["exec", "--quick", "--engine", "plain", "--dir"];
    let outcome = finish(bench(&words).arg(folder.path()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines = lines(&folder.path().join("exec.jsonl"));
    let samples = samples(&lines);
    let is = |sample: &&&Value, used: u64, method: &str, actions: &str| {
        let params = &sample["params"];
        sample["metric"] == "each"
            && (&params["used"], &params["method"], &params["actions"])
                == (&used.into(), &method.into(), &actions.into())
    };
    let rounds = |used: u64, method: &str, actions: &str| -> Vec<&Value> {
        let found = samples.iter().filter(|sample| is(sample, used << 20, method, actions));
        found.map(|sample| &sample["round"]).collect()
    };
    for method in ["fork+exec", "vfork+exec", "posix_spawn", "spawn", "rust-command", "popen"] {
        assert!(!rounds(200, method, "plain").is_empty(), "{method}");
    }
    for actions in ["chdir", "close-256", "pipes"] {
        for method in ["posix_spawn", "spawn"] {
            assert!(!rounds(20, method, actions).is_empty(), "{method} {actions}");
        }
    }
    let (large, small) = (rounds(200, "spawn", "plain"), rounds(8, "spawn", "plain"));
    // How many rounds there are is for the time the machine has.
    assert!(large.iter().any(|round| small.contains(round)), "{large:?}");
    for ratio in ["spawn, parent of 200 MB / of 8 MB", "spawn / posix_spawn, close-256, 20 MB"] {
        assert!(outcome.out.contains(ratio), "{}", outcome.out);
    }
    match outcome.out.lines().find(|line| line.contains("python-subprocess left out")) {
        Some(why) => eprintln!("skipped: starts by Python: {why}"),
        None => assert!(!rounds(20, "python-subprocess", "plain").is_empty()),
    }
}

/// Kills what is left when a test fails.
struct Ward(Child);

impl Drop for Ward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    let folder = scratch();
    let path = folder.path().join("latency.jsonl");
    let words = ["latency", "--engine", "plain", "--json", path.to_str().unwrap()];
    let mut command = bench(&words);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut bench = Ward(start(&mut command).unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&path).is_ok_and(|text| text.contains("\"sample\"")) {
        assert!(Instant::now() < deadline, "no sample within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&bench.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = bench.0.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let lines = lines(&path);
    let end = lines.last().unwrap();
    assert_eq!((&end["kind"], &end["interrupted"]), (&"end".into(), &true.into()));
    assert!(!samples(&lines).is_empty());
}

#[test]
fn what_cannot_be_had_is_said_in_one_line() {
    let outcome = finish(&mut bench(&["fault", "--quick", "--dir", "/proc/nowhere"]));
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.err.starts_with("odfork bench: cannot make the folder /proc/nowhere"),
        "{outcome:?}"
    );
    assert_eq!(outcome.err.lines().count(), 1);

    let folder = scratch();
    let file = folder.path().join("f.jsonl");
    let outcome = finish(bench(&["all", "--quick", "--json"]).arg(&file));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("use --dir") && !file.exists(), "{outcome:?}");

    if crate::engine::supported() {
        return skip("what_cannot_be_had_is_said_in_one_line", "this kernel has on-demand-fork");
    }
    let words = ["fault", "--quick", "--engine", "kernel", "--dir"];
    let outcome = finish(bench(&words).arg(folder.path()));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("CONFIG_COW_PTE_TABLES"), "{outcome:?}");
}
