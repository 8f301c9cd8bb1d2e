//! What a program inherits: what was asked for, what is due, and nothing more.
//!
//! Owns the comparison of what the probe finds with what this process is, while other threads open,
//! copy and close descriptors and spawn. Descriptors that are open without close-on-exec are due
//! unless others are closed.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use odfork_spawn::{Command, SignalSet, Stdio};

use crate::{kernel, probe, Case};

pub const CASES: &[(&str, Case)] = &[
    ("nothing_leaks_while_others_open_and_close", while_others_open),
    ("all_of_a_process_is_inherited_as_asked", everything_asked),
    ("without_wishes_everything_is_the_parents", nothing_asked),
    ("standard_descriptors_closed_in_the_parent", standard_closed),
    ("a_limit_below_the_open_descriptors", limit_below),
    ("five_thousand_open_descriptors", five_thousand),
];

fn while_others_open() -> Result<(), String> {
    let done = AtomicBool::new(false);
    let before = kernel::descriptors();
    std::thread::scope(|scope| {
        for n in 0..3 {
            let done = &done;
            scope.spawn(move || churn(n, done));
        }
        for round in 0..80 {
            let mut command = probe::command();
            command.close_other_fds(round % 3 == 0).stdin(Stdio::piped()).stderr(Stdio::null());
            assert_eq!(probe::found(&mut command)["fds"], "0 1 2");
            let mut command = probe::command();
            command.fd_number(5, 2).fd_number(20, 0);
            assert_eq!(probe::found(&mut command)["fds"], "0 1 2 5 20");
        }
        done.store(true, Relaxed);
    });
    assert_eq!(kernel::descriptors(), before);
    kernel::no_child_is_left();
    Ok(())
}

fn churn(number: usize, done: &AtomicBool) {
    while !done.load(Relaxed) {
        if number == 0 {
            let output = Command::new("/bin/true").output().unwrap();
            assert!(output.status.success());
            continue;
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        let _copy = null.try_clone().unwrap();
        let _pair = std::os::unix::net::UnixStream::pair().unwrap();
    }
}

fn everything_asked() -> Result<(), String> {
    kernel::on(libc::SIGUSR1, libc::SIG_IGN, 0);
    kernel::on(libc::SIGUSR2, libc::SIG_IGN, 0);
    let mask = SignalSet::empty().with(libc::SIGHUP).with(64).with(33);
    let mut command = probe::command();
    command.session(true).umask(0o123).signal_mask(mask).no_new_privileges(true);
    command.default_signals(SignalSet::empty().with(libc::SIGUSR1)).current_dir("/usr/bin");
    command.limit(libc::RLIMIT_NOFILE, 55, 66).limit(libc::RLIMIT_CORE, 0, 0);
    command.parent_death_signal(libc::SIGTERM);
    let found = probe::found(&mut command);
    let set = |key: &str| u64::from_str_radix(&found[key], 16).unwrap();
    assert_eq!(set("SigBlk"), mask.bits());
    assert_eq!(set("SigIgn") >> (libc::SIGUSR1 - 1) & 1, 0);
    assert_eq!(set("SigIgn") >> (libc::SIGUSR2 - 1) & 1, 1);
    assert_eq!((set("SigPnd"), set("ShdPnd")), (0, 0));
    assert_eq!((&found["sid"], &found["pgid"]), (&found["pid"], &found["pid"]));
    assert_eq!((&found["Umask"][..], &found["NoNewPrivs"][..]), ("0123", "1"));
    assert_eq!((&found["limit7"][..], &found["limit4"][..]), ("55 66", "0 0"));
    assert_eq!((&found["cwd"][..], &found["pdeath"][..]), ("/usr/bin", "15"));
    assert_eq!(found["timer"], "0 0");
    Ok(())
}

/// Pending signals, timers, the alternate stack and close-on-exec descriptors are not inherited;
/// all else is.
fn nothing_asked() -> Result<(), String> {
    let blocked = SignalSet::empty().with(libc::SIGUSR1).bits();
    let hour = libc::timeval { tv_sec: 3600, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: hour, it_value: hour };
    // SAFETY: a set of 8 bytes and a timer.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const blocked, 0, 8);
        libc::raise(libc::SIGUSR1);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()), 0);
        libc::umask(0o135);
        libc::dup2(2, 40);
    }
    let own = probe::own();
    let mut command = probe::command();
    let found = probe::found(command.inherit_signal_mask());
    for key in
        ["SigBlk", "Umask", "NoNewPrivs", "Groups", "Uid", "Gid", "sid", "pgid", "cwd", "dumpable"]
    {
        assert_eq!(found[key], own[key], "{key}");
    }
    for resource in 0..16 {
        let key = format!("limit{resource}");
        assert_eq!(found[&key], own[&key]);
    }
    assert_eq!((&found["SigPnd"], &found["timer"][..]), (&"0".repeat(16), "0 0"));
    assert_ne!(
        (&own["SigPnd"], &own["timer"][..]),
        (&"0".repeat(16), "0 0"),
        "there was something"
    );
    assert_eq!(found["fds"], "0 1 2 40");
    Ok(())
}

/// Pipes then get the numbers 0 to 5: the ends must not be mixed up, and nothing else may be open
/// in the program.
fn standard_closed() -> Result<(), String> {
    for closed in 1..8u32 {
        apart(closed, || {
            let script = "cat; echo error >&2; ls /proc/self/fd | tr '\\n' ' '";
            let output = Command::new("/bin/sh").args(["-c", script]).output_for(b"in ").unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "in 0 1 2 3 ");
            assert_eq!(output.stderr, b"error\n");
            let output = Command::new("/bin/cat").output().unwrap();
            assert!(output.status.success() && output.stdout.is_empty());
            inherited_are(closed);
        });
    }
    Ok(())
}

/// What is closed here is closed there, whatever landed on its number meanwhile.
fn inherited_are(closed: u32) {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec ls /proc/self/fd >&9"]).fd(9, theirs).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let listed: Vec<i32> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let mut due: Vec<i32> = if closed >> 2 & 1 == 1 { vec![0, 1, 9] } else { vec![0, 1, 2, 9] };
    // ls itself opens the list.
    due.extend((2..).find(|fd| !due.contains(fd)));
    due.sort_unstable();
    assert_eq!(listed, due, "closed: {closed:03b}");
}

/// In a child of this process, which has the descriptors with a bit in `closed` no more.
fn apart(closed: u32, look: impl FnOnce()) {
    // SAFETY: this process has one thread; the child ends below.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a copy for what goes wrong, then numbers only.
        let report = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 700) };
        for fd in (0..3).filter(|fd| closed >> fd & 1 == 1) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        let text = format!(
            "closed {closed:03b}: {:?}\n",
            done.as_ref().err().map(|e| e.downcast_ref::<String>())
        );
        // SAFETY: as many bytes as there are; ends this process.
        unsafe {
            libc::write(report, text.as_ptr().cast(), text.len());
            libc::_exit(done.is_err().into());
        }
    }
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "see above");
}

/// Numbers above the limit stay open and can be inherited and closed; none above it can be made.
fn limit_below() -> Result<(), String> {
    // SAFETY: copies that stay open, without close-on-exec.
    unsafe {
        assert_eq!(libc::dup2(2, 500), 500);
        assert_eq!(libc::dup2(2, 501), 501);
    }
    kernel::set_limit(libc::RLIMIT_NOFILE, 40);
    assert_eq!(probe::found(&mut probe::command())["fds"], "0 1 2 500 501");
    assert_eq!(probe::found(probe::command().close_other_fds(true))["fds"], "0 1 2");
    let found = probe::found(probe::command().close_other_fds(true).fd_number(501, 501));
    assert_eq!(found["fds"], "0 1 2 501");
    let error = probe::command().fd_number(500, 2).spawn().unwrap_err();
    assert_eq!((error.step().name(), error.raw_os_error()), ("descriptors", Some(libc::EBADF)));
    Ok(())
}

fn five_thousand() -> Result<(), String> {
    kernel::set_limit(libc::RLIMIT_NOFILE, 6000);
    let null = std::fs::File::open("/dev/null").unwrap();
    for _ in 0..2500 {
        // SAFETY: copies that stay open; every second one is inherited.
        unsafe {
            assert!(libc::dup(null.as_raw_fd()) > 0);
            assert!(libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) > 0);
        }
    }
    let found = probe::found(&mut probe::command());
    assert_eq!(found["fds"].split(' ').count(), 3 + 2500);
    let found = probe::found(probe::command().close_other_fds(true).fd_number(4999, 0));
    assert_eq!(found["fds"], "0 1 2 4999");
    Ok(())
}
