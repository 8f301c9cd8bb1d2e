//! What one program, or whoever starts a daemon, may do to others: nothing.
//!
//! Owns: programs that lie, stand still or are too many, daemons that come late or are gone, and
//! what a daemon inherits.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use odfork_pager::sys;
use odfork_pager::{endpoint, socket, uffd};
use odfork_pager_protocol::control::op;
use odfork_pager_protocol::wire::{Kind, Message};
use odfork_sys::abi::userfaultfd;

use super::alone::{bare, crowd, gone, late, run_alone, said};
use super::liar::{new_uffd, Liar};
use super::world::*;

pub type Case = (&'static str, fn(&Stage) -> Outcome);

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

pub fn text<E: ToString>(error: E) -> String {
    error.to_string()
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

/// A stopped program, asked for many pages, holds up nobody: the hand goes on for others as far as
/// they need.
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

/// More is asked of a program that stands still than is ever wanted at a time, and the hand moves
/// all the same.
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

/// Nobody gives memory to another's program, nor speaks as its parent; what is no userfaultfd is
/// refused.
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

/// A read of a userfaultfd that was made blocking does not wait, and poll is quiet again
/// afterwards.
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
