//! `odfork run --engine`: which engine a program gets on this kernel, and what is said where it
//! cannot be had.
//!
//! Half of these tests need a kernel with the patches of kernel/, the other half one without; each
//! says when it skips. The first half runs in a guest: `odfork kernel boot -- TESTS engine::`.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::stage::{
    compiled, copy, finish, odfork, root, scratch, skip, start, text, witness, Outcome,
};

/// Whether forks of this kernel can share page tables.
pub fn supported() -> bool {
    odfork_proc::cow_fork::support().usable()
}

fn engine(words: &[&str]) -> Command {
    let mut command = odfork(&["run"]);
    command.env_remove("ODFORK_ENGINE").args(words);
    command
}

fn witnessed(words: &[&str], question: &[&str]) -> Outcome {
    finish(engine(words).arg("--").arg(witness()).args(question))
}

/// What /proc says in the program about its mode.
fn mode(words: &[&str]) -> Outcome {
    finish(engine(words).args(["--", "cat", "/proc/self/use_odf"]))
}

#[test]
fn auto_preloads_on_a_kernel_without_support() {
    if supported() {
        return skip("auto_preloads_on_a_kernel_without_support", "this kernel has support");
    }
    for words in [&[][..], &["--engine", "auto"], &["--engine", "image"]] {
        assert_eq!(witnessed(words, &["preloaded"]).silent().out, "yes\n", "{words:?}");
    }
}

#[test]
fn the_kernel_engine_without_support_is_one_line_and_no_program() {
    if supported() {
        let test = "the_kernel_engine_without_support_is_one_line_and_no_program";
        return skip(test, "this kernel has support");
    }
    let by_flag = witnessed(&["--engine", "kernel"], &["preloaded"]);
    let mut by_variable = odfork(&["run", "--"]);
    let by_variable =
        finish(by_variable.arg(witness()).arg("preloaded").env("ODFORK_ENGINE", "kernel"));
    for outcome in [by_flag, by_variable] {
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{outcome:?}");
        let line = outcome.only_line();
        for words in ["'kernel' cannot be had", "CONFIG_COW_PTE_TABLES", "--engine image or auto"] {
            assert!(line.contains(words), "{line}");
        }
    }
}

#[test]
fn an_engine_that_does_not_exist_is_a_slip() {
    let outcome = witnessed(&["--engine", "kernl"], &["preloaded"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.only_line().contains("did you mean 'kernel'?"), "{outcome:?}");
    let mut command = odfork(&["run", "--freeze", "auto", "--"]);
    let outcome = finish(command.arg(witness()).arg("exit").arg("3").env("ODFORK_ENGINE", "imag"));
    assert_eq!(outcome.code, Some(3));
    assert!(outcome.only_line().ends_with("did you mean image?"), "{outcome:?}");
}

#[test]
fn the_choice_of_engine_is_not_handed_to_the_program() {
    let seen = witnessed(&["--engine", "image"], &["environment"]).silent();
    assert!(seen.out.contains("LD_PRELOAD=") && !seen.out.contains("ODFORK_ENGINE"), "{seen:?}");
}

#[test]
fn the_kernel_engine_adds_nothing_and_takes_static_programs() {
    if !supported() {
        let test = "the_kernel_engine_adds_nothing_and_takes_static_programs";
        return skip(test, "this kernel shares no page tables");
    }
    for words in [&[][..], &["--engine", "auto"], &["--engine", "kernel"]] {
        assert_eq!(mode(words).silent().out, "2\n", "{words:?}");
        let seen = witnessed(words, &["environment"]).silent();
        assert!(!seen.out.contains("LD_PRELOAD") && !seen.out.contains("ODFORK_PID"), "{seen:?}");
    }
    for words in [&["--engine", "image"][..], &["--freeze", "eager"]] {
        assert_eq!(mode(words).silent().out, "0\n", "{words:?}");
        assert_eq!(witnessed(words, &["preloaded"]).silent().out, "yes\n", "{words:?}");
    }
    let program = compiled("static", "witness.c", &["-static"]);
    let outcome = finish(engine(&["--"]).arg(&program).args(["exit", "5"]));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(5), ""));
    let outcome = finish(odfork(&["check"]).arg(&program).env_remove("ODFORK_ENGINE"));
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.out.contains("the kernel engine takes it"), "{outcome:?}");
}

#[test]
fn statistics_of_the_kernel_engine_leave_the_programs_end_as_it_is() {
    if !supported() {
        let test = "statistics_of_the_kernel_engine_leave_the_programs_end_as_it_is";
        return skip(test, "this kernel shares no page tables");
    }
    let stats = ["--engine", "kernel", "--stats", "text"];
    let outcome = witnessed(&stats, &["exit", "7"]);
    assert_eq!(outcome.code, Some(7));
    assert!(outcome.err.contains("engine kernel") && outcome.err.contains("whole system"));
    let outcome = witnessed(&stats, &["die", "15"]);
    assert_eq!(outcome.signal, Some(15), "{outcome:?}");

    let folder = scratch();
    let file = folder.path().join("s.json");
    let words = ["--engine=kernel", "--stats=json", "--stats-file", file.to_str().unwrap()];
    let code = "import os; a = bytearray(64 << 20); [os.waitpid(p, 0) if p else os._exit(0) for p \
                in [os.fork()]]";
    finish(engine(&words).args(["--", "python3", "-c", code])).silent();
    let written = std::fs::read_to_string(&file).unwrap();
    let object: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&object["engine"], &object["scope"]), (&"kernel".into(), &"system".into()));
    assert!(object["cowpt"]["share"].as_u64().unwrap() >= 20, "{written}");

    let outcome = finish(engine(&stats).args(["--", "/nowhere/program"]));
    assert_eq!(outcome.code, Some(127));
    assert!(outcome.only_line().contains("no such file"), "{outcome:?}");
}

#[test]
fn signals_sent_to_odfork_reach_the_program_whose_counters_it_awaits() {
    if !supported() {
        let test = "signals_sent_to_odfork_reach_the_program_whose_counters_it_awaits";
        return skip(test, "this kernel shares no page tables");
    }
    let mut command = engine(&["--engine", "kernel", "--stats", "text", "--"]);
    command.args(["sh", "-c", "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"]);
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert!(text(&output.stderr).contains("whole system"), "{output:?}");
}

#[test]
fn setuid_programs_start_without_the_kernel_engine_after_one_line() {
    let test = "setuid_programs_start_without_the_kernel_engine_after_one_line";
    if !supported() || !root() {
        return skip(test, "needs a kernel that shares page tables, and root");
    }
    let folder = scratch();
    let program = copy(folder.path(), "setuid");
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    crate::stage::mode(&program, 0o4755);
    let outcome = finish(engine(&["--engine=kernel", "--"]).arg(&program).args(["exit", "4"]));
    assert_eq!(outcome.code, Some(4));
    let line = outcome.only_line();
    assert!(line.contains("is setuid to user 65534, so the kernel switches sharing off"), "{line}");
}
