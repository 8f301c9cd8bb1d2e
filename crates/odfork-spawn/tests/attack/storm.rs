//! 10,000 spawns from 8 threads while signals of every kind arrive.
//!
//! Owns: the storm, and what must be true after it: every handler ran in this process, every queued
//! signal was handled once, masks and dispositions are what they were, and no child and no
//! descriptor is left. It does not look into the children beyond what they say (`leaks` does).

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use odfork_spawn::{CloneMethod, Command, Error, Stdio, Step};

use crate::{kernel, Case};

pub const CASES: &[(&str, Case)] = &[
    ("storm_of_10000_spawns_under_signals", || storm(1250)),
    ("storm_of_2000_spawns_by_a_handled_clone", handlers_reset_one_by_one),
    ("storm_of_1600_spawns_without_signals", in_silence),
];

const THREADS: usize = 8;
static PID: AtomicI32 = AtomicI32::new(0);
static STRANGE: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
static QUEUED: AtomicU64 = AtomicU64::new(0);

/// CHILD: must never run there; a store here by a child that shares the memory would be seen, so it
/// is.
extern "C" fn handler(signal: i32) {
    // SAFETY: raw calls: nothing of the C library's thread-local data is touched, whoever runs
    // this.
    let (pid, tid) = unsafe { (libc::syscall(libc::SYS_getpid), libc::syscall(libc::SYS_gettid)) };
    // A task of this process is found among its threads.
    // SAFETY: signal 0 asks only.
    let ours = unsafe { libc::syscall(libc::SYS_tgkill, i64::from(PID.load(Relaxed)), tid, 0) };
    if pid != i64::from(PID.load(Relaxed)) || ours != 0 {
        STRANGE.fetch_add(1, Relaxed);
    }
    HANDLED.fetch_add(1, Relaxed);
    if signal >= libc::SIGRTMIN() {
        QUEUED.fetch_add(1, Relaxed);
    }
}

fn storm(rounds: usize) -> Result<(), String> {
    PID.store(std::process::id() as i32, Relaxed);
    let action = handler as *const () as usize;
    kernel::on(libc::SIGUSR1, action, libc::SA_RESTART);
    kernel::on(libc::SIGUSR2, action, 0);
    kernel::on(libc::SIGALRM, action, 0);
    kernel::on(libc::SIGVTALRM, action, libc::SA_RESTART);
    kernel::on(libc::SIGCHLD, action, libc::SA_RESTART);
    kernel::on(libc::SIGRTMIN() + 1, action, libc::SA_RESTART);
    // The C library sets a handler of its own with the first thread.
    std::thread::spawn(|| ()).join().unwrap();
    timers(900);
    let (mask, dispositions) = (kernel::mask(), kernel::dispositions());
    let before = kernel::descriptors();
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let bombard = scope.spawn(|| bombard(&done));
        let workers: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n, rounds))).collect();
        let joined: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Relaxed);
        assert!(joined.into_iter().all(|j| j.is_ok()));
        bombard.join().unwrap()
    });
    timers(0);
    while QUEUED.load(Relaxed) < sent && kernel::mask() & 1 << libc::SIGRTMIN() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(QUEUED.load(Relaxed), sent, "queued signals: each is handled once");
    assert_eq!(STRANGE.load(Relaxed), 0, "a handler ran in a child");
    assert!(HANDLED.load(Relaxed) > sent, "timers and children sent signals too");
    assert_eq!((kernel::mask(), kernel::dispositions()), (mask, dispositions));
    assert_eq!(kernel::descriptors(), before);
    kernel::no_child_is_left();
    Ok(())
}

/// Without `clone3` the child resets handlers itself, in shared memory: the same must hold.
fn handlers_reset_one_by_one() -> Result<(), String> {
    crate::filters::install(&[crate::filters::refuse(libc::SYS_clone3, libc::ENOSYS)])?;
    let mut child = Command::new("true").spawn().unwrap();
    assert_eq!(child.method(), CloneMethod::Clone);
    assert!(child.wait().unwrap().success());
    storm(250)
}

/// For ThreadSanitizer, which delivers signals late and keeps one of each kind only: queued ones
/// would be lost.
fn in_silence() -> Result<(), String> {
    let before = kernel::descriptors();
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            scope.spawn(move || work(n, 200));
        }
    });
    assert_eq!(kernel::descriptors(), before);
    kernel::no_child_is_left();
    Ok(())
}

fn timers(microseconds: i64) {
    let time = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let every = libc::itimerval { it_interval: time, it_value: time };
    for which in [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL] {
        // SAFETY: the structure is valid.
        assert_eq!(unsafe { libc::setitimer(which, &every, std::ptr::null_mut()) }, 0);
    }
}

/// Sends to the process and to each of its threads; how many queued ones were taken.
fn bombard(done: &AtomicBool) -> u64 {
    let (mut sent, pid) = (0, std::process::id() as i32);
    // SAFETY: numbers only; a thread that has ended is an error.
    unsafe {
        while !done.load(Relaxed) {
            libc::kill(pid, libc::SIGUSR1);
            let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
            sent += u64::from(libc::sigqueue(pid, libc::SIGRTMIN() + 1, value) == 0);
            for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                let tid: i32 = thread.file_name().to_str().unwrap().parse().unwrap();
                libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR2);
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    sent
}

fn work(number: usize, rounds: usize) {
    let mask = kernel::mask();
    let mut command = Command::new("/bin/true");
    for round in 0..rounds {
        // std's own calls may be interrupted; every one used here goes on.
        match (round + number) % 8 {
            0 => plain(command.spawn()),
            1 => piped(round),
            2 => fails(Command::new("/no/such/program").spawn(), Step::Exec, libc::ENOENT),
            3 => fails(
                Command::new("true").current_dir("/no/such").spawn(),
                Step::Directory,
                libc::ENOENT,
            ),
            4 => drop(Command::new("/bin/sleep").arg("60").kill_on_drop(true).spawn().unwrap()),
            5 => in_time(),
            6 => plain(Command::new("/bin/true").close_other_fds(true).current_dir("/usr").spawn()),
            _ => mapped(),
        }
    }
    assert_eq!(kernel::mask(), mask, "the thread's own mask");
}

fn plain(child: Result<odfork_spawn::Child, Error>) {
    assert!(child.unwrap().wait().unwrap().success());
}

fn fails(child: Result<odfork_spawn::Child, Error>, step: Step, errno: i32) {
    let error = child.unwrap_err();
    assert_eq!((error.step(), error.raw_os_error()), (step, Some(errno)), "{error}");
}

fn piped(round: usize) {
    let input: Vec<u8> = (0..5000 + round).map(|i| (i * 7 + round) as u8).collect();
    let output = Command::new("/bin/cat").output_for(&input).unwrap();
    assert!(output.status.success() && output.stdout == input && output.stderr.is_empty());
}

fn in_time() {
    let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).pidfd(true).spawn().unwrap();
    assert_eq!(child.wait_timeout(Duration::from_micros(200)).unwrap(), None);
    child.kill().unwrap();
    let status = child.wait_timeout(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
}

fn mapped() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo through >&7"]).fd(7, theirs).close_other_fds(true);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut &ours, &mut text).unwrap();
    assert_eq!(text, "through\n");
    assert!(child.wait().unwrap().success());
}
