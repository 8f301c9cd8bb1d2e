//! The command as its users see it: what std's does, and what std's cannot.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use odfork_spawn::{CloneMethod, Command, SignalSet, Stdio, Step};

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_child_is_made_by_clone3_in_shared_memory() {
    let mut child = Command::new("true").spawn().unwrap();
    assert_eq!(child.method(), CloneMethod::Clone3);
    assert!(child.wait().unwrap().success());
}

#[test]
fn arguments_name_environment_and_directory_arrive() {
    let mut command = sh("echo \"$0|$1|$ODF_A|${ODF_B-unset}|$(pwd)\"");
    command.args(["zero", "one two"]).env("ODF_A", "a=b").env("ODF_B", "x").env_remove("ODF_B");
    command.current_dir("/usr");
    assert_eq!(said(&mut command), "zero|one two|a=b|unset|/usr\n");
    assert_eq!(
        said(Command::new("env").env_clear().env("ONLY", "1").env("PATH", "/usr/bin:/bin")),
        "ONLY=1\nPATH=/usr/bin:/bin\n"
    );
    assert_eq!(
        said(Command::new("sh").arg0("other").args(["-c", "tr '\\0' ' ' < /proc/$$/cmdline"]))
            .split(' ')
            .next(),
        Some("other")
    );
}

#[test]
fn output_of_both_pipes_and_much_input_does_not_block() {
    let script = "cat; head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero";
    let input = vec![7u8; 3_000_000];
    let output = sh(script).output_for(&input).unwrap();
    assert!(output.status.success());
    assert_eq!(output.stderr.len(), 1_000_000);
    assert_eq!(output.stdout.len(), 4_000_000);
    assert_eq!(output.stdout[..3_000_000], input[..]);
    // Nobody reads: the rest is dropped, and nothing is wrong.
    assert!(Command::new("true").output_for(&input).unwrap().status.success());
}

#[test]
fn descriptors_may_be_exchanged_and_all_others_closed() {
    let file = |text: &str| -> OwnedFd {
        let (mut ours, theirs) = std::io::pipe().map(|(r, w)| (w, r)).unwrap();
        std::io::Write::write_all(&mut ours, text.as_bytes()).unwrap();
        theirs.into()
    };
    let (a, b) = (file("from a\n"), file("from b\n"));
    let (x, y) = (a.as_raw_fd(), b.as_raw_fd());
    let mut command = sh(&format!("cat <&{x} <&{x}; cat <&{y}; ls /proc/self/fd | tr '\\n' ' '"));
    command.fd_number(x, y).fd_number(y, x).close_other_fds(true);
    let text = said(&mut command);
    assert!(text.starts_with("from b\nfrom a\n"), "{text}");
    let numbers = text.lines().nth(2).unwrap().split_whitespace();
    let listed: Vec<i32> = numbers.map(|n| n.parse().unwrap()).collect();
    // ls itself opens one more: the lowest that is free.
    let its_own = (3..).find(|fd| *fd != x && *fd != y).unwrap();
    let mut expected = vec![0, 1, 2, x, y, its_own];
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn signals_group_session_umask_and_limits_are_as_asked() {
    let mask = SignalSet::empty().with(libc::SIGUSR1);
    let mut command = Command::new("grep");
    command.args(["-E", "SigBlk|SigIgn", "/proc/self/status"]).signal_mask(mask);
    let text = said(&mut command);
    let mut sets =
        text.lines().map(|l| u64::from_str_radix(l.split_once('\t').unwrap().1, 16).unwrap());
    assert_eq!(sets.next(), Some(mask.bits()));
    assert!(
        !SignalSet::from_bits(sets.next().unwrap()).contains(libc::SIGPIPE),
        "Rust ignores it here"
    );
    let mut command = sh("umask; ulimit -c; ulimit -n");
    command.umask(0o027).limit(libc::RLIMIT_CORE, 0, 0).limit(libc::RLIMIT_NOFILE, 77, 99);
    let text = said(&mut command);
    assert_eq!(text, "0027\n0\n77\n");
    let ids = said(sh("cut -d' ' -f5,6 /proc/$$/stat; echo $$").process_group(0));
    let numbers: Vec<i32> = ids.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers[0], numbers[2]);
    assert_ne!(numbers[1], numbers[2]);
    let ids = said(sh("cut -d' ' -f5,6 /proc/$$/stat; echo $$").session(true));
    let numbers: Vec<i32> = ids.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!((numbers[0], numbers[1]), (numbers[2], numbers[2]));
}

#[test]
fn failures_name_their_step() {
    let step = |command: &mut Command| {
        let error = command.spawn().unwrap_err();
        (error.step(), error.raw_os_error().unwrap())
    };
    assert_eq!(step(&mut Command::new("no-such-program-here")), (Step::Exec, libc::ENOENT));
    assert_eq!(step(&mut Command::new("/etc/passwd")), (Step::Exec, libc::EACCES));
    assert_eq!(step(Command::new("true").current_dir("/no/such")), (Step::Directory, libc::ENOENT));
    assert_eq!(step(Command::new("true").fd_number(5, 987)), (Step::Descriptors, libc::EBADF));
    assert_eq!(step(Command::new("true").arg("a\0b")), (Step::Request, libc::EINVAL));
    assert_eq!(step(Command::new("true").arg("x".repeat(200_000))), (Step::Exec, libc::E2BIG));
    assert_eq!(step(Command::new("true").uid(u32::MAX)), (Step::Uid, libc::EINVAL));
    assert_eq!(
        step(Command::new("true").session(true).controlling_terminal(0).stdin(Stdio::null())),
        (Step::Terminal, libc::ENOTTY)
    );
}

#[test]
fn waiting_has_a_timeout_and_dropping_may_kill() {
    let mut child = Command::new("sleep").arg("60").pidfd(true).kill_on_drop(true).spawn().unwrap();
    assert!(child.pidfd().is_some());
    let before = Instant::now();
    assert_eq!(child.wait_timeout(Duration::from_millis(50)).unwrap(), None);
    assert!(before.elapsed() >= Duration::from_millis(50));
    let pid = child.id() as i32;
    drop(child);
    // SAFETY: signal 0 asks only.
    assert_eq!(unsafe { libc::kill(pid, 0) }, -1, "killed and reaped");
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    let mut child = Command::new("true").spawn().unwrap();
    assert!(child.wait_timeout(Duration::from_secs(60)).unwrap().unwrap().success());
}

#[test]
fn pipes_of_programs_can_be_joined() {
    let mut first = Command::new("echo").arg("joined").stdout(Stdio::piped()).spawn().unwrap();
    let pipe = first.stdout.take().unwrap();
    let mut second =
        Command::new("tr").args(["a-z", "A-Z"]).stdin(pipe).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    second.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "JOINED\n");
    assert!(first.wait().unwrap().success());
}

#[test]
fn a_whole_environment_is_given_as_it_is() {
    let entries = [c"NOEQUALS", c"DUP=1", c"DUP=2", c"=x", c""].map(std::ffi::CString::from);
    let mut command = Command::new("cat");
    command.arg("/proc/self/environ").env("LOST", "1").environment(entries.to_vec());
    assert_eq!(said(&mut command), "NOEQUALS\0DUP=1\0DUP=2\0=x\0\0");
}

#[test]
fn a_name_is_searched_only_if_wanted() {
    let error = Command::new("sh").search_path(false).spawn().unwrap_err();
    assert_eq!((error.step(), error.raw_os_error()), (Step::Exec, Some(libc::ENOENT)));
    let mut command = Command::new("sh");
    command.search_path(false).current_dir("/bin").args(["-c", "echo here"]);
    assert_eq!(said(&mut command), "here\n");
}

#[test]
fn pipes_and_pidfd_outlive_the_child_that_gave_them() {
    let mut child =
        sh("cat; exit 3").stdin(Stdio::piped()).stdout(Stdio::piped()).pidfd(true).spawn().unwrap();
    let pidfd = child.take_pidfd().unwrap();
    let pipes = (child.stdin.take(), child.stdout.take(), None);
    let (out, err) = odfork_spawn::exchange(pipes, b"all of it").unwrap();
    assert_eq!((out.as_slice(), err.as_slice()), (b"all of it".as_slice(), b"".as_slice()));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(child.pidfd().is_none() && pidfd.as_raw_fd() > 2);
}
