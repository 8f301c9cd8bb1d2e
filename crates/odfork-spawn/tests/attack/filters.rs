//! Processes under seccomp: what a filter refuses is taken another method, or named.
//!
//! Owns the filters (a list of system calls and what happens to each) and the cases. The way a
//! child was made is asserted everywhere: a silent step down the ladder where none is due would be
//! a regression at fork's price.

use std::os::unix::process::ExitStatusExt;

use odfork_spawn::{Cause, CloneMethod, Command, Error, Step};

use crate::{kernel, probe, Case};

pub const CASES: &[(&str, Case)] = &[
    ("without_a_filter_clone3", || ladder(&[], CloneMethod::Clone3)),
    ("clone3_enosys", || ladder(&[refuse(libc::SYS_clone3, libc::ENOSYS)], CloneMethod::Clone)),
    ("clone3_eperm", || ladder(&[refuse(libc::SYS_clone3, libc::EPERM)], CloneMethod::Clone)),
    ("clone_of_shared_memory_refused", || {
        ladder(&[refuse(libc::SYS_clone3, libc::ENOSYS), SHARED_CLONE_REFUSED], CloneMethod::Copy)
    }),
    ("clone3_and_its_wishes_on_the_last_rung", last_rung_keeps_failures),
    ("no_way_left_is_an_error", no_way_left),
    ("close_range_refused_closes_all_the_same", close_range_refused),
    ("a_table_that_cannot_be_left_is_copied", table_refused),
    ("a_refused_step_is_named", refused_steps),
    ("a_killing_filter_is_named", killing_steps),
    ("a_killing_filter_at_exec_is_the_status", killed_at_exec),
    ("a_full_table_does_not_lose_clone3", full_table_keeps_clone3),
];

/// One system call and what happens to it.
#[derive(Clone, Copy)]
pub struct Rule {
    number: i64,
    /// Only when the first argument has all these bits.
    bits: u32,
    action: u32,
}

pub const fn refuse(number: i64, errno: i32) -> Rule {
    Rule { number, bits: 0, action: libc::SECCOMP_RET_ERRNO | errno as u32 }
}

const fn kill(number: i64) -> Rule {
    Rule { number, bits: 0, action: libc::SECCOMP_RET_KILL_PROCESS }
}

const SHARED_CLONE_REFUSED: Rule = Rule {
    number: libc::SYS_clone,
    // Both: threads share memory too, but nobody waits for them.
    bits: (libc::CLONE_VM | libc::CLONE_VFORK) as u32,
    action: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
};

/// For this process, all its threads to come, and all its children.
pub fn install(rules: &[Rule]) -> Result<(), String> {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let mut program = Vec::new();
    for rule in rules {
        program.push(load(0));
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let and = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
        program.push(op(equal, 0, 4, rule.number as u32));
        program.push(load(16));
        program.push(op(and, 0, 0, rule.bits));
        program.push(op(equal, 0, 1, rule.bits));
        program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, rule.action));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a program that is valid for the length of the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const whole) == 0
    };
    done.then_some(()).ok_or_else(|| format!("no filter: {}", std::io::Error::last_os_error()))
}

extern "C" fn ignore(_: i32) {}

/// Everything a spawn can be asked for, on the rung that is due, twice (the second knows what the
/// first has learnt).
fn ladder(rules: &[Rule], due: CloneMethod) -> Result<(), String> {
    install(rules)?;
    kernel::on(libc::SIGUSR1, ignore as *const () as usize, 0);
    kernel::on(libc::SIGUSR2, libc::SIG_IGN, 0);
    for _ in 0..2 {
        kernel::leaves_nothing(|| {
            let mut command = Command::new("/bin/grep");
            command.args(["-E", "^Sig(Cgt|Ign)", "/proc/self/status"]).close_other_fds(true);
            command.current_dir("/proc").umask(0o27).pidfd(true);
            let child = command.stdout(odfork_spawn::Stdio::piped()).spawn().unwrap();
            assert_eq!(child.method(), due);
            assert!(child.pidfd().is_some());
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let set = |line: usize| {
                let line = text.lines().nth(line).unwrap();
                u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
            };
            let bit = |signal: i32| 1u64 << (signal - 1);
            assert_eq!(set(0) & bit(libc::SIGUSR2), bit(libc::SIGUSR2), "stays ignored: {text}");
            assert_eq!(set(0) & bit(libc::SIGPIPE), 0, "has its default: {text}");
            assert_eq!(set(1) & bit(libc::SIGUSR1), 0, "has its default: {text}");
            fails(Command::new("/no/such").pidfd(true), Step::Exec, libc::ENOENT);
            fails(Command::new("true").current_dir("/no/such"), Step::Directory, libc::ENOENT);
            fails(Command::new("true").fd_number(9, 900), Step::Descriptors, libc::EBADF);
        });
    }
    Ok(())
}

fn fails(command: &mut Command, step: Step, errno: i32) {
    let error = command.spawn().unwrap_err();
    assert_eq!((error.step(), error.cause()), (step, Cause::Errno(errno)), "{error}");
}

fn last_rung_keeps_failures() -> Result<(), String> {
    install(&[refuse(libc::SYS_clone3, libc::EPERM), SHARED_CLONE_REFUSED])?;
    let own = probe::own();
    let found = probe::found(probe::command().process_group(0).umask(0o71).fd_number(5, 2));
    assert_eq!((&found["Umask"][..], &found["pgid"]), ("0071", &found["pid"]));
    assert_eq!(probe::own()["Umask"], own["Umask"]);
    Ok(())
}

fn no_way_left() -> Result<(), String> {
    install(&[refuse(libc::SYS_clone3, libc::ENOSYS), refuse(libc::SYS_clone, libc::EACCES)])?;
    kernel::leaves_nothing(|| fails(&mut Command::new("true"), Step::Clone, libc::EACCES));
    Ok(())
}

fn close_range_refused() -> Result<(), String> {
    let open = (0..3000).map(|_| {
        // SAFETY: a copy without close-on-exec, which the case never closes.
        unsafe { libc::dup(2) }
    });
    kernel::set_limit(libc::RLIMIT_NOFILE, 4000);
    assert!(open.into_iter().all(|fd| fd > 0));
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        // A second filter's refusal does not matter: the first one's ENOSYS is as good.
        install(&[refuse(libc::SYS_close_range, errno)])?;
        let found =
            probe::found(probe::command().close_other_fds(true).fd_number(1234, 2).fd_number(7, 2));
        assert_eq!(found["fds"], "0 1 2 7 1234");
    }
    Ok(())
}

/// What containers refuse on Linux before 5.9, or with a filter that does not know close_range:
/// both calls by which a child leaves a shared table; and what nobody is known to refuse, sharing
/// it.
fn table_refused() -> Result<(), String> {
    let shared_table = |sharing| Rule {
        number: libc::SYS_clone,
        bits: (libc::CLONE_FILES | libc::CLONE_VFORK | sharing) as u32,
        action: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
    };
    let no_clone3 = refuse(libc::SYS_clone3, libc::ENOSYS);
    let close_range = refuse(libc::SYS_close_range, libc::ENOSYS);
    let unshare = refuse(libc::SYS_unshare, libc::EPERM);
    for (rules, due) in [
        (vec![close_range, unshare], CloneMethod::Clone3),
        (vec![close_range, unshare, no_clone3], CloneMethod::Clone),
        (vec![close_range, unshare, no_clone3, SHARED_CLONE_REFUSED], CloneMethod::Copy),
        (vec![no_clone3, shared_table(0)], CloneMethod::Clone),
        (vec![no_clone3, shared_table(libc::CLONE_VM)], CloneMethod::Clone),
    ] {
        apart(&rules, || {
            // SAFETY: a copy without close-on-exec, for the program not to have.
            assert!(unsafe { libc::dup2(2, 700) } == 700);
            for _ in 0..2 {
                kernel::leaves_nothing(|| {
                    let mut command = Command::new("/bin/ls");
                    command.arg("/proc/self/fd").close_other_fds(true).fd_number(7, 2);
                    let child = command.stdout(odfork_spawn::Stdio::piped()).spawn().unwrap();
                    assert_eq!(child.method(), due);
                    let found = child.wait_with_output().unwrap().stdout;
                    // 3 is what ls reads the folder by.
                    assert_eq!(String::from_utf8(found).unwrap(), "0\n1\n2\n3\n7\n");
                    fails(Command::new("/no/such").close_other_fds(true), Step::Exec, libc::ENOENT);
                });
            }
        });
    }
    Ok(())
}

/// System call, step, and what makes the child call it.
type Setting = (i64, Step, fn(&mut Command) -> &mut Command);

fn settings() -> Vec<Setting> {
    vec![
        (libc::SYS_setsid, Step::Session, |c| c.session(true)),
        (libc::SYS_setpgid, Step::ProcessGroup, |c| c.process_group(0)),
        (libc::SYS_dup3, Step::Descriptors, |c| c.fd_number(9, 2)),
        (libc::SYS_close_range, Step::CloseOthers, |c| c.close_other_fds(true)),
        (libc::SYS_prlimit64, Step::Limits, |c| c.limit(libc::RLIMIT_CORE, 0, 0)),
        (libc::SYS_setgroups, Step::Groups, |c| c.groups(&[])),
        (libc::SYS_setresgid, Step::Gid, |c| c.gid(0)),
        (libc::SYS_setresuid, Step::Uid, |c| c.uid(0).groups(&[])),
        (libc::SYS_umask, Step::Directory, |c| c.umask(0o22)),
        (libc::SYS_chdir, Step::Directory, |c| c.current_dir("/")),
        (libc::SYS_execve, Step::Exec, |c| c),
    ]
}

/// In a child of this process: a filter cannot be taken off again.
fn apart(rules: &[Rule], look: impl FnOnce()) {
    // SAFETY: this process has one thread, so the child may do all it could.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            install(rules).unwrap();
            look();
        }));
        // SAFETY: ends this process.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "see above");
}

fn refused_steps() -> Result<(), String> {
    // Without close_range they are closed one by one.
    for (number, step, setting) in settings().into_iter().filter(|w| w.0 != libc::SYS_close_range) {
        for errno in [libc::EACCES, libc::EOWNERDEAD] {
            apart(&[refuse(number, errno)], || {
                let mut command = Command::new("/bin/true");
                setting(&mut command);
                kernel::leaves_nothing(|| fails(&mut command, step, errno));
            });
        }
    }
    let refusals = [
        refuse(libc::SYS_close_range, libc::EACCES),
        refuse(libc::SYS_unshare, libc::EACCES),
        refuse(libc::SYS_getdents64, libc::EACCES),
    ];
    apart(&refusals, || {
        let mut command = Command::new("/bin/true");
        fails(command.close_other_fds(true), Step::CloseOthers, libc::EACCES);
    });
    // Not for want of the right: a copy would want the same memory.
    let no_memory = [refusals[0], refuse(libc::SYS_unshare, libc::ENOMEM)];
    apart(&no_memory, || {
        let mut command = Command::new("/bin/true");
        fails(command.close_other_fds(true), Step::CloseOthers, libc::ENOMEM);
    });
    apart(&[refuse(libc::SYS_prctl, libc::EACCES)], || {
        let mut command = Command::new("/bin/true");
        fails(command.parent_death_signal(9), Step::ParentDeath, libc::EACCES);
        let mut command = Command::new("/bin/true");
        fails(command.no_new_privileges(true), Step::NoNewPrivileges, libc::EACCES);
    });
    Ok(())
}

fn error_of(setting: fn(&mut Command) -> &mut Command) -> Error {
    let mut command = Command::new("/bin/true");
    setting(&mut command);
    kernel::leaves_nothing(|| command.spawn().unwrap_err())
}

fn killing_steps() -> Result<(), String> {
    for (number, step, setting) in settings().into_iter().filter(|w| w.1 != Step::Exec) {
        apart(&[kill(number)], || {
            let error = error_of(setting);
            assert_eq!((error.step(), error.cause()), (step, Cause::Killed(libc::SIGSYS)));
            assert!(error.to_string().contains("filter"), "{error}");
        });
    }
    Ok(())
}

/// From outside no different from a program that is killed at its first instruction: the status
/// says it.
fn killed_at_exec() -> Result<(), String> {
    for method in [CloneMethod::Clone3, CloneMethod::Clone, CloneMethod::Copy] {
        let mut rules = vec![kill(libc::SYS_execve)];
        let above = [refuse(libc::SYS_clone3, libc::ENOSYS), SHARED_CLONE_REFUSED];
        rules.extend(&above[..method as usize]);
        apart(&rules, || {
            let mut child = Command::new("/bin/true").spawn().unwrap();
            assert_eq!(child.method(), method);
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGSYS));
        });
    }
    Ok(())
}

/// clone3 that finds no room for the pidfd has not been refused for good.
fn full_table_keeps_clone3() -> Result<(), String> {
    let old = kernel::set_limit(libc::RLIMIT_NOFILE, 3);
    let mut command = Command::new("/bin/true");
    fails(command.pidfd(true), Step::Clone, libc::EMFILE);
    kernel::set_limit(libc::RLIMIT_NOFILE, old);
    let mut child = Command::new("/bin/true").spawn().unwrap();
    assert_eq!(child.method(), CloneMethod::Clone3);
    assert!(child.wait().unwrap().success());
    Ok(())
}
