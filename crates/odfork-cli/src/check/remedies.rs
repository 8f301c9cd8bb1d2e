//! What would help here: found by trying, each call in a child of its own.
//!
//! Owns which remedy belongs to what was found. A call is forbidden by a filter when it answers
//! otherwise to arguments without effect than the kernel does, or kills.

use std::io::Error;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::{child, image_kind, obstacle, Finding, Mark, Seen};

/// What a change would bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    Freezing,
    Pages,
    Threads,
}

impl Aim {
    pub fn words(self) -> &'static str {
        match self {
            Aim::Freezing => "For any frozen memory",
            Aim::Pages => "For 2 MB pages",
            Aim::Threads => "For programs with threads",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remedy {
    pub aim: Aim,
    pub change: String,
}

/// A call, with arguments that are without effect, and the answer of the kernel to them.
struct Call {
    name: &'static str,
    look: fn() -> Seen,
}

/// Calls that find a source of huge pages. `fsopen` and `fsmount` answer EPERM to those who may not
/// mount; no list has them without `fsconfig`.
const FOR_PAGES: [Call; 3] = [
    Call {
        name: "fsopen fsconfig fsmount",
        look: || kernel_answers(libc::SYS_fsconfig, [usize::MAX; 5], &[libc::EINVAL]),
    },
    Call { name: "unshare", look: || kernel_answers(libc::SYS_unshare, [0; 5], &[]) },
    Call { name: "mincore", look: || kernel_answers(libc::SYS_mincore, [0; 5], &[]) },
];

const USERFAULTFD: Call = Call {
    name: "userfaultfd",
    // All flags: with the one that anybody may use among them, they are no valid flags.
    look: || kernel_answers(libc::SYS_userfaultfd, [0xffff, 0, 0, 0, 0], &[libc::EINVAL]),
};

const PTRACE: Call = Call {
    name: "ptrace",
    look: || kernel_answers(libc::SYS_ptrace, [TRACE_NOBODY, 0, 0, 0, 0], &[libc::ESRCH]),
};
const TRACE_NOBODY: usize = libc::PTRACE_SEIZE as usize;

const DIRECTORY: &str =
    "mount -t tmpfs -o huge=always,size=0,mode=1777 odfork DIR (on the host; DIR passed \
                         into the container), and ODFORK_IMAGE_DIR=DIR";
const ADVISE: &str = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
const NAMESPACES: &str =
    "user namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                          kernel.apparmor_restrict_unprivileged_userns=0";
const YAMA: &str = "sysctl kernel.yama.ptrace_scope=1";
const SYSCTL: &str = "sysctl vm.unprivileged_userfaultfd=1";
const PASS_IN: &str =
    "the device /dev/userfaultfd passed in (docker run --device /dev/userfaultfd; Linux 6.1)";
const UDEV: &str = "access to /dev/userfaultfd, by a rule of udev: \
                    KERNEL==\"userfaultfd\", GROUP=\"NAME\", MODE=\"0660\"";

fn kernel_answers(number: libc::c_long, a: [usize; 5], answers: &[i32]) -> Seen {
    // SAFETY: arguments that every one of these calls refuses or does nothing for.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4]) };
    let error = Error::last_os_error();
    let allowed = match result {
        -1 => error.raw_os_error().is_some_and(|errno| answers.contains(&errno)),
        _ => answers.is_empty(),
    };
    match allowed {
        true => Seen::yes("answered by the kernel"),
        false => Seen::no(error.to_string()),
    }
}

fn is_forbidden(call: &Call) -> bool {
    child::observe(call.look).mark != Mark::Yes
}

fn forbidden(calls: &[Call]) -> Option<String> {
    let names: Vec<_> = calls.iter().filter(|call| is_forbidden(call)).map(|c| c.name).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(" ");
        format!("the filter of system calls: allow {names} (systemd: SystemCallFilter={names})")
    })
}

/// What would bring more than was found.
pub fn remedies(findings: &[Finding]) -> Vec<Remedy> {
    let mark = |id: &str| findings.iter().find(|f| f.probe.id == id).map(|f| f.seen.mark);
    if let Some(one) = obstacle(findings) {
        return vec![Remedy { aim: Aim::Freezing, change: one.probe.change.to_owned() }];
    }
    let mut all = Vec::new();
    let mut add = |aim, change: &str| all.push(Remedy { aim, change: change.to_owned() });
    if !image_kind(findings).starts_with("huge") && mark("thp") == Some(Mark::Yes) {
        match forbidden(&FOR_PAGES) {
            Some(filter) => add(Aim::Pages, &filter),
            None => add(Aim::Pages, NAMESPACES),
        }
        if mark("memfd") == Some(Mark::Yes) && mark("memfd-huge") != Some(Mark::Yes) {
            add(Aim::Pages, ADVISE);
        }
        add(Aim::Pages, DIRECTORY);
    }
    if !threads(findings) {
        match device_is_there() {
            true => add(Aim::Threads, UDEV),
            false => add(Aim::Threads, PASS_IN),
        }
        if !is_forbidden(&USERFAULTFD) {
            add(Aim::Threads, SYSCTL);
        }
        match forbidden(&[PTRACE]) {
            Some(filter) => add(Aim::Threads, &filter),
            None => add(Aim::Threads, YAMA),
        }
    }
    all
}

/// Not something else in its place, as in some containers.
fn device_is_there() -> bool {
    const MISC: u32 = 10;
    let found = std::fs::metadata("/dev/userfaultfd");
    found.is_ok_and(|device| {
        device.file_type().is_char_device() && libc::major(device.rdev()) == MISC
    })
}

/// Programs with threads are frozen too.
pub fn threads(findings: &[Finding]) -> bool {
    let ways = ["userfaultfd-wp", "ptrace"];
    findings.iter().any(|f| ways.contains(&f.probe.id) && f.seen.mark == Mark::Yes)
}
