//! `odfork page` as a user runs it: counts on known traces in every form, one line for every bad
//! input, a recording of a real program, a comparison and its chapter in the report.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::stage::{bare, finish, odfork_path, output, scratch, skip, start, text, Outcome};

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
const BELADY: &str = "1\n2\n3\n4\n1\n2\n5\n1\n2\n3\n4\n5\n";

fn page(words: &[&str]) -> Command {
    let mut command = bare(odfork_path());
    command.arg("page").args(words);
    command
}

fn simulate(words: &[&str]) -> Outcome {
    finish(page(&["simulate"]).args(words))
}

fn fed(words: &[&str], input: &[u8]) -> Outcome {
    let mut command = page(&["simulate"]);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut command).unwrap();
    // A complaint about the options may come before all is read.
    let _ = child.stdin.take().unwrap().write_all(input);
    let done = child.wait_with_output().unwrap();
    Outcome {
        code: done.status.code(),
        signal: None,
        out: text(&done.stdout),
        err: text(&done.stderr),
    }
}

fn json(outcome: &Outcome) -> Vec<Value> {
    outcome.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn beladys_anomaly_in_json() {
    let words = ["--policy", "fifo", "--policy", "lru,min", "--frames", "3,4", "--json"];
    let outcome = fed(&words, BELADY.as_bytes()).silent();
    let found: Vec<_> = json(&outcome)
        .iter()
        .map(|line| {
            assert_eq!((&line["trace"], &line["references"]), (&"-".into(), &12.into()));
            let frames = line["frames"].as_u64().unwrap();
            (line["policy"].as_str().unwrap().to_owned(), frames, line["faults"].as_u64().unwrap())
        })
        .collect();
    let expected = [
        ("fifo", 3, 9),
        ("fifo", 4, 10),
        ("lru", 3, 10),
        ("lru", 4, 8),
        ("min", 3, 7),
        ("min", 4, 6),
    ];
    assert_eq!(found, expected.map(|(name, frames, faults)| (name.to_owned(), frames, faults)));
}

#[test]
fn every_key_of_a_line() {
    let outcome = fed(&["--policy", "clock", "--frames", "1", "--json"], b"1 w\n2 r\n1\n").silent();
    let expected = serde_json::json!({
        "schema": 1, "trace": "-", "policy": "clock", "frames": 1, "references": 3, "pages": 2,
        "faults": 3,
        "reclaims": 0, "write_backs": 1, "cost": {
            "2": 6.0, "8.6": 25.799999999999997, "120": 360.0 },
    });
    assert_eq!(json(&outcome), [expected]);
}

#[test]
fn the_table_for_people() {
    let outcome =
        fed(&["--policy", "fifo", "--frames", "3..4", "--ratio", "2"], BELADY.as_bytes()).silent();
    let expected = "\
-: 12 references to 5 pages
policy  frames  faults   per ref  reclaims  writes  cost 2:1
fifo         3       9  0.750000         0       0        18
fifo         4      10  0.833333         0       0        20
";
    assert_eq!(outcome.out, expected);
}

#[test]
fn forms_and_files_of_one_trace_agree() {
    let folder = scratch();
    let plain = write(folder.path(), "plain", BELADY);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(BELADY.as_bytes()).unwrap();
    // Names do not matter: the content says how it is packed.
    let gz = write(folder.path(), "packed", gz.finish().unwrap());
    let zst = write(folder.path(), "trace.zst", zstd::encode_all(BELADY.as_bytes(), 1).unwrap());
    let hex = write(folder.path(), "hex", BELADY.replace('\n', " r\r\n").replace('5', "0x5"));
    let outcome =
        simulate(&["--policy", "clock", "--frames", "3", "--json", &plain, &gz, &zst, &hex])
            .silent();
    let lines = json(&outcome);
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["faults"] == lines[0]["faults"]), "{lines:?}");
    assert_eq!(lines[3]["trace"], hex.as_str());
}

#[test]
fn processes_and_divided_memory() {
    let text: String =
        (0..300).map(|i| format!("{} {}\n", i % 10, ["a", "b"][i / 10 % 2])).collect();
    let words =
        ["--policy", "lru,lru:local=equal,lru:local=footprint", "--frames", "20,12", "--json"];
    let faults: Vec<u64> = json(&fed(&words, text.as_bytes()).silent())
        .iter()
        .map(|line| line["faults"].as_u64().unwrap())
        .collect();
    assert_eq!(faults, [20, 300, 20, 300, 20, 300]);
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    let folder = scratch();
    let file = |name: &str, content: &[u8]| write(folder.path(), name, content);
    let good = file("good", BELADY.as_bytes());
    let bad = file("bad", b"1\n2\nthree\n");
    let packed = zstd::encode_all(fs::read(&good).unwrap().repeat(999).as_slice(), 1).unwrap();
    let cut = file("cut.zst", &packed[..packed.len() - 9]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&BELADY.repeat(5000).into_bytes()).unwrap();
    let whole = gz.finish().unwrap();
    let cut_gz = file("cut.gz", &whole[..whole.len() / 2]);
    let mut damaged = whole;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let damaged = file("damaged.gz", &damaged);
    let empty = file("empty", b"");
    let cases: [(&[&str], &str); 16] = [
        (&["--policy", "fifo", "--frames", "0", &good], "zero frames"),
        (&["--policy", "fifo", "--frames", "-1", &good], "cannot be '-1'"),
        (&["--policy", "fifo", "--frames", "3,,4", &good], "cannot be ''"),
        (&["--policy", "fifo", "--frames", "99999999999", &good], "below 4294967295"),
        (&["--policy", "lfu", "--frames", "3", &good], "unknown policy 'lfu'; there are fifo"),
        (&["--policy", "clock:enter=1", "--frames", "3", &good], "clock has no option 'enter'"),
        (&["--policy", "sws:window=x", "--frames", "3", &good], "window cannot be 'x'"),
        (&["--policy", "fifo", "--frames", "3", &bad], "bad: line 3: 'three' is no page number"),
        (&["--policy", "fifo", "--frames", "3", &empty], "the trace is empty"),
        (&["--policy", "fifo", "--frames", "3", &cut], "the file is truncated"),
        (&["--policy", "fifo", "--frames", "3", &cut_gz], "cut.gz: after line "),
        (&["--policy", "min", "--frames", "3", &damaged], "damaged.gz: "),
        (&["--policy", "fifo", "--frames", "3", "/nowhere"], "cannot open the trace /nowhere"),
        (&["--policy", "fifo", "--frames", "3", "/"], "Is a directory"),
        (&["--frames", "3", &good], "--policy is needed"),
        (&["--policy", "fifo", "--frames", "3", "--ratio", "-2", &good], "--ratio"),
    ];
    for (words, part) in cases {
        let outcome = simulate(words);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{words:?} {outcome:?}");
        assert_eq!(outcome.err.lines().count(), 1, "{words:?} {outcome:?}");
        assert!(
            outcome.err.starts_with("odfork") && outcome.err.contains(part),
            "{words:?} {outcome:?}"
        );
    }
}

#[test]
fn ctrl_c_keeps_what_was_counted() {
    let mut command = page(&["simulate", "--policy", "fifo", "--frames", "2", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut command).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all("1\n2\n3\n".repeat(1000).as_bytes()).unwrap();
    // The pipe stays open: the trace has not ended.
    let pid = rustix::process::Pid::from_child(&child);
    std::thread::sleep(Duration::from_millis(500));
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(done.status.code(), Some(130), "{done:?}");
    let line: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&line["references"], &line["interrupted"]), (&3000.into(), &true.into()));
    assert!(text(&done.stderr).contains("interrupted after 3000 references"), "{done:?}");
}

/// Counts that the libraries of `.ci/oracle` gave for traces of real programs, so that they are
/// looked at without these too.
#[test]
fn traces_of_real_programs_count_as_the_oracle_counted() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/cli/golden/page-traces.txt");
    let mut names: Vec<PathBuf> =
        fs::read_dir(TRACES).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut found = String::new();
    for path in names {
        let words = [
            "--policy",
            "fifo,lru,clock,clock:insert=0,min,rand,sws,pff,vms,unix",
            "--frames",
            "40,80,160,320,640",
            "--json",
        ];
        let outcome = finish(page(&["simulate"]).args(words).arg(&path)).silent();
        for line in json(&outcome) {
            found += &format!(
                "{} {} {} {} {} {}\n",
                path.file_stem().unwrap().to_string_lossy(),
                line["policy"].as_str().unwrap(),
                line["frames"],
                line["faults"],
                line["reclaims"],
                line["write_backs"]
            );
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(golden, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(golden).unwrap());
}

#[test]
fn a_program_is_recorded_with_its_status_and_its_marks() {
    if !output(Command::new("sh").args(["-c", "command -v valgrind"])).status.success() {
        return skip("a_program_is_recorded", "valgrind is not installed");
    }
    let folder = scratch();
    let out = folder.path().join("sh.zst");
    let script = "echo '# anomalous on' >&$ODFORK_PAGE_MARKS; echo '# anomalous off' \
                  >&$ODFORK_PAGE_MARKS; echo said; exit 7";
    // More than one digit before >& is bash's.
    let mut command = page(&["trace", "--process", "gc", "--window", "4", "--out"]);
    command.arg(&out).args(["--", "/bin/bash", "-c", script]);
    let outcome = finish(&mut command);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(7), "said\n"), "{outcome:?}");
    assert!(outcome.err.contains("references of"), "{outcome:?}");
    let trace =
        String::from_utf8(zstd::decode_all(fs::File::open(&out).unwrap()).unwrap()).unwrap();
    let marks: Vec<&str> = trace.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(marks, ["# anomalous gc on", "# anomalous gc off"]);
    let out = out.to_str().unwrap();
    let lines =
        json(&simulate(&["--policy", "lru,min,unix", "--frames", "50", "--json", out]).silent());
    let references = lines[0]["references"].as_u64().unwrap();
    assert_eq!(references as usize, trace.lines().count() - 2);
    assert!(references > 1000 && lines[0]["write_backs"].as_u64().unwrap() > 0, "{lines:?}");
}

#[test]
fn a_recording_that_cannot_be_says_why() {
    let folder = scratch();
    let out = folder.path().join("t.gz");
    let out = out.to_str().unwrap();
    let mut lonely = page(&["trace", "--out", out, "--", "/bin/true"]);
    let outcome = finish(lonely.env("PATH", "/nowhere"));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("apt-get install valgrind"), "{outcome:?}");
    for words in [
        &["--page-size", "5000", "--", "true"][..],
        &["--process", "r", "--", "true"],
        &["--window", "0", "--", "true"],
        &["--out", "/nowhere/x", "--", "true"],
        &["--"],
    ] {
        let outcome = finish(page(&["trace"]).args(words));
        assert_eq!((outcome.code, outcome.err.lines().count()), (Some(2), 1), "{outcome:?}");
    }
}

#[test]
fn a_comparison_writes_a_chapter_that_the_report_includes() {
    let folder = scratch();
    let results = folder.path().join("results");
    let text: String = (0..40_000u64)
        .map(|i| {
            let mark = match i % 10_000 {
                8000 => "# anomalous - on\n",
                9999 => "# anomalous - off\n",
                _ => "",
            };
            format!("{mark}{} {}\n", (i / 400 * 3 + i * i % 23) % 200, ["r", "w"][i as usize % 2])
        })
        .collect();
    let first = write(folder.path(), "first.txt", &text);
    let second = write(folder.path(), "second.txt", text.replace("# anomalous", "#"));
    let dir = results.to_str().unwrap();
    let outcome = finish(&mut page(&["compare", "--dir", dir, &first, &second]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for claim in ["C1", "C2", "C3", "C4", "C5", "C6", "C7"] {
        assert!(outcome.out.contains(&format!("{claim}: ")), "{claim} {outcome:?}");
    }
    let markdown = fs::read_to_string(results.join("paging.md")).unwrap();
    assert!(markdown.contains("| C7 |") && markdown.contains("plots/paging-first-faults.svg"));
    for plot in ["first-faults", "second-cost-2", "second-cost-8-6", "first-cost-120"] {
        assert!(results.join(format!("plots/paging-{plot}.svg")).exists(), "{plot}");
    }
    let report = finish(bare(odfork_path()).args(["report", dir]));
    assert_eq!(report.code, Some(0), "{report:?}");
    let html = fs::read_to_string(results.join("report.html")).unwrap();
    assert!(html.contains("id=\"paging\"") && html.contains("Claims of the paper"));
}

#[test]
fn too_little_to_compare_is_said() {
    let folder = scratch();
    let dir = folder.path().join("x");
    let tiny = write(folder.path(), "tiny", BELADY);
    let with = finish(&mut page(&["compare", "--dir", dir.to_str().unwrap(), &tiny]));
    let without = finish(&mut page(&["compare", "--dir", dir.to_str().unwrap()]));
    assert_eq!((with.code, without.code), (Some(2), Some(2)));
    assert!(with.err.contains("only 5 distinct pages"), "{with:?}");
    assert!(without.err.contains("--record"), "{without:?}");
}
