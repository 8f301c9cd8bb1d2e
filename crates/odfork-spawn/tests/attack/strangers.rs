//! Others at work: threads that wait for any child, the kernel that reaps, tracers, fork, and the
//! runtime of odfork.
//!
//! Owns what a spawn owes to, and may expect from, the rest of its process.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use odfork_spawn::{Command, Step};

use crate::kernel;
use crate::Case;

pub const CASES: &[(&str, Case)] = &[
    ("children_that_are_not_to_be_waited_for", || reaped_by_the_kernel(false)),
    ("children_with_no_cldwait", || reaped_by_the_kernel(true)),
    ("a_thread_that_waits_for_any_child", thief),
    ("a_stolen_child_is_not_signalled", stolen_is_not_signalled),
    ("ignored_hangup_stays_ignored", nohup),
    ("forks_and_spawns_at_once", forks_and_spawns),
    ("forks_and_spawns_under_odfork_run", under_odfork),
    ("traced_by_strace", traced),
];

fn reaped_by_the_kernel(flag: bool) -> Result<(), String> {
    match flag {
        true => kernel::on(libc::SIGCHLD, libc::SIG_DFL, libc::SA_NOCLDWAIT),
        false => kernel::on(libc::SIGCHLD, libc::SIG_IGN, 0),
    }
    let before = kernel::descriptors();
    for _ in 0..200 {
        let mut child = Command::new("/bin/true").pidfd(true).spawn().unwrap();
        let error = child.wait().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
        let error = Command::new("/no/such").pidfd(true).spawn().map(drop).unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (Step::Exec, Some(libc::ENOENT)));
        if kernel::is_root() {
            let error = Command::new("/bin/true").uid(kernel::USER).status().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
        }
        drop(Command::new("/bin/sleep").arg("60").kill_on_drop(true).spawn().unwrap());
    }
    assert_eq!(kernel::descriptors(), before);
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
    Ok(())
}

/// Failures are told from the report, whoever takes the status; nobody waits for ever.
fn thief() -> Result<(), String> {
    let (done, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // SAFETY: no status is stored.
                let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
                taken.fetch_add(u64::from(pid > 0), Relaxed);
            }
        });
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(under_theft)).collect();
        let joined: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Relaxed);
        assert!(joined.into_iter().all(|j| j.is_ok()));
    });
    assert!(taken.load(Relaxed) > 0, "nothing was taken: nothing was tried");
    kernel::no_child_is_left();
    Ok(())
}

fn under_theft() {
    for _ in 0..150 {
        let error = Command::new("/no/such").pidfd(true).spawn().map(drop).unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (Step::Exec, Some(libc::ENOENT)));
        let mut child = Command::new("/bin/true").spawn().unwrap();
        match child.wait_timeout(Duration::from_secs(60)) {
            Ok(status) => assert!(status.unwrap().success()),
            Err(e) => assert!(matches!(e.raw_os_error(), Some(libc::ECHILD | libc::ESRCH)), "{e}"),
        }
    }
}

/// With a pidfd the number is not used: it may be another's by now.
fn stolen_is_not_signalled() -> Result<(), String> {
    let mut child = Command::new("/bin/true").pidfd(true).kill_on_drop(true).spawn().unwrap();
    let pid = child.id() as i32;
    // SAFETY: our child; no status is stored.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    let mut stranger = reuse(pid)?;
    let error = child.signal(libc::SIGKILL).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    drop(child);
    stranger.kill().unwrap();
    let status = stranger.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    Ok(())
}

/// A process with the same number: the next one, where the kernel lets us say which.
fn reuse(pid: i32) -> Result<std::process::Child, String> {
    for _ in 0..20 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())
            .map_err(|e| format!("ns_last_pid: {e}"))?;
        let mut next = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        if next.id() as i32 == pid {
            return Ok(next);
        }
        next.kill().and_then(|()| next.wait()).map_err(|e| e.to_string())?;
    }
    Err("others took the number first".into())
}

fn nohup() -> Result<(), String> {
    kernel::on(libc::SIGHUP, libc::SIG_IGN, 0);
    let status = Command::new("/bin/sh").args(["-c", "kill -HUP $$; exit 42"]).status().unwrap();
    assert_eq!(status.code(), Some(42));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "kill -HUP $$; exit 42"]);
    command.default_signals(odfork_spawn::SignalSet::empty().with(libc::SIGHUP));
    assert_eq!(command.status().unwrap().signal(), Some(libc::SIGHUP));
    Ok(())
}

const WORDS: usize = 4 << 20;

/// One thread forks, and each child sees the memory of its birth; the others spawn.
fn forks_and_spawns() -> Result<(), String> {
    let done = AtomicBool::new(false);
    let spawned = AtomicU64::new(0);
    let mut region: Vec<u64> = (0..WORDS as u64).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let output = Command::new("/bin/cat").output_for(b"through").unwrap();
                    assert_eq!(output.stdout, b"through");
                    Command::new("/no/such").spawn().map(drop).unwrap_err();
                    spawned.fetch_add(1, Relaxed);
                }
            });
        }
        for round in 0..40u64 {
            (0..WORDS).step_by(512).for_each(|i| region[i] = round * 1_000_000_007 + i as u64);
            fork_and_check(&mut region, round);
        }
        while spawned.load(Relaxed) < 20 {
            std::thread::yield_now();
        }
        done.store(true, Relaxed);
    });
    kernel::no_child_is_left();
    Ok(())
}

fn fork_and_check(region: &mut [u64], round: u64) {
    // SAFETY: the child only reads and writes its own copy, and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let right = |i: usize| match i % 512 {
            0 => region[i] == round * 1_000_000_007 + i as u64,
            _ => region[i] == i as u64,
        };
        let all = (0..WORDS).all(right);
        region[7] = 0;
        // SAFETY: ends this process.
        unsafe { libc::_exit(if all { 42 } else { 1 }) };
    }
    // While the child reads.
    for i in (1..WORDS).step_by(64).filter(|i| i % 512 != 0) {
        region[i] = std::hint::black_box(i as u64);
    }
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!((status, region[7]), (42 << 8, 7), "round {round}");
}

fn this_program() -> PathBuf {
    std::fs::read_link("/proc/self/exe").unwrap()
}

/// The launcher beside this test, where `cargo build --workspace` puts it.
fn under_odfork() -> Result<(), String> {
    let this = this_program();
    let launcher = this.ancestors().nth(2).unwrap().join("odfork");
    if !launcher.exists() {
        return Err(format!("{} is not built", launcher.display()));
    }
    for mode in ["eager", "auto"] {
        let mut command = std::process::Command::new(&launcher);
        command
            .args(["run", "--freeze", mode, "--"])
            .arg(&this)
            .args(["--case", "forks_and_spawns_at_once"]);
        let status = command.status().unwrap();
        assert!(status.success(), "--freeze {mode}: {status}");
    }
    Ok(())
}

fn traced() -> Result<(), String> {
    let strace = std::process::Command::new("strace").arg("-V").output();
    strace.map_err(|e| format!("strace: {e}"))?;
    for case in
        ["steps_of_the_child_that_fail", "all_of_a_process_is_inherited_as_asked", "clone3_enosys"]
    {
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null"]).arg(this_program()).args(["--case", case]);
        assert!(command.status().unwrap().success(), "{case}");
    }
    Ok(())
}
