//! `odfork check`: the rows, and that they change when the machine is made worse on purpose.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::stage::{finish, odfork, root, skip, stub, witness};

const NOBODY: u32 = 65534;

fn json(command: &mut Command) -> Value {
    let outcome = finish(command);
    assert_eq!(outcome.err, "", "{outcome:?}");
    serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

fn row<'a>(report: &'a Value, id: &str) -> &'a Value {
    let rows = report["probes"].as_array().unwrap();
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}"))
}

fn answer<'a>(report: &'a Value, id: &str) -> &'a str {
    row(report, id)["answer"].as_str().unwrap()
}

fn worse(prepare: fn() -> io::Result<()>) -> Value {
    let mut command = odfork(&["check", "--json"]);
    // SAFETY: the functions below only make system calls.
    unsafe { command.pre_exec(prepare) };
    json(&mut command)
}

#[test]
fn the_report_is_complete() {
    let report = json(&mut odfork(&["check", "--json"]));
    assert_eq!(report["schema"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["library"]["path"], stub().to_str().unwrap());
    assert_eq!(report["program"], Value::Null);
    let rows = report["probes"].as_array().unwrap();
    assert!(rows.len() >= 15);
    for row in rows {
        assert!(["yes", "partly", "no"].contains(&row["answer"].as_str().unwrap()), "{row}");
        for field in ["id", "title", "found", "meaning", "change"] {
            assert!(!row[field].as_str().unwrap().is_empty(), "{field}: {row}");
        }
    }
    assert_eq!(answer(&report, "memfd"), "yes", "{report}");
    assert_eq!(answer(&report, "proc"), "yes");
}

#[test]
fn the_table_has_a_row_for_each_probe_and_fits_the_page() {
    let outcome = finish(&mut odfork(&["check"]));
    let report = json(&mut odfork(&["check", "--json"]));
    for row in report["probes"].as_array().unwrap() {
        let (word, title) = (row["answer"].as_str().unwrap(), row["title"].as_str().unwrap());
        assert!(
            outcome.out.contains(&format!("{word:<6}  {title}")),
            "{word} {title}: {}",
            outcome.out
        );
    }
    let long = outcome.out.lines().filter(|line| line.len() > 80 && !line.contains("libodfork.so"));
    assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(outcome.out.contains("In short: "));
}

#[test]
fn a_file_size_limit_shows_in_its_row_and_in_the_images() {
    let report = worse(|| {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: a limit of our own.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        Ok(())
    });
    assert_eq!(answer(&report, "rlimit-fsize"), "no");
    assert!(row(&report, "rlimit-fsize")["found"].as_str().unwrap().contains("1 MB"));
    assert_eq!(row(&report, "memfd")["found"], "killed by the file size limit");
    assert_eq!(report["image"], "none");
}

/// Installs a filter that kills for one call, as a sandbox would.
fn kill_for(call: libc::c_long) -> io::Result<()> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a complete filter program that lives across the call.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
fn a_filter_that_kills_is_an_answer() {
    let report = worse(|| kill_for(libc::SYS_memfd_create));
    assert_eq!(answer(&report, "seccomp"), "partly");
    assert_eq!(row(&report, "memfd")["found"], "killed by a seccomp filter");
    let free = json(&mut odfork(&["check", "--json"]));
    assert_eq!(answer(&report, "pagemap-scan"), answer(&free, "pagemap-scan"));
}

#[test]
fn huge_pages_switched_off_for_the_process() {
    let report = worse(|| {
        // SAFETY: sets a flag of the process.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        Ok(())
    });
    assert_eq!(answer(&report, "thp"), "no");
    assert_ne!(answer(&report, "huge-root"), "yes", "{report}");
}

#[test]
fn an_ordinary_user_cannot_mount_but_learns_what_to_do() {
    if !root() {
        return skip(
            "an_ordinary_user_cannot_mount_but_learns_what_to_do",
            "needs root to become nobody",
        );
    }
    let mut command = odfork(&["check", "--json"]);
    let report = json(command.uid(NOBODY).gid(NOBODY));
    assert_eq!(answer(&report, "huge-root"), "no");
    assert!(row(&report, "huge-root")["found"].as_str().unwrap().starts_with("fsopen: "));
    assert_ne!(report["image"], "huge");
    assert_eq!(answer(&report, "memfd"), "yes");
    assert_eq!(report["uid"], NOBODY);
}

/// What the conclusion and the exit status are made worse by.
fn worse_table(prepare: fn() -> io::Result<()>, library: &str) -> (Option<i32>, String) {
    let mut command = odfork(&["check"]);
    // SAFETY: the functions below only make system calls.
    unsafe { command.env("ODFORK_LIB", library).pre_exec(prepare) };
    let outcome = finish(&mut command);
    (outcome.code, outcome.out)
}

#[test]
fn nothing_is_promised_without_the_library() {
    let (status, table) = worse_table(|| Ok(()), "/nowhere/libodfork.so");
    assert_eq!(status, Some(1), "{table}");
    assert!(table.ends_with("every fork stays plain: there is no libodfork.so.\n"), "{table}");
}

#[test]
fn nothing_is_promised_without_proc() {
    if !root() {
        return skip("nothing_is_promised_without_proc", "needs root to cover /proc");
    }
    let cover = || {
        // SAFETY: mounts of a namespace of this process's own.
        let covered = unsafe {
            let (none, none_c) = (std::ptr::null(), std::ptr::null());
            libc::unshare(libc::CLONE_NEWNS)
                | libc::mount(none_c, c"/".as_ptr(), none_c, libc::MS_REC | libc::MS_PRIVATE, none)
                | libc::mount(c"x".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, none)
        };
        if covered == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    let (status, table) = worse_table(cover, stub().to_str().unwrap());
    assert_eq!(status, Some(1), "{table}");
    let end = "For any frozen memory, any of these:\n        - Mount it: mount -t proc proc /proc";
    assert!(table.contains(end) && !table.contains("For 2 MB pages"), "{table}");
    assert!(table.ends_with("every fork stays plain: /proc readable: no.\n"), "{table}");
    assert_eq!(worse(cover)["image"], "none");
}

fn in_directory(folder: &str) -> Value {
    json(odfork(&["check", "--json"]).env("ODFORK_IMAGE_DIR", folder))
}

#[test]
fn a_directory_that_is_not_fit_is_told_and_nothing_is_promised() {
    let free = json(&mut odfork(&["check", "--json"]));
    assert_eq!(answer(&free, "image-dir"), "partly");
    for (folder, why) in [("/proc", "it is not on a tmpfs"), ("/nowhere", "open: ")] {
        let report = in_directory(folder);
        assert!(row(&report, "image-dir")["found"].as_str().unwrap().starts_with(why), "{report}");
        assert_eq!(report["image"], "none");
    }
}

#[test]
fn what_threads_will_take_away_is_not_promised() {
    if !root() {
        return skip("what_threads_will_take_away_is_not_promised", "needs root to become nobody");
    }
    let run = |words: &[&str]| {
        let mut command = odfork(words);
        // SAFETY: a filter of the child's own, between fork and exec.
        unsafe { command.pre_exec(|| kill_for(libc::SYS_ptrace)) };
        finish(command.uid(NOBODY).gid(NOBODY)).out
    };
    let report: Value = serde_json::from_str(&run(&["check", "--json"])).unwrap();
    if answer(&report, "userfaultfd-wp") == "yes" {
        return skip("what_threads_will_take_away_is_not_promised", "anybody may use userfaultfd");
    }
    assert_eq!(row(&report, "ptrace")["found"], "killed by a seccomp filter");
    assert_eq!(report["threads"], false);
    let remedies = report["remedies"].as_array().unwrap();
    assert!(remedies.iter().any(|one| one["aim"] == "For programs with threads"), "{report}");
    let last = run(&["check"]).lines().last().unwrap().to_owned();
    assert!(last.ends_with("; programs with threads stay plain."), "{last}");
    let report = json(odfork(&["check", "--json"]).uid(NOBODY).gid(NOBODY));
    assert_eq!((answer(&report, "ptrace"), &report["threads"]), ("yes", &true.into()));
}

#[test]
fn a_program_gets_its_verdict_in_text_and_json() {
    let program = witness();
    let name = program.to_str().unwrap();
    let outcome = finish(&mut odfork(&["check", name])).silent();
    assert_eq!(outcome.out, format!("yes: {name} can be accelerated\n"));
    let report = json(&mut odfork(&["check", "--json", name]));
    assert_eq!(report["program"]["accelerated"], "yes");
    assert_eq!(report["program"]["files"][0], name);

    let fixed = crate::stage::compiled("static", "witness.c", &["-static"]);
    let report = json(&mut odfork(&["check", "--json", fixed.to_str().unwrap()]));
    assert_eq!(
        (&report["program"]["accelerated"], &report["program"]["kind"]),
        (&"no".into(), &"static".into())
    );
    assert!(!report["program"]["change"].as_str().unwrap().is_empty());

    let outcome = finish(&mut odfork(&["check", "/nowhere/tool"]));
    assert_eq!(outcome.code, Some(127));
    assert!(outcome.out.contains("no such file"), "{outcome:?}");
}

#[test]
fn a_missing_library_is_said_with_the_verdict() {
    let mut command = odfork(&["check", witness().to_str().unwrap()]);
    let outcome = finish(command.env("ODFORK_LIB", "/nowhere/libodfork.so"));
    assert!(
        outcome.out.contains("but libodfork.so was not found (looked for /nowhere/libodfork.so)"),
        "{outcome:?}"
    );
}
