//! The promises about the window between clone and exec, each turned against the crate.
//!
//! Owns a way to stop a child in its window: a filter that asks a thread of ours before `chdir`.
//! There the child is killed, stopped, and the parent forks; and what a thread may do to itself:
//! tiny stacks, alternate stacks, jumps out of handlers, cancellation.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;

use odfork_spawn::{Cause, Child, Command, Error, SignalSet, Step};

use crate::kernel::{self, require_root, USER};
use crate::user::in_a_fork;
use crate::Case;

pub const CASES: &[(&str, Case)] = &[
    ("killed_in_the_window", killed),
    ("stopped_in_the_window", stopped),
    ("signalled_in_the_window", signalled),
    ("others_spawn_meanwhile", others_spawn),
    ("forked_in_the_window", forked),
    ("forked_while_a_user_changes", forked_while_changing),
    ("a_thread_with_the_smallest_stack", || on_a_thread(16 << 10)),
    ("on_an_alternate_signal_stack", alternate),
    ("a_handler_that_jumps_away", jumps),
    ("cancelled_while_it_spawns", cancelled),
];

/// Spawns in a thread that gets a filter; `look` runs while the child waits before its `chdir`.
fn held(
    mut command: Command,
    look: impl FnOnce(i32) + Send,
) -> Result<Result<Child, Error>, String> {
    let (send, receive) = mpsc::channel::<OwnedFd>();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Ok(listener) = receive.recv() {
                answer(listener, look, done);
            }
        });
        let spawner = scope.spawn(move || {
            send.send(listen()?).map_err(|e| e.to_string())?;
            drop(send);
            let result = command.current_dir("/").spawn();
            done.store(true, SeqCst);
            Ok(result)
        });
        spawner.join().unwrap()
    })
}

/// A filter for this thread and its children: `chdir` waits for an answer.
fn listen() -> Result<OwnedFd, String> {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_chdir as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let whole = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: a program that is valid for the length of the call; the descriptor is ours.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        // Once we look, only death interrupts the call: else SIGSTOP would make it anew (Linux
        // 5.19).
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | 1 << 5;
        let fd = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &whole);
        if fd < 0 {
            return Err(format!("no filter that asks: {}", std::io::Error::last_os_error()));
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A stop interrupts the question, which is then asked again: answers until the spawn is `done`.
fn answer(listener: OwnedFd, look: impl FnOnce(i32), done: &AtomicBool) {
    const RECEIVE: u64 = 0xc050_2100;
    const SEND: u64 = 0xc018_2101;
    let mut look = Some(look);
    while !done.load(SeqCst) {
        let mut ready = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, and structures of the sizes the two requests name.
        unsafe {
            if libc::poll(&mut ready, 1, 5) < 1 {
                continue;
            }
            let mut asked: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(listener.as_raw_fd(), RECEIVE, &mut asked) != 0 {
                continue;
            }
            if let Some(look) = look.take() {
                look(asked.pid as i32);
            }
            let mut reply: libc::seccomp_notif_resp = std::mem::zeroed();
            (reply.id, reply.flags) = (asked.id, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
            // A child that was killed gets no answer.
            libc::ioctl(listener.as_raw_fd(), SEND, &reply);
        }
    }
}

fn send(pid: i32, signal: i32) {
    // SAFETY: numbers only; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn killed() -> Result<(), String> {
    let before = kernel::descriptors();
    let mut command = Command::new("/bin/true");
    command.pidfd(true);
    let error = held(command, |pid| send(pid, libc::SIGKILL))?.map(drop).unwrap_err();
    assert_eq!((error.step(), error.cause()), (Step::Directory, Cause::Killed(libc::SIGKILL)));
    assert_eq!(kernel::descriptors(), before);
    kernel::no_child_is_left();
    Ok(())
}

fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

fn stopped() -> Result<(), String> {
    let child = held(Command::new("/bin/true"), |pid| {
        send(pid, libc::SIGSTOP);
        // Waiting for the answer it may not be stopped: then it is right after.
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            while state(pid) != 'T' {
                std::thread::yield_now();
            }
            send(pid, libc::SIGCONT);
        });
    })?;
    assert!(child.unwrap().wait().unwrap().success());
    Ok(())
}

static RAN: AtomicI32 = AtomicI32::new(0);

extern "C" fn record(_: i32) {
    // SAFETY: no arguments.
    RAN.store(unsafe { libc::syscall(libc::SYS_getpid) } as i32, SeqCst);
}

/// Handlers of the parent's are not run in its memory by the child; the signal has its default, and
/// ends it.
fn signalled() -> Result<(), String> {
    kernel::on(libc::SIGUSR1, record as *const () as usize, 0);
    let error = held(Command::new("/bin/true"), |pid| send(pid, libc::SIGUSR1))?.unwrap_err();
    assert_eq!((error.step(), error.cause()), (Step::SignalMask, Cause::Killed(libc::SIGUSR1)));
    assert_eq!(RAN.load(SeqCst), 0);
    // Blocked in the program, it stays pending there.
    let mut command = Command::new("/bin/grep");
    command.args(["-q", "^ShdPnd:.*200$", "/proc/self/status"]);
    command.signal_mask(SignalSet::empty().with(libc::SIGUSR1));
    let child = held(command, |pid| send(pid, libc::SIGUSR1))?;
    assert!(child.unwrap().wait().unwrap().success());
    assert_eq!(RAN.load(SeqCst), 0);
    Ok(())
}

fn others_spawn() -> Result<(), String> {
    let child = held(Command::new("/bin/true"), |_| {
        for _ in 0..40 {
            assert!(Command::new("/bin/true").status().unwrap().success());
            Command::new("/no/such").spawn().map(drop).unwrap_err();
        }
        if kernel::is_root() {
            assert!(Command::new("/bin/true").uid(USER).status().unwrap().success());
        }
    })?;
    assert!(child.unwrap().wait().unwrap().success());
    Ok(())
}

/// In the copy made by fork the held stack belongs to nobody; everything works there.
fn works_after_fork(user: bool) {
    in_a_fork(|| {
        for _ in 0..20 {
            let mut command = Command::new("/bin/true");
            if user {
                command.uid(USER);
            }
            assert!(command.status().unwrap().success());
            Command::new("/no/such").spawn().map(drop).unwrap_err();
        }
    });
}

fn forked() -> Result<(), String> {
    let child = held(Command::new("/bin/true"), |_| works_after_fork(false))?;
    assert!(child.unwrap().wait().unwrap().success());
    Ok(())
}

/// The lock on changes of user is held by a thread the copy does not have.
fn forked_while_changing() -> Result<(), String> {
    require_root()?;
    let mut command = Command::new("/bin/true");
    command.uid(USER);
    let child = held(command, |_| works_after_fork(true))?;
    assert!(child.unwrap().wait().unwrap().success());
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
    Ok(())
}

fn spawn_once() {
    let mut child = Command::new("/bin/true").spawn().unwrap();
    assert!(child.wait().unwrap().success());
    Command::new("/no/such").spawn().map(drop).unwrap_err();
}

/// PTHREAD_STACK_MIN is 16 KB.
fn on_a_thread(bytes: usize) -> Result<(), String> {
    let thread = std::thread::Builder::new().stack_size(bytes).spawn(spawn_once);
    thread.map_err(|e| e.to_string())?.join().unwrap();
    Ok(())
}

extern "C" fn spawn_in_a_handler(_: i32) {
    // Raised by the thread itself outside of any lock, so that the heap may be used here.
    spawn_once();
    RAN.store(1, SeqCst);
}

fn alternate() -> Result<(), String> {
    let mut memory = vec![0u8; 64 << 10];
    // SAFETY: the memory outlives the handler.
    unsafe {
        let stack =
            libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
        kernel::on(libc::SIGUSR1, spawn_in_a_handler as *const () as usize, libc::SA_ONSTACK);
        libc::raise(libc::SIGUSR1);
        assert_eq!(RAN.load(SeqCst), 1);
        let off =
            libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        assert_eq!(libc::sigaltstack(&off, std::ptr::null_mut()), 0);
    }
    Ok(())
}

extern "C" {
    fn __sigsetjmp(buffer: *mut u64, save: i32) -> i32;
    fn siglongjmp(buffer: *mut u64, value: i32) -> !;
    fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}
extern "C-unwind" {
    fn pthread_testcancel();
}

/// Larger than glibc's sigjmp_buf (200 bytes).
static mut BUFFER: [u64; 64] = [0; 64];
static ARMED: AtomicBool = AtomicBool::new(false);

extern "C" fn jump(_: i32) {
    if ARMED.swap(false, SeqCst) {
        // SAFETY: set by `jumps`, whose frame is still there.
        unsafe { siglongjmp(&raw mut BUFFER as *mut u64, 1) }
    }
}

/// The signal is pending during the window and arrives where the mask is given back: the jump
/// leaves from there, with the stack given back, and with the lock on changes of user free.
fn jumps() -> Result<(), String> {
    let user = kernel::is_root();
    kernel::on(libc::SIGUSR1, jump as *const () as usize, 0);
    static ROUNDS: AtomicU32 = AtomicU32::new(0);
    for _ in 0..20 {
        // SAFETY: this frame lives on; between here and the jump nothing in it has a destructor
        // that matters.
        if unsafe { __sigsetjmp(&raw mut BUFFER as *mut u64, 1) } == 0 {
            jump_out_of_a_spawn(user);
        }
        ROUNDS.fetch_add(1, SeqCst);
        assert_eq!(kernel::mask() >> (libc::SIGUSR1 - 1) & 1, 0, "the mask is back");
        let mut command = Command::new("/bin/true");
        if user {
            command.uid(USER);
        }
        assert!(command.status().unwrap().success());
    }
    assert_eq!(ROUNDS.load(SeqCst), 20);
    Ok(())
}

#[inline(never)]
fn jump_out_of_a_spawn(user: bool) {
    // The program sends the signal to its parent; the parent has it when it goes on, or soon.
    let command = Box::leak(Box::new(Command::new("/bin/kill")));
    command.args(["-USR1", &std::process::id().to_string()]);
    if user {
        // A user of root's rights, so that it may; the change of identity is what counts.
        command.uid(0).gid(USER).groups(&[]);
    }
    ARMED.store(true, SeqCst);
    // SAFETY: to this thread, while it is in the window: a timer would do, at worse odds.
    let _ = std::mem::ManuallyDrop::new(command.spawn());
    while ARMED.load(SeqCst) {
        std::hint::spin_loop();
    }
}

static REACHED: AtomicU32 = AtomicU32::new(0);

/// Cancelled before it begins: opening, closing and reading would be where it ends, with the child
/// unknown to anybody.
extern "C-unwind" fn spawns_when_cancelled(kind: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: concerns this thread, which has nothing to be cleaned up.
    unsafe {
        pthread_setcancelstate(1, std::ptr::null_mut());
        pthread_setcanceltype(0, std::ptr::null_mut());
        libc::pthread_cancel(libc::pthread_self());
        pthread_setcancelstate(0, std::ptr::null_mut());
    }
    let mut command = std::mem::ManuallyDrop::new(Command::new("/bin/true"));
    command.stdin(odfork_spawn::Stdio::null()).stdout(odfork_spawn::Stdio::null());
    if !kind.is_null() {
        command.uid(USER);
    }
    if let Ok(child) = command.spawn() {
        REACHED.store(child.id(), SeqCst);
        std::mem::forget(child);
    }
    // SAFETY: the point where this thread may end.
    unsafe { pthread_testcancel() };
    REACHED.store(0, SeqCst);
    std::ptr::null_mut()
}

fn cancelled() -> Result<(), String> {
    for user in 0..=usize::from(kernel::is_root()) {
        let before = kernel::descriptors();
        // SAFETY: a thread that obeys the rules of pthread; its function does not unwind into ours.
        let result = unsafe {
            type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
            type Unwinds = extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void;
            let start = std::mem::transmute::<Unwinds, Start>(spawns_when_cancelled);
            let (mut thread, mut result) = (0, std::ptr::null_mut());
            assert_eq!(
                libc::pthread_create(&mut thread, std::ptr::null(), start, user as *mut _),
                0
            );
            assert_eq!(libc::pthread_join(thread, &mut result), 0);
            result
        };
        assert_eq!(result as isize, -1, "the thread was cancelled, but afterwards");
        let pid = REACHED.load(SeqCst) as i32;
        assert!(pid > 0, "the cancellation took the child with it");
        // SAFETY: our child; no status is stored.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        assert_eq!(kernel::descriptors(), before);
        kernel::no_child_is_left();
    }
    Ok(())
}
