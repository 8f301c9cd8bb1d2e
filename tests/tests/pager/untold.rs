//! `page run --memory any` without CAP_SYS_PTRACE, so that the kernel does not tell of forks; and
//! which way `page run` takes by itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::alone::said;
use super::any::{command, counted, Case};
use super::others::text;
use super::world::*;

/// Root without the capability: the device of userfaultfd is there, as in a container that got it.
const WITHOUT: [&str; 4] = ["--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"];

/// The same command by somebody who may do less.
fn less(words: &[&str], command: &Command) -> Command {
    let mut other = Command::new(words[0]);
    other.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| other.env(name, value));
    }
    other.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    other
}

/// Children have all memory; pages were away, and the kernel told of no fork.
fn untold(stage: &Stage, words: &[&str]) -> Outcome {
    if !Path::new("/dev/userfaultfd").exists() {
        println!("SKIP: no /dev/userfaultfd (Linux 6.1)");
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(text)?;
    let whole = command(stage, folder.path(), "8M", words);
    let counts = counted(folder.path(), less(&[&["setpriv"][..], &WITHOUT].concat(), &whole))?;
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    match (count("page_outs"), count("page_ins"), count("forks")) {
        (1.., 1.., 0) => Ok(()),
        _ => Err(format!("nothing was tested: {counts}")),
    }
}

/// An ordinary user who may open the device: in a mount namespace of its own, so that nobody else
/// may.
fn ordinary(stage: &Stage) -> Outcome {
    const NOBODY: u32 = 65534;
    const SCRIPT: &str = "mount --make-rprivate / && mknod -m 666 \"$1/device\" c 10 \"$2\" && \
        mount --bind \"$1/device\" /dev/userfaultfd && shift 2 && \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let misc = fs::read_to_string("/proc/misc").map_err(text)?;
    let line = misc.lines().find(|line| line.ends_with(" userfaultfd"));
    let Some(minor) = line.and_then(|line| line.split_whitespace().next()) else {
        println!("SKIP: no /dev/userfaultfd (Linux 6.1)");
        return Ok(());
    };
    let folder = tempfile::tempdir().map_err(text)?;
    let at = folder.path();
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).map_err(text)?;
    let library = stage.launcher.with_file_name("libodfork_pager.so");
    for file in [&stage.launcher, &library, &stage.programs.join("any")] {
        let to = at.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(text)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(text)?;
    }
    let mut plain = Command::new(at.join("odfork"));
    plain.args(["page", "run", "--limit", "8M", "--store"]).arg(at).arg("--");
    plain.arg(at.join("any")).arg("forked").env("ODFORK_PAGE_REPORT", at.join("report"));
    plain.env("XDG_RUNTIME_DIR", at.join("own"));
    fs::create_dir(at.join("own")).map_err(text)?;
    std::os::unix::fs::chown(at.join("own"), Some(NOBODY), Some(NOBODY)).map_err(text)?;
    let place = at.to_str().unwrap_or_default();
    let words = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", place, minor];
    let counts = counted(at, less(&words, &plain))?;
    match counts["page_ins"].as_u64() {
        Some(1..) => Ok(()),
        _ => Err(format!("nothing was paged: {counts}")),
    }
}

/// `page run` pages all memory by itself where that can be had, and leaves what asks for the daemon
/// to it. What cannot be had is told in one line.
fn chosen(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let socket = folder.path().join("sock");
    let socket = socket.to_str().unwrap_or_default();
    let place = folder.path().to_str().unwrap_or_default();
    for (options, is_any) in [
        (&["--store", place][..], true),
        (&["--store", "memory", "--compress", "lz4"], true),
        (&["--store", place, "--memory", "large", "--socket", socket], false),
        (&["--store", place, "--socket", socket], false),
    ] {
        let report = folder.path().join("report");
        let _ = fs::remove_file(&report);
        let mut command = Command::new(&stage.launcher);
        command.args(["page", "run", "--limit", "8M"]).args(options);
        command.args(["--", "true"]).env("ODFORK_PAGE_REPORT", &report);
        let output = command.output().map_err(text)?;
        if !output.status.success() {
            return Err(format!("{options:?}: {}: {}", output.status, said(&output)));
        }
        // The program's end is seen a moment later than by us.
        let is_counted = || fs::read(&report).is_ok_and(|text| !text.is_empty());
        let seen = if is_any { wait_for("the report", is_counted).is_ok() } else { is_counted() };
        if seen != is_any {
            return Err(format!("{options:?}: all memory: {seen}"));
        }
    }
    let mut plain = Command::new(&stage.launcher);
    plain.args(["page", "run", "--memory", "any", "--limit", "8M", "--", "true"]);
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let allowed = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    if allowed.trim() != "0" {
        return Ok(());
    }
    let refused = less(&nobody, &plain).output().map_err(text)?;
    let line = said(&refused);
    let names = ["/dev/userfaultfd", "unprivileged_userfaultfd", "CAP_SYS_PTRACE"];
    let is_one = line.lines().count() == 1 && refused.status.code() == Some(2);
    match is_one && names.iter().all(|name| line.contains(name)) {
        true => Ok(()),
        false => Err(format!("{}: {line}", refused.status)),
    }
}

pub const CASES: [(&str, Case); 8] = [
    ("small", |s| untold(s, &["any", "small"])),
    ("forked", |s| untold(s, &["any", "forked"])),
    ("unhandled", |s| untold(s, &["any", "unhandled"])),
    ("cloned", |s| untold(s, &["any", "cloned"])),
    ("forking", |s| untold(s, &["any", "forking"])),
    ("forks", |s| untold(s, &["forks", "12", "2", "5", "2"])),
    ("ordinary", ordinary),
    ("chosen", chosen),
];
