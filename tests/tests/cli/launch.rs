//! `odfork run` with programs that can be accelerated: what is added, what is passed through, how
//! failures are told.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::{
    bare, copy, finish, install, mode, odfork, odfork_path, root, run, scratch, script, start,
    stub, text, witness,
};

/// The entries a program printed, each ended by a zero byte.
fn entries(out: &str) -> Vec<String> {
    out.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn the_library_is_loaded_and_nothing_is_said() {
    assert_eq!(finish(&mut run(witness(), &["preloaded"])).silent().out, "yes\n");
    assert_eq!(
        finish(bare(witness()).arg("preloaded")).out,
        "no\n",
        "the stub must not be there by itself"
    );
}

#[test]
fn only_ld_preload_and_the_pid_are_added_to_the_environment() {
    let mut command = run(witness(), &["environment"]);
    command.env("A", "1 2\n3").env("Z", "").env("ODFORK_FREEZE", "never");
    let child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let pid = child.id();
    let seen = entries(&text(&child.wait_with_output().unwrap().stdout));

    let mut plain = bare(witness());
    plain
        .arg("environment")
        .env("A", "1 2\n3")
        .env("Z", "")
        .env("ODFORK_FREEZE", "never")
        .env("ODFORK_LIB", stub());
    let mut expected = entries(&finish(&mut plain).out);
    expected.push(format!("LD_PRELOAD={}", stub().display()));
    expected.push(format!("ODFORK_PID={pid}"));
    assert_eq!(seen, expected);
}

#[test]
fn flags_become_variables_and_replace_inherited_ones_in_place() {
    let folder = scratch();
    let words = [
        "run",
        "--freeze=eager",
        "--image",
        "small",
        "--stats",
        "json",
        "--stats-file",
        "s.%p",
        "--",
    ];
    let mut command = odfork(&words);
    command.arg(witness()).arg("environment").env("ODFORK_FREEZE", "never").env("ODFORK_PID", "1");
    let seen = entries(&finish(command.current_dir(&folder)).silent().out);
    let value = |name: &str| -> Vec<&str> {
        seen.iter().filter_map(|entry| entry.strip_prefix(name)?.strip_prefix('=')).collect()
    };
    assert_eq!(value("ODFORK_FREEZE"), ["eager"]);
    assert_eq!(value("ODFORK_IMAGE"), ["small"]);
    assert_eq!(value("ODFORK_STATS"), ["json"]);
    let file = fs::canonicalize(&folder).unwrap().join("s.%p");
    assert_eq!(value("ODFORK_STATS_FILE"), [file.to_str().unwrap()]);
    assert_ne!(value("ODFORK_PID"), ["1"]);
    assert_eq!(value("ODFORK_QUIET").len(), 0);
}

#[test]
fn an_inherited_preload_list_stays_behind_ours_and_entries_without_equals_survive() {
    let mut command = run(witness(), &["environment"]);
    let other = crate::stage::compiled("other.so", "stub.c", &["-shared", "-fPIC"]);
    command.env("LD_PRELOAD", &other);
    let seen = entries(&finish(&mut command).silent().out);
    assert!(
        seen.contains(&format!("LD_PRELOAD={}:{}", stub().display(), other.display())),
        "{seen:?}"
    );

    // Only a raw execve can hand over an entry without "=": python does.
    let code = format!(
        "import ctypes; c=ctypes.CDLL(None); \
         a=(ctypes.c_char_p*6)(b'odfork',b'run',b'--engine=image',b'{}',b'environment',None); \
         e=(ctypes.c_char_p*4)(b'odd',b'ODFORK_LIB={}',b'B=2',None); c.execve(b'{}',a,e)",
        witness().display(),
        stub().display(),
        odfork_path()
    );
    let outcome = finish(bare("python3").args(["-c", &code]));
    let seen = entries(&outcome.out);
    assert_eq!(seen.len(), 5, "{outcome:?}");
    assert_eq!((seen[0].as_str(), seen[2].as_str()), ("odd", "B=2"), "{seen:?}");
}

#[test]
fn arguments_arrive_as_typed() {
    let words = ["arguments", "", "a b", "x\ny", "--", "--freeze", "-q", "\u{e9}'\"$"];
    let seen = entries(&finish(&mut run(witness(), &words)).silent().out);
    assert_eq!(seen[0], witness().to_str().unwrap());
    assert_eq!(seen[1..], words);

    // A name found through PATH stays the name in argv[0], and `--` may be left out.
    let folder = scratch();
    copy(folder.path(), "spoken name");
    let mut command = odfork(&["run", "spoken name", "arguments", "--help"]);
    let seen = entries(&finish(command.env("PATH", folder.path())).silent().out);
    assert_eq!(seen, ["spoken name", "arguments", "--help"]);
}

#[test]
fn the_program_takes_the_launchers_place() {
    let mut command = run(witness(), &["pid"]);
    let child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let pid = child.id();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), format!("{pid}\n"));
}

#[test]
fn exit_status_and_death_by_signal_are_the_programs_own() {
    for status in ["0", "7", "126", "255"] {
        let outcome = finish(&mut run(witness(), &["exit", status]));
        assert_eq!((outcome.code, outcome.err.as_str()), (status.parse().ok(), ""));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGPIPE] {
        let outcome = finish(&mut run(witness(), &["die", &signal.to_string()]));
        assert_eq!((outcome.signal, outcome.err.as_str()), (Some(signal), ""));
    }
}

#[test]
fn a_missing_program_is_127_with_the_name_that_was_meant() {
    let folder = scratch();
    copy(folder.path(), "server");
    let mut command = odfork(&["run", "--", "servr"]);
    let outcome = finish(command.env("PATH", folder.path()));
    assert_eq!(outcome.code, Some(127));
    assert_eq!(
        outcome.only_line(),
        "odfork: cannot run 'servr': no such program in PATH; did you mean 'server'?"
    );

    let path = folder.path().join("sever");
    let outcome = finish(&mut run(&path, &[]));
    assert_eq!(outcome.code, Some(127));
    let line = format!(
        "odfork: cannot run '{}': no such file; did you mean '{}/server'?",
        path.display(),
        folder.path().display()
    );
    assert_eq!(outcome.only_line(), line);
    assert_eq!(finish(&mut run("/nowhere/at\nall", &[])).only_line().matches("\\n").count(), 1);
}

#[test]
fn what_may_not_be_executed_is_126() {
    let folder = scratch();
    let path = copy(folder.path(), "program");
    mode(&path, 0o644);
    let cases = [
        (path.as_path(), "chmod +x"),
        (folder.path(), "is a directory"),
        ("/dev/null".as_ref(), "not a regular file"),
    ];
    for (path, words) in cases {
        let outcome = finish(&mut run(path, &[]));
        assert_eq!(outcome.code, Some(126), "{outcome:?}");
        assert!(outcome.only_line().contains(words), "{outcome:?}");
    }
}

#[test]
fn a_script_whose_interpreter_is_missing_says_which() {
    let folder = scratch();
    let path = script(folder.path(), "broken", "#!/nowhere/pyton\n");
    let outcome = finish(&mut run(&path, &[]));
    assert_eq!(outcome.code, Some(127));
    assert!(
        outcome.only_line().contains("needs /nowhere/pyton, which is not there"),
        "{outcome:?}"
    );
    let path = script(folder.path(), "broken-env", "#!/usr/bin/env nonesuch-tool\n");
    let outcome = finish(&mut odfork(&["check", path.to_str().unwrap()]));
    assert_eq!(outcome.code, Some(127));
    assert!(outcome.out.contains("needs nonesuch-tool"), "{outcome:?}");
}

#[test]
fn scripts_run_with_the_library_in_their_interpreter() {
    let folder = scratch();
    let body = format!("\nexec {} preloaded\n", witness().display());
    for (name, first) in [
        ("sh", "#!/bin/sh"),
        ("env", "#!/usr/bin/env sh"),
        ("split", "#!/usr/bin/env -S sh -e"),
        ("none", ""),
    ] {
        let path = script(folder.path(), name, format!("{first}{body}"));
        assert_eq!(finish(&mut run(&path, &[])).silent().out, "yes\n", "{name}");
    }
}

#[test]
fn without_a_library_the_program_runs_plainly_after_one_line() {
    let folder = scratch();
    let missing = folder.path().join("libodfork.so");
    let mut command = run(witness(), &["environment"]);
    command.env("ODFORK_LIB", &missing);
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(0));
    let line = outcome.only_line();
    assert!(line.contains(missing.to_str().unwrap()) && line.contains("make install"), "{line}");
    assert!(
        !outcome.out.contains("LD_PRELOAD") && !outcome.out.contains("ODFORK_PID"),
        "{outcome:?}"
    );

    let wrong = script(folder.path(), "text.so", "not a library");
    let mut command = run(witness(), &["preloaded"]);
    let outcome = finish(command.env("ODFORK_LIB", wrong));
    assert!(outcome.only_line().contains("not a shared library for this machine"));

    let spaced = folder.path().join("with blank.so");
    fs::copy(stub(), &spaced).unwrap();
    let mut command = run(witness(), &["preloaded"]);
    let outcome = finish(command.env("ODFORK_LIB", spaced));
    assert_eq!(outcome.out, "no\n");
    assert!(outcome.only_line().contains("cannot be named in LD_PRELOAD"));
}

#[test]
fn the_library_is_found_beside_the_launcher_and_in_lib() {
    for place in ["bin", "lib/odfork", "lib", "lib/x86_64-linux-gnu", "lib64"] {
        let folder = scratch();
        let place = folder.path().join(place);
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        fs::create_dir_all(&place).unwrap();
        let launcher = folder.path().join("bin/odfork");
        install(Path::new(odfork_path()), &launcher);
        let command = || {
            let mut command = bare(&launcher);
            command.arg("run").arg(witness()).arg("preloaded");
            command
        };
        assert_eq!(finish(&mut command()).out, "no\n", "nothing there yet");
        fs::copy(stub(), place.join("libodfork.so")).unwrap();
        assert_eq!(finish(&mut command()).silent().out, "yes\n", "{place:?}");
    }
}

#[test]
fn slips_in_the_environment_get_one_line_unless_quiet() {
    let mut command = run(witness(), &["preloaded"]);
    let outcome = finish(command.env("ODFORK_FREZE", "eager"));
    assert_eq!(outcome.out, "yes\n");
    assert!(outcome.only_line().ends_with("did you mean ODFORK_FREEZE?"), "{outcome:?}");
    let mut command = odfork(&["run", "--quiet", "--"]);
    command.arg(witness()).arg("preloaded");
    finish(command.env("ODFORK_FREZE", "eager")).silent();
    let mut command = run(witness(), &["preloaded"]);
    finish(command.env("ODFORK_FREZE", "eager").env("ODFORK_QUIET", "1")).silent();
}

#[test]
fn values_that_the_library_does_not_understand_are_told() {
    for (variable, value, expected) in [
        ("ODFORK_MAX_PAUSE", "5ms", "should be whole milliseconds"),
        ("ODFORK_PID", "abc", "should be a process id"),
        ("ODFORK_FAULT", "copy", "STEP:ERRNO or slow:MS"),
        ("ODFORK_STATS_FILE", "/nowhere/x", "has no directory /nowhere"),
    ] {
        let mut command = run(witness(), &["preloaded"]);
        let outcome = finish(command.env("ODFORK_STATS", "text").env(variable, value));
        assert_eq!(outcome.out, "yes\n");
        assert!(outcome.only_line().contains(expected), "{outcome:?}");
        let mut command = odfork(&["run", "--max-pause", "5", "--stats-file"]);
        command.args(["/dev/null", "--stats=text", "--"]).arg(witness()).arg("preloaded");
        let outcome = finish(command.env(variable, value));
        assert_eq!(outcome.err.is_empty(), !matches!(variable, "ODFORK_PID" | "ODFORK_FAULT"));
    }
}

#[test]
fn wrong_options_are_2_and_one_line() {
    let cases: [(&[&str], &str); 9] = [
        (&["run", "--freez", "auto", "true"], "did you mean '--freeze'?"),
        (&["run", "--image", "hugh", "true"], "did you mean 'huge'?"),
        (&["run", "--stats-file", "x", "true"], "needs --stats text or --stats json"),
        (
            &["run", "--stats", "json", "--stats-file", "/nowhere/x", "true"],
            "no directory /nowhere",
        ),
        (&["run", "--max-pause", "5ms", "true"], "'5ms': it should be whole milliseconds"),
        (&["run", "--max-pause=-1", "true"], "'-1': it should be whole milliseconds"),
        (&["run", "--max-pause", "0.5", "true"], "'0.5': it should be whole milliseconds"),
        (&["run", "--max-pause", "99999999999999999999", "true"], "whole milliseconds"),
        (&["true"], "odfork run -- true"),
    ];
    for (words, expected) in cases {
        let outcome = finish(&mut odfork(words));
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{outcome:?}");
        assert!(outcome.only_line().contains(expected), "{outcome:?}");
    }
}

#[test]
fn a_statistics_file_that_cannot_be_written_is_told_at_the_start() {
    let nobody = |command: &mut Command| {
        if root() {
            command.uid(65534).gid(65534);
        }
        finish(command)
    };
    let reason = "cannot be written: /: Permission denied";
    let outcome = nobody(&mut odfork(&["run", "--stats=json", "--stats-file", "/x", "true"]));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.only_line().contains(reason), "{outcome:?}");
    let mut command = run(witness(), &["preloaded"]);
    command.env("ODFORK_STATS_FILE", "/x");
    finish(&mut command).silent();
    let outcome = nobody(command.env("ODFORK_STATS", "text"));
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), "yes\n"));
    assert!(outcome.only_line().contains(reason), "{outcome:?}");
}

/// A command whose environment has about `total` bytes.
fn filled(library: &Path, total: usize) -> Command {
    let mut command = bare(odfork_path());
    for index in 0..total / 1000 {
        command.env(format!("F{index:07}"), "x".repeat(990));
    }
    command.env("REST", "y".repeat(total % 1000)).env("ODFORK_LIB", library);
    command.args(["run", "--"]).arg(witness()).arg("preloaded");
    command
}

#[test]
fn variables_of_ours_that_do_not_fit_any_more_are_left_out() {
    // A long path, so that LD_PRELOAD needs more room than the launcher's own words give back.
    let folder = scratch();
    let deep = folder.path().join("d".repeat(200)).join("e".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    let library = deep.join("libodfork.so");
    fs::copy(stub(), &library).unwrap();
    let starts = |total: usize| {
        start(filled(&library, total).stdout(Stdio::null())).map(|mut child| child.wait())
    };
    // Search the largest environment that the kernel lets the launcher start with.
    let (mut fits, mut too_big) = (100_000, 16_000_000);
    while too_big - fits > 1 {
        let middle = (fits + too_big) / 2;
        match starts(middle) {
            Ok(_) => fits = middle,
            Err(_) => too_big = middle,
        }
    }
    assert_eq!(finish(&mut filled(&library, fits)).silent().out, "no\n");
    assert_eq!(finish(&mut filled(&library, fits - 2000)).silent().out, "yes\n");
}

#[test]
fn argv0_of_the_launcher_does_not_matter() {
    let mut command = odfork(&["run", "--"]);
    command.arg0("something else").arg(witness()).arg("preloaded");
    assert_eq!(finish(&mut command).silent().out, "yes\n");
}
