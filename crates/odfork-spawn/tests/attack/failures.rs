//! Every step's failure, by its name, errno and detail; and that nothing is left of the child.
//!
//! Owns what can be provoked in any process. Files that cannot be executed are in `files`, users
//! and limits in `user`, refusals by a filter in `filters`.

use odfork_spawn::{Cause, Command, Stdio, Step};

use crate::{kernel, Case};

pub const CASES: &[(&str, Case)] = &[
    ("requests_without_sense", requests),
    ("steps_of_the_child_that_fail", childs_steps),
    ("no_descriptor_for_a_pipe", no_descriptor),
    ("no_memory_for_a_stack", no_memory),
    ("ten_thousand_failures_leave_nothing", many),
];

/// The command fails so, and leaves neither child nor descriptor. With a pidfd too, which must be
/// closed again.
pub fn fails(command: &mut Command, step: Step, errno: i32, detail: &str) {
    for pidfd in [false, true] {
        let error = kernel::leaves_nothing(|| command.pidfd(pidfd).spawn().map(drop).unwrap_err());
        assert_eq!((error.step(), error.cause()), (step, Cause::Errno(errno)), "{error}");
        assert_eq!(error.detail(), detail, "{error}");
    }
}

fn with(change: fn(&mut Command) -> &mut Command) -> Command {
    let mut command = Command::new("/bin/true");
    change(&mut command);
    command
}

fn requests() -> Result<(), String> {
    let wrong = |command: &mut Command, detail| fails(command, Step::Request, libc::EINVAL, detail);
    wrong(&mut Command::new("a\0b"), "a zero byte in an argument");
    wrong(Command::new("a\0b").arg0("a"), "a zero byte in the program's name or PATH");
    wrong(&mut with(|c| c.arg("\0")), "a zero byte in an argument");
    wrong(&mut with(|c| c.env("A", "\0")), "a zero byte in the environment");
    wrong(&mut with(|c| c.current_dir("a\0")), "a zero byte in the directory");
    wrong(&mut with(|c| c.fd_number(5, 1).fd_number(5, 2)), "descriptor 5 is given twice");
    wrong(&mut with(|c| c.fd_number(-5, 1)), "descriptor -5");
    wrong(&mut with(|c| c.fd_number(5, -1)), "descriptor -1");
    wrong(&mut with(|c| c.fd_number(1, 2).stdout(Stdio::piped())), "descriptor 1 is given twice");
    Ok(())
}

fn childs_steps() -> Result<(), String> {
    fails(
        &mut with(|c| c.process_group(1 << 22)),
        Step::ProcessGroup,
        libc::EPERM,
        "group 4194304",
    );
    fails(&mut with(|c| c.process_group(-4)), Step::ProcessGroup, libc::EINVAL, "group -4");
    fails(
        &mut with(|c| c.session(true).process_group(0)),
        Step::ProcessGroup,
        libc::EPERM,
        "group 0",
    );
    fails(&mut with(|c| c.fd_number(9, 900)), Step::Descriptors, libc::EBADF, "descriptor 900");
    fails(&mut with(|c| c.fd_number(900, 900)), Step::Descriptors, libc::EBADF, "descriptor 900");
    fails(
        &mut with(|c| c.stdin(Stdio::number(900))),
        Step::Descriptors,
        libc::EBADF,
        "descriptor 900",
    );
    let terminal: fn(&mut Command) -> &mut Command =
        |c| c.stdin(Stdio::null()).session(true).controlling_terminal(0);
    fails(&mut with(terminal), Step::Terminal, libc::ENOTTY, "descriptor 0");
    let foreground: fn(&mut Command) -> &mut Command = |c| c.stdin(Stdio::null()).foreground(0);
    fails(&mut with(foreground), Step::Terminal, libc::ENOTTY, "descriptor 0");
    fails(&mut with(|c| c.limit(99, 1, 1)), Step::Limits, libc::EINVAL, "resource 99");
    fails(
        &mut with(|c| c.limit(libc::RLIMIT_CORE, 2, 1)),
        Step::Limits,
        libc::EINVAL,
        "resource 4",
    );
    fails(&mut with(|c| c.uid(u32::MAX)), Step::Uid, libc::EINVAL, "4294967295");
    fails(&mut with(|c| c.gid(u32::MAX)), Step::Gid, libc::EINVAL, "4294967295");
    fails(&mut with(|c| c.current_dir("/no/such")), Step::Directory, libc::ENOENT, "/no/such");
    fails(&mut with(|c| c.current_dir("/bin/sh")), Step::Directory, libc::ENOTDIR, "/bin/sh");
    fails(&mut with(|c| c.current_dir("")), Step::Directory, libc::ENOENT, "");
    fails(&mut with(|c| c.parent_death_signal(99)), Step::ParentDeath, libc::EINVAL, "");
    fails(&mut with(|c| c.cgroup("/no/such")), Step::Cgroup, libc::ENOENT, "/no/such");
    fails(&mut with(|c| c.cgroup("/bin/sh")), Step::Cgroup, libc::ENOTDIR, "/bin/sh");
    fails(&mut with(|c| c.cgroup("/")), Step::Cgroup, libc::ENOENT, "/");
    // None of it has changed what the next one is made by.
    let mut child = Command::new("/bin/true").spawn().unwrap();
    assert_eq!(child.method(), odfork_spawn::CloneMethod::Clone3);
    assert!(child.wait().unwrap().success());
    Ok(())
}

/// With every number of free descriptors: the failure is one of the pipes', and none stays open.
fn no_descriptor() -> Result<(), String> {
    let open = kernel::descriptors().len() as u64;
    let (mut pipes, mut started) = (0, 0);
    for free in 0..9 {
        let old = kernel::set_limit(libc::RLIMIT_NOFILE, open + free);
        let mut command = with(|c| {
            c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).pidfd(true)
        });
        let result = command.spawn();
        kernel::set_limit(libc::RLIMIT_NOFILE, old);
        match result {
            Ok(mut child) => {
                assert!(child.pidfd().is_some());
                assert!(child.wait().unwrap().success());
                started += 1;
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::EMFILE), "{e}");
                assert!(e.to_string().contains("raise RLIMIT_NOFILE"), "{e}");
                assert!(matches!(e.step(), Step::Pipe | Step::Clone), "{e}");
                pipes += 1;
            }
        }
        assert_eq!(kernel::descriptors().len() as u64, open);
        kernel::no_child_is_left();
    }
    // Numbers that are free between open ones count too.
    assert!(pipes >= 2 && started >= 2, "{pipes} {started}");
    Ok(())
}

fn no_memory() -> Result<(), String> {
    // Heap for the words of the error first: it may not grow either.
    drop(vec![1u8; 100_000]);
    let old = kernel::set_limit(libc::RLIMIT_AS, 1 << 20);
    let error = Command::new("/bin/true").spawn().map(drop);
    kernel::set_limit(libc::RLIMIT_AS, old);
    let error = error.unwrap_err();
    assert_eq!((error.step(), error.cause()), (Step::Stack, Cause::Errno(libc::ENOMEM)));
    assert!(error.to_string().contains("RLIMIT_AS"), "{error}");
    assert!(Command::new("/bin/true").status().unwrap().success());
    // A limit for the program does not touch the parent it shares memory with, and says where it
    // hurts.
    let mut command = with(|c| c.limit(libc::RLIMIT_AS, 4096, 4096));
    let status = command.spawn().map(|mut child| child.wait().unwrap());
    assert!(!status.is_ok_and(|s| s.success()), "no program runs in a page");
    Ok(())
}

fn many() -> Result<(), String> {
    let size = || std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let mut before = 0;
    for round in 0..10_000 {
        let mut command = match round % 3 {
            0 => Command::new("/no/such/program"),
            1 => with(|c| c.current_dir("/no/such")),
            _ => with(|c| c.fd_number(9, 900).pidfd(true)),
        };
        command.spawn().map(drop).unwrap_err();
        if round == 100 {
            before = pages(&size());
        }
    }
    assert!(pages(&size()) <= before + 64, "memory grew from {before} to {} pages", pages(&size()));
    kernel::no_child_is_left();
    Ok(())
}
