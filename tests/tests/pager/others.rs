//! What one program, or whoever starts a daemon, may do to others: nothing.
//!
//! Owns: programs that lie, stand still or are too many, daemons that come late or are gone, and what a daemon inherits.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use odfork_pager::sys::{self, Mapping};
use odfork_pager::{endpoint, socket, uffd};
use odfork_pager_protocol::control::{op, Control, Doorbell, CONTROL_BYTES};
use odfork_pager_protocol::wire::{Kind, Message};
use odfork_pager_protocol::USERFAULTFD_FEATURES;
use odfork_sys::abi::userfaultfd;

use super::{finish, with, Outcome, Stage, World, PATIENCE};

type Case = (&'static str, fn(&Stage) -> Outcome);

pub const CASES: [Case; 14] = [
    ("blocking", blocking),
    ("standing", standing),
    ("collecting", collecting),
    ("inherited", inherited),
    ("family", family),
    ("unread", unread),
    ("foreign", foreign),
    ("patient", patient),
    ("late", late),
    ("gone", gone),
    ("crowd", crowd),
    ("bare", bare),
    ("strange", strange),
    ("capped", capped),
];

const NOBODY: u32 = 65534;
const MOMENT: Duration = Duration::from_millis(20);

fn text<E: ToString>(error: E) -> String {
    error.to_string()
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return Err(format!("never: {what}"));
        }
        sleep(MOMENT);
    }
    Ok(())
}

pub fn read_line(child: &mut Child) -> Result<String, String> {
    let mut line = Vec::new();
    let out = child.stdout.as_mut().ok_or("no output")?;
    let mut byte = [0];
    while out.read(&mut byte).map_err(text)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// The program's place in the status.
fn find(world: &World, pid: u32) -> Option<serde_json::Value> {
    let status = world.status().ok()?;
    let mut programs = status["programs"].as_array()?.iter();
    programs.find(|program| program["pid"] == pid).cloned()
}

/// A userfaultfd that is made to wait holds up nobody, and its own program goes on.
fn blocking(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let mut blocker = world.start("holder", &["2", "1"])?;
    if read_line(&mut blocker)? != "ready" {
        return finish(blocker);
    }
    world.run("content", &["16", "2", "1", "81", "40"])?;
    blocker.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(text)?;
    finish(blocker)?;
    world.is_clean()
}

/// A stopped program, asked for many pages, holds up nobody: the hand goes on for others as far as they need.
fn standing(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let mut standing = world.start("holder", &["5", "0"])?;
    let pid = standing.id();
    if read_line(&mut standing)? != "ready" {
        return finish(standing);
    }
    // SAFETY: a child of ours.
    unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
    let other = world.start("content", &["12", "2", "5", "83", "60"])?;
    let goes_on = hand_goes_on(&world, pid);
    let state = world.status()?;
    // SAFETY: as above.
    unsafe { libc::kill(pid as i32, libc::SIGCONT) };
    goes_on.map_err(|what| format!("{what}: {state}"))?;
    end(&world, other)?;
    standing.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(text)?;
    end(&world, standing)?;
    world.is_clean()
}

/// More is asked of a program that stands still than is ever wanted at a time, and the hand moves all the same.
fn hand_goes_on(world: &World, pid: u32) -> Outcome {
    let asked = |than: u64| {
        find(world, pid).and_then(|program| program["to_zap"].as_u64()).is_some_and(|n| n > than)
    };
    let scans =
        || world.status().map_or(0, |all| all["totals"]["demand_scans"].as_u64().unwrap_or(0));
    // The hand never wants more than twice 5/64 of memory.
    wait_for("400 pages asked of it", || asked(400))?;
    let before = scans();
    wait_for("20 scans more", || scans() > before + 20)
}

/// A program that is stopped while it collects garbage: its pages are not taken for soon free.
fn collecting(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    stopped_beside(&world, "2", |_| Ok(()))
}

/// A stopped program whose pages were asked for by a daemon that has died since.
fn inherited(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    stopped_beside(&world, "0", |pid| {
        let mut other = world.start("content", &["12", "2", "500", "83", "60"])?;
        let asked =
            || find(&world, pid).is_some_and(|program| program["to_zap"].as_u64() > Some(0));
        let first = wait_for("pages asked of it", asked);
        world.signal_daemon(libc::SIGKILL);
        let then = first
            .and_then(|()| {
                wait_for("another daemon", || world.restarts() == 1 && world.status().is_ok())
            })
            .and_then(|()| hand_goes_on(&world, pid));
        let _ = other.kill();
        other.wait().map_err(text)?;
        then
    })
}

/// A program of 5 of 8 MB stands still; after `first`, another one does its work all the same.
fn stopped_beside(world: &World, how: &str, first: impl FnOnce(u32) -> Outcome) -> Outcome {
    let mut standing = world.start("holder", &["5", how])?;
    if read_line(&mut standing)? != "ready" {
        return finish(standing);
    }
    // SAFETY: a child of ours.
    let signal = |which| unsafe { libc::kill(standing.id() as i32, which) };
    signal(libc::SIGSTOP);
    let done = first(standing.id())
        .and_then(|()| end(world, world.start("content", &["12", "2", "2", "83", "60"])?));
    signal(libc::SIGCONT);
    standing.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(text)?;
    end(world, standing)?;
    done?;
    world.is_clean()
}

/// More programs end at once than there is room for messages about it.
fn family(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    end(&world, world.start("family", &["700"])?)?;
    world.run("content", &["4", "1", "1", "90", "40"])?;
    world.is_clean()
}

/// A program that asks without end and reads no answer.
fn unread(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let (liar, own) = Liar::hello(&world, 0)?.map_err(|error| format!("refused: {error}"))?;
    let half = new_uffd(true)?;
    if liar.attach(&half)?.0 != Some(Kind::Taken) {
        return Err("not taken".into());
    }
    let question = Message { id: own, ..Message::new(Kind::Hello) };
    for _ in 0..2000 {
        // Until it is hung up on.
        if socket::offer(liar.socket.as_fd(), &question, &[]).is_err() {
            sleep(MOMENT / 20);
        }
    }
    world.run("content", &["4", "1", "1", "91", "40"])?;
    drop((liar, half));
    Ok(())
}

/// As `finish`; says how things stand when it does not end.
fn end(world: &World, mut child: Child) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().map_err(text)?.is_none() {
        if Instant::now() > deadline {
            let status = world.status()?;
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not end in time: {status}"));
        }
        sleep(MOMENT);
    }
    finish(child)
}

/// A program made by hand: connection, control pages, a userfaultfd of this process.
struct Liar {
    socket: OwnedFd,
    control: Mapping,
    doorbell: Mapping,
}

impl Liar {
    fn hello(world: &World, parent: u32) -> Result<Result<(Liar, u32), i32>, String> {
        let socket = endpoint::connect(&world.folder.join("sock")).map_err(text)?;
        let hello = Message { id: parent, ..Message::new(Kind::Hello) };
        socket::send(socket.as_fd(), &hello, &[]).map_err(text)?;
        let (answer, fds) =
            socket::receive(socket.as_fd()).map_err(text)?.ok_or("the supervisor hung up")?;
        if answer.kind() != Some(Kind::Welcome) {
            return Ok(Err(answer.pid));
        }
        let control = Mapping::of(fds[0].as_fd(), CONTROL_BYTES).map_err(text)?;
        let doorbell = Mapping::of(fds[2].as_fd(), 4096).map_err(text)?;
        Ok(Ok((Liar { socket, control, doorbell }, answer.id)))
    }

    /// The kind of the answer, and its error number.
    fn attach(&self, fd: &OwnedFd) -> Result<(Option<Kind>, i32), String> {
        socket::send(self.socket.as_fd(), &Message::new(Kind::Attach), &[fd.as_fd()])
            .map_err(text)?;
        let (answer, _) =
            socket::receive(self.socket.as_fd()).map_err(text)?.ok_or("the supervisor hung up")?;
        Ok((answer.kind(), answer.pid))
    }

    fn ask(&self, what: u32, argument: u64) -> Result<i32, String> {
        // SAFETY: mappings of their whole files; all fields used are atomic.
        let (control, doorbell) = unsafe {
            (&*self.control.as_ptr().cast::<Control>(), &*self.doorbell.as_ptr().cast::<Doorbell>())
        };
        control.call.op.store(what, Ordering::Relaxed);
        control.call.args[0].store(argument, Ordering::Relaxed);
        let number = control.call.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        doorbell.rung.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&doorbell.rung);
        wait_for("an answer", || control.call.answered.load(Ordering::Acquire) == number)?;
        Ok(control.call.result.load(Ordering::Acquire))
    }
}

fn new_uffd(ready: bool) -> Result<OwnedFd, String> {
    // SAFETY: a new descriptor, and the structure that belongs to the number.
    unsafe {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let made = sys::check(libc::syscall(libc::SYS_userfaultfd, flags) as i32).map_err(text)?;
        let made = OwnedFd::from_raw_fd(made);
        let mut api = userfaultfd::Api {
            api: userfaultfd::VERSION,
            features: USERFAULTFD_FEATURES,
            ioctls: 0,
        };
        if ready {
            sys::check(libc::ioctl(made.as_raw_fd(), userfaultfd::API, &mut api)).map_err(text)?;
        }
        Ok(made)
    }
}

/// Nobody gives memory to another's program, nor speaks as its parent; what is no userfaultfd is refused.
fn foreign(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let victim = world.start("content", &["12", "2", "3", "84", "40"])?;
    wait_for("the other program", || find(&world, victim.id()).is_some())?;
    let number = find(&world, victim.id()).and_then(|program| program["id"].as_u64()).unwrap_or(0);
    let (liar, own) = Liar::hello(&world, 0)?.map_err(|error| format!("refused: {error}"))?;
    let half = new_uffd(false)?;
    let pipe = sys::memory_file(c"[userfaultfd]", 4096).map_err(text)?;
    for wrong in [&half, &pipe] {
        let (liar, _) = Liar::hello(&world, 0)?.map_err(|error| format!("refused: {error}"))?;
        let answer = liar.attach(wrong)?;
        if answer.0 != Some(Kind::Refused) || answer.1 == 0 {
            return Err(format!("not refused: {answer:?}"));
        }
    }
    let fd = new_uffd(true)?;
    let answer = liar.attach(&fd)?;
    if answer.0 != Some(Kind::Taken) {
        return Err(format!("a userfaultfd was not taken: {answer:?}"));
    }
    // Its own child: allowed; once.
    let (_child, child) = Liar::hello(&world, own)?.map_err(|error| format!("own: {error}"))?;
    for (id, expected) in [(number, -libc::EPERM), (u64::from(child), 0)] {
        liar.ask(op::FREEZE, 0)?;
        let answer = liar.ask(op::SNAPSHOT, id)?;
        if answer != expected {
            return Err(format!("a snapshot for program {id}: {answer}, not {expected}"));
        }
    }
    match Liar::hello(&world, number as u32)? {
        Err(libc::EPERM) => {}
        other => return Err(format!("a child of another's program: {:?}", other.map(|two| two.1))),
    }
    finish(victim)?;
    drop(liar);
    drop(fd);
    Ok(())
}

/// A read of a userfaultfd that was made blocking does not wait, and poll is quiet again afterwards.
fn patient(_: &Stage) -> Outcome {
    let fd = new_uffd(true)?;
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut poll = || {
        // SAFETY: one entry; does not wait.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents
    };
    // SAFETY: a plain call on a descriptor of ours.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, 0) };
    if poll() != libc::POLLERR {
        return Err("this kernel polls a blocking userfaultfd: nothing was tested".into());
    }
    let mut room = [userfaultfd::Message::default(); 4];
    let got = uffd::read(fd.as_fd(), &mut room).map_err(text)?;
    uffd::unblock(fd.as_fd());
    match (got, poll(), uffd::is_ready(fd.as_fd()), uffd::is_ready(new_uffd(false)?.as_fd())) {
        (0, 0, true, false) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// `page run` with a daemon of its own in `folder`.
fn run_alone(stage: &Stage, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(&stage.launcher);
    command.args(["page", "run", "--limit", "8M", "--store", "memory", "--socket"]);
    command.arg(folder.join("sock")).arg("--").args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Supervisors at this socket.
fn supervisors(socket: &Path) -> Vec<i32> {
    let is = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&&b"daemon"[..]) && words.contains(&socket.as_os_str().as_encoded_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is).collect()
}

fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program whose first large mapping comes long after the daemon has nobody else: the daemon is still there, and it
/// ends when the program has.
fn late(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let content = stage.programs.join("content");
    let line = format!("sleep 4; exec {} 12 2 1 85 40", content.display());
    let child = run_alone(stage, folder.path(), &["sh", "-c", &line]).spawn().map_err(text)?;
    finish(child)?;
    let socket = folder.path().join("sock");
    wait_for("the daemon's end", || supervisors(&socket).is_empty() && !socket.exists())
}

/// A daemon that was killed meanwhile: the program is told.
fn gone(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let content = stage.programs.join("content");
    let line = format!("read line; exec {} 12 2 1 86 40", content.display());
    let mut child = run_alone(stage, folder.path(), &["sh", "-c", &line]).spawn().map_err(text)?;
    let socket = folder.path().join("sock");
    wait_for("a supervisor and its daemon", || {
        supervisors(&socket).first().is_some_and(|&pid| !children(pid).is_empty())
    })?;
    for pid in supervisors(&socket) {
        // SAFETY: a supervisor that this case has started.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    wait_for("its end", || supervisors(&socket).is_empty())?;
    child.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(text)?;
    let output = child.wait_with_output().map_err(text)?;
    match said(&output).lines().filter(|line| line.contains("NOT paged and has no limit")).count() {
        1 => Ok(()),
        _ => Err(format!("it was not told: {}", said(&output))),
    }
}

/// More programs than there are descriptors for: `page run` says so and fails, or runs without when told to; a
/// program in the middle of others is told; none hangs.
fn crowd(stage: &Stage) -> Outcome {
    let few = |command: &mut Command| {
        // SAFETY: setrlimit is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let files = libc::rlimit { rlim_cur: 40, rlim_max: 96 };
                sys::check(libc::setrlimit(libc::RLIMIT_NOFILE, &files)).map(drop)
            })
        };
    };
    let world = World::with(stage, &with(&["--store", "memory"]), &[], few)?;
    let content = stage.programs.join("content");
    // 96 descriptors: 4 programs.
    let line = format!("for n in 1 2 3 4 5; do {} 2 1 1 $n 40 & done; wait", content.display());
    let socket = world.folder.join("sock");
    let all = run_alone(stage, &world.folder, &["sh", "-c", &line]).output().map_err(text)?;
    let told =
        said(&all).lines().filter(|line| line.contains("NOT paged and has no limit")).count();
    let fine =
        String::from_utf8_lossy(&all.stdout).lines().filter(|line| line.contains("ok")).count();
    if (told, fine) != (1, 4) {
        return Err(format!("{told} told, {fine} fine: {}", said(&all)));
    }
    world.is_clean()?;
    let mut held = Vec::new();
    for n in 0..4 {
        let lease = endpoint::lease(&socket).map_err(text)?;
        held.push(lease.map_err(|refused| format!("lease {n} is refused: {}", refused.text()))?);
    }
    let fifth = run_alone(stage, &world.folder, &["true"]).output().map_err(text)?;
    let line = said(&fifth);
    if fifth.status.code() != Some(2) || line.lines().count() != 1 || !line.contains("ulimit -Hn") {
        return Err(format!("{} {line}", fifth.status));
    }
    let mut unpaged = Command::new(&stage.launcher);
    unpaged.args(["page", "run", "--allow-unpaged", "--socket"]).arg(&socket).args(["--", "true"]);
    let unpaged = unpaged.output().map_err(text)?;
    if !unpaged.status.success() || !said(&unpaged).contains("unpaged") {
        return Err(format!("{} {}", unpaged.status, said(&unpaged)));
    }
    // More than it can accept: who comes is answered, and it lives.
    let more: Vec<_> = (0..60).map_while(|_| endpoint::connect(&socket).ok()).collect();
    for connection in &more {
        let _ = socket::send(connection.as_fd(), &Message::new(Kind::Lease), &[]);
        let answer = socket::receive(connection.as_fd());
        if !matches!(&answer, Ok(Some((refused, _))) if refused.kind() == Some(Kind::Refused)) {
            return Err(format!("not refused: {answer:?}"));
        }
    }
    drop((held, more));
    wait_for("room again", || matches!(endpoint::lease(&socket), Ok(Ok(_))))?;
    world.run("content", &["4", "1", "1", "88", "40"])
}

/// What the one who starts it has preloaded, opened, and where it stands, does not reach the daemon.
fn bare(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let stray = fs::File::create(folder.path().join("stray")).map_err(text)?;
    let mut command = run_alone(stage, folder.path(), &["sh", "-c", "read line"]);
    let number = stray.as_raw_fd();
    let library = stage.launcher.with_file_name("libodfork_pager.so");
    command.env("LD_PRELOAD", &library).env("SECRET", "x").current_dir(folder.path());
    // SAFETY: dup2 is allowed between fork and exec.
    unsafe { command.pre_exec(move || sys::check(libc::dup2(number, 9)).map(drop)) };
    let mut child = command.spawn().map_err(text)?;
    let socket = folder.path().join("sock");
    wait_for("a supervisor and its daemon", || {
        supervisors(&socket).first().is_some_and(|&pid| !children(pid).is_empty())
    })?;
    wait_for("the program", || endpoint::status(&socket).is_ok())?;
    let outcome = supervisors(&socket)
        .into_iter()
        .flat_map(|pid| children(pid).into_iter().chain([pid]))
        .try_for_each(|pid| is_bare(pid, folder.path()));
    drop(child.stdin.take());
    child.wait().map_err(text)?;
    outcome
}

fn is_bare(pid: i32, folder: &Path) -> Outcome {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let environment = fs::read(process.join("environ")).map_err(text)?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    if environment.contains("LD_PRELOAD") || environment.contains("SECRET") {
        return Err(format!("inherited variables: {environment}"));
    }
    if fs::read_to_string(process.join("maps")).map_err(text)?.contains("odfork_pager.so") {
        return Err("the agent is in the daemon".into());
    }
    if fs::read_link(process.join("cwd")).map_err(text)? != Path::new("/") {
        return Err("it holds the folder it was started in".into());
    }
    for entry in fs::read_dir(process.join("fd")).map_err(text)?.flatten() {
        if fs::read_link(entry.path()).is_ok_and(|to| to == folder.join("stray")) {
            return Err(format!("a stray descriptor: {}", entry.path().display()));
        }
    }
    Ok(())
}

/// The daemon is in its jail, a cap holds traffic down, and both survive the daemon's death.
fn capped(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&["--store", "memory", "--store-size", "400M"]), &[])?;
    let socket = world.folder.join("sock");
    let set = |setting: &str| {
        let question = Message::new(Kind::Set).with_text(setting.as_bytes());
        endpoint::ask(&socket, &question, PATIENCE).map_err(text)
    };
    for (setting, fine) in
        [("page-out-rate=4", true), ("page-in-rate=50", true), ("page-out-rate=x", false)]
    {
        if set(setting)?.trim().is_empty() != fine {
            return Err(format!("{setting}: {}", set(setting)?));
        }
    }
    world.signal_daemon(libc::SIGKILL);
    wait_for("another daemon", || world.restarts() == 1 && world.status().is_ok())?;
    let pid = world.daemon().ok_or("no daemon")?;
    let process = fs::read_to_string(format!("/proc/{pid}/status")).map_err(text)?;
    if !process.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])) {
        return Err(format!("no jail: {process}"));
    }
    let began = Instant::now();
    world.run("content", &["20", "2", "1", "89", "90"])?;
    let status = world.status()?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = status["totals"]["page_outs"].as_u64().unwrap_or(0) as f64 * 4096.0;
    // What the bucket holds, and a batch that is on its way.
    let most = 4e6 * (seconds + 0.1) + 64.0 * 4096.0;
    if status["knobs"]["page-out-rate"] != 4 || bytes == 0.0 || bytes > most {
        return Err(format!("{bytes} bytes in {seconds} s, at most {most}: {status}"));
    }
    world.is_clean()
}

/// Somebody else's daemon gets nobody's memory, whether the launcher or the agent finds it.
fn strange(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let place = folder.path().join("shared");
    fs::create_dir(&place).map_err(text)?;
    for path in [folder.path(), &place] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).map_err(text)?;
    }
    let launcher = place.join("odfork");
    fs::copy(&stage.launcher, &launcher).map_err(text)?;
    let socket = place.join("sock");
    let mut theirs = Command::new(&launcher)
        .args(["page", "daemon", "--limit", "8M", "--store", "memory", "--allow-uid", "0"])
        .arg("--socket")
        .arg(&socket)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let mut line = String::new();
    if let Some(out) = &mut theirs.stdout {
        BufReader::new(out).read_line(&mut line).map_err(text)?;
    }
    let ran = run_alone(stage, &place, &["true"]).output();
    let library = stage.launcher.with_file_name("libodfork_pager.so");
    let mut program = Command::new(stage.programs.join("content"));
    program.args(["2", "1", "1", "87", "40"]);
    program.env("LD_PRELOAD", library).env(endpoint::SOCKET, &socket);
    let found = program.output();
    let _ = theirs.kill();
    let _ = theirs.wait();
    let (ran, found) = (ran.map_err(text)?, found.map_err(text)?);
    if line.trim() != "ready" || ran.status.code() != Some(2) || !said(&ran).contains("65534") {
        return Err(format!("{line} {} {}", ran.status, said(&ran)));
    }
    match said(&found).contains("somebody else listens") {
        true => Ok(()),
        false => Err(format!("the agent: {} {}", found.status, said(&found))),
    }
}
