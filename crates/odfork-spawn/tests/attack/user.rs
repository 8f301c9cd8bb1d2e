//! Users, groups, limits on processes, cgroups and namespaces: what needs root to set up, seen as
//! root and as a user.
//!
//! Owns the steps groups, gid, uid, cgroup and the limits of clone, and that the parent stays as
//! dumpable as it was, whatever its children become.

use std::path::{Path, PathBuf};

use odfork_spawn::{Cause, CloneMethod, Command, Step};

use crate::failures::fails;
use crate::kernel::{self, become_user, require_root, Folder, USER};
use crate::{probe, Case};

pub const CASES: &[(&str, Case)] = &[
    ("root_gives_its_rights_up", gives_up),
    ("a_user_cannot_become_another", user_cannot),
    ("a_bad_user_for_the_program", bad_user),
    ("too_many_processes", too_many),
    ("dumpable_stays_after_spawns_of_other_users", || dumpable(1)),
    ("undumpable_stays_after_spawns_of_other_users", || dumpable(0)),
    ("born_in_a_cgroup", cgroups),
    ("in_a_user_namespace", user_namespace),
    ("as_the_first_process_of_a_namespace", pid_namespace),
];

fn gives_up() -> Result<(), String> {
    require_root()?;
    let own = probe::own();
    let found = probe::found(probe::command().uid(USER).gid(4321));
    assert_eq!(found["Uid"], format!("{USER} {USER} {USER} {USER}"));
    assert_eq!((&found["Gid"][..], &found["Groups"][..]), ("4321 4321 4321 4321", ""));
    let found = probe::found(probe::command().uid(USER).groups(&[7, 5]));
    assert_eq!(found["Groups"], "5 7");
    let found = probe::found(probe::command().gid(4321));
    assert_eq!((&found["Uid"], &found["Groups"]), (&own["Uid"], &own["Groups"]));
    assert_eq!(probe::own(), own, "the parent is what it was");
    // The directory is entered with the program's rights.
    let folder = Folder::new();
    let closed = folder.folder("closed", 0o700);
    let mut command = Command::new("/bin/true");
    let text = closed.to_str().unwrap().to_owned();
    fails(command.uid(USER).current_dir(&closed), Step::Directory, libc::EACCES, &text);
    let program = folder.file("closed/program", b"#!/bin/sh\n", 0o755);
    let mut command = Command::new(&program);
    fails(command.uid(USER), Step::Exec, libc::EACCES, program.to_str().unwrap());
    Ok(())
}

fn user_cannot() -> Result<(), String> {
    require_root()?;
    become_user(USER);
    let command = || Command::new("/bin/true");
    fails(command().uid(0), Step::Uid, libc::EPERM, "0");
    fails(command().gid(0), Step::Gid, libc::EPERM, "0");
    fails(command().groups(&[1]), Step::Groups, libc::EPERM, "");
    fails(command().limit(libc::RLIMIT_NICE, 40, 40), Step::Limits, libc::EPERM, "resource 13");
    // To stay who one is needs no right.
    assert!(command().uid(USER).gid(USER).status().unwrap().success());
    Ok(())
}

/// A script a user may run, with an interpreter he may not.
fn bad_user() -> Result<(), String> {
    require_root()?;
    let folder = Folder::new();
    let mut sh = folder.path().join("sh");
    std::fs::copy("/bin/sh", &sh).unwrap();
    kernel::set_mode(&sh, 0o700);
    let script = folder.file("script", format!("#!{}\n", sh.display()).as_bytes(), 0o755);
    assert!(Command::new(&script).status().unwrap().success());
    let error = Command::new(&script).uid(USER).spawn().map(drop).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
    sh.pop();
    fails(Command::new("/bin/true").uid(u32::MAX), Step::Uid, libc::EINVAL, "4294967295");
    Ok(())
}

fn too_many() -> Result<(), String> {
    require_root()?;
    // A number nobody else here has: the kernel counts the processes of a user.
    let user = 3_000_000 + std::process::id() % 1_000_000;
    become_user(user);
    let old = kernel::set_limit(libc::RLIMIT_NPROC, 1);
    fails(&mut Command::new("/bin/true"), Step::Clone, libc::EAGAIN, "");
    let error = Command::new("/bin/true").spawn().map(drop).unwrap_err();
    assert!(error.to_string().contains("RLIMIT_NPROC"), "{error}");
    kernel::set_limit(libc::RLIMIT_NPROC, old);
    let mut child = Command::new("/bin/true").spawn().unwrap();
    assert_eq!(
        child.method(),
        CloneMethod::Clone3,
        "too many processes is no reason to leave clone3"
    );
    assert!(child.wait().unwrap().success());
    Ok(())
}

/// What the kernel makes of a process whose memory a child shared that changed its user
/// (suid_dumpable), it shall not be afterwards, with 4 threads at it, and failures in between.
fn dumpable(value: i32) -> Result<(), String> {
    require_root()?;
    // SAFETY: numbers only.
    let now = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    let sysctl = "/proc/sys/fs/suid_dumpable";
    let was = std::fs::read_to_string(sysctl).map_err(|e| format!("{sysctl}: {e}"))?;
    for other in ["0", "1"] {
        // 1 would open a parent that closed itself.
        std::fs::write(sysctl, other).map_err(|e| format!("{sysctl}: {e}"))?;
        let result = std::panic::catch_unwind(|| {
            // SAFETY: numbers only.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, value, 0, 0, 0) };
            std::thread::scope(|scope| {
                for n in 0..4u32 {
                    scope.spawn(move || change_users(n));
                }
            });
        });
        std::fs::write(sysctl, was.trim()).unwrap();
        result.unwrap();
        assert_eq!(now(), value, "suid_dumpable {other}");
    }
    kernel::no_child_is_left();
    Ok(())
}

fn change_users(number: u32) {
    for round in 0..60 {
        let mut command = Command::new("/bin/true");
        command.uid(USER - number);
        match round % 4 {
            0 => assert!(command.gid(USER).status().unwrap().success()),
            1 => drop(command.current_dir("/no/such").spawn().unwrap_err()),
            2 => drop(Command::new("/no/such").uid(USER).spawn().unwrap_err()),
            _ => assert!(command.status().unwrap().success()),
        }
    }
}

/// A cgroup of one's own, removed when nobody is in it any more.
struct Cgroup(PathBuf);

impl Cgroup {
    fn below(root: &str) -> Result<Cgroup, String> {
        let path = Path::new(root).join(format!("odfork-attack-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Cgroup(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn cgroups() -> Result<(), String> {
    require_root()?;
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mut tried = 0;
    for kind in ["cgroup2", "cgroup"] {
        let roots = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let mut roots = roots
            .filter(|w| w.get(2) == Some(&kind) && (kind == "cgroup2" || w[1].ends_with("/cpu")));
        let Some(Ok(group)) = roots.next().map(|words| Cgroup::below(words[1])) else { continue };
        tried += 1;
        let name = group.0.file_name().unwrap().to_str().unwrap().to_owned();
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/cgroup").cgroup(&group.0).stdout(odfork_spawn::Stdio::piped());
        let child = command.spawn().unwrap();
        let due = if kind == "cgroup2" { CloneMethod::Clone3 } else { CloneMethod::Clone };
        assert_eq!(child.method(), due, "{kind}");
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.contains(&name), "{kind}: {text}");
        // Too many processes are refused at birth, by the group's own count; elsewhere nothing has
        // changed.
        if std::fs::write(group.0.join("pids.max"), "0").is_ok() {
            let error = Command::new("/bin/true").cgroup(&group.0).spawn().map(drop).unwrap_err();
            assert_eq!((error.step(), error.cause()), (Step::Clone, Cause::Errno(libc::EAGAIN)));
        }
        let path = group.0.clone();
        drop(group);
        let mut command = Command::new("/bin/true");
        fails(command.cgroup(&path), Step::Cgroup, libc::ENOENT, path.to_str().unwrap());
        assert_eq!(
            Command::new("/bin/true").spawn().map(|mut c| (c.method(), c.wait().is_ok())).unwrap(),
            (CloneMethod::Clone3, true)
        );
        as_a_user(|| {
            let mut command = Command::new("/bin/true");
            let root = path.parent().unwrap();
            fails(command.cgroup(root), Step::Cgroup, libc::EACCES, root.to_str().unwrap());
        });
    }
    (tried > 0).then_some(()).ok_or("no cgroup can be made here".into())
}

/// In a child of this process that is nobody.
fn as_a_user(look: impl FnOnce()) {
    in_a_fork(|| {
        become_user(USER);
        look();
    });
}

/// In a child of this process, which has one thread.
pub fn in_a_fork(look: impl FnOnce()) {
    // SAFETY: the child ends below; where other threads run, `look` must not need their locks.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        // SAFETY: ends this process.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "in the forked child; see above");
}

fn user_namespace() -> Result<(), String> {
    // SAFETY: numbers only; concerns this process.
    let ids = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: as above.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return Err(format!("no user namespace: {}", std::io::Error::last_os_error()));
    }
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", ids.0)).unwrap();
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", ids.1)).unwrap();
    assert!(Command::new("/bin/true").status().unwrap().success());
    assert!(Command::new("/bin/true").gid(0).status().unwrap().success());
    fails(Command::new("/bin/true").gid(77), Step::Gid, libc::EINVAL, "77");
    fails(Command::new("/bin/true").uid(0), Step::Groups, libc::EPERM, "");
    Ok(())
}

fn pid_namespace() -> Result<(), String> {
    require_root()?;
    let first = || {
        assert_eq!(std::process::id(), 1);
        let mut command = Command::new("/bin/true");
        assert!(command.parent_death_signal(9).uid(USER).pidfd(true).status().unwrap().success());
        assert!(Command::new("/bin/true").output_for(b"x").unwrap().status.success());
        fails(Command::new("/no/such").uid(USER), Step::Exec, libc::ENOENT, "/no/such");
    };
    // SAFETY: a number only: children of this process are in a new namespace, it is not itself.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return Err(format!("no pid namespace: {}", std::io::Error::last_os_error()));
    }
    in_a_fork(first);
    in_a_fork(|| {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        // The program is the first one; its parent has no number there, and is alive all the same.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 42"]).parent_death_signal(libc::SIGTERM);
        assert_eq!(command.status().unwrap().code(), Some(42));
    });
    Ok(())
}
