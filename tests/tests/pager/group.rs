//! `page run --memory any` of several processes: they have one limit together.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use odfork_pager_protocol::{GROUP_BYTES, GROUP_SLOT};
use odfork_tests::watch::below;
use serde_json::Value;

use super::any::{command, Case};
use super::growth::{has_ended, most_private_pages};
use super::others::text;
use super::world::*;

const LIMIT: u64 = 24;

/// The program, its folder of sockets and its report in this folder.
fn start(stage: &Stage, folder: &Path, words: &[&str]) -> Result<Child, String> {
    let mut command = command(stage, folder, &format!("{LIMIT}M"), words);
    command.env("XDG_RUNTIME_DIR", folder).spawn().map_err(text)
}

/// Private memory of a process in MB, its part of what is shared. A task has its program's memory.
fn private(pid: u32) -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    if matches!(read("comm").trim(), "odfork-page" | "odfork-hold") {
        return 0;
    }
    let rollup = read("smaps_rollup");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    line.and_then(|rest| rest.trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// The most that the program and all below it had; it must say ok.
fn most(mut child: Child) -> Result<u64, String> {
    let mut most = 0;
    wait_for("the end", || {
        let all = below(child.id()).into_iter().chain([child.id()]);
        most = most.max(all.map(private).sum());
        !matches!(child.try_wait(), Ok(None))
    })?;
    finish(child).map(|()| most)
}

/// The sum of a count of all processes.
fn sum(folder: &Path, name: &str) -> u64 {
    let said = fs::read_to_string(folder.join("report")).unwrap_or_default();
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line[name].as_u64()).sum()
}

/// Four processes of the size of the limit each, that are executed. What is seen of one is older
/// than what is seen of the next, so it may be somewhat more.
fn together(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let words = ["group", "together", "4", &LIMIT.to_string(), "3"];
    let most = most(start(stage, folder.path(), &words)?)?;
    match sum(folder.path(), "page_ins") {
        0 => Err("nothing came back".into()),
        _ if most >= 2 * LIMIT => Err(format!("{most} MB in memory under {LIMIT}")),
        _ => Ok(()),
    }
}

/// One that does nothing gives what it has to one that needs it.
fn idle(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let child = start(stage, folder.path(), &["group", "idle", "20", "10000"])?;
    let pid = child.id();
    let gives = wait_for("it gives its memory", || {
        has_ended(pid) || most_private_pages(pid) >= 18 << 8 && private(pid) <= 6
    });
    let ended = has_ended(pid);
    finish(child).and(gives)?;
    match ended {
        true => Err("it ended before it was seen".into()),
        false => Ok(()),
    }
}

/// What a parent has filled counts once, although its children read all of it: hardly anything of
/// it is copied.
fn kin(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let child = start(stage, folder.path(), &["group", "kin", "3", "16", "200"])?;
    let most = most(child)?;
    let unshared = sum(folder.path(), "unshared");
    match unshared < 3 * 16 * 256 / 2 && most <= 2 * LIMIT {
        true => Ok(()),
        false => Err(format!("{unshared} pages copied, {most} MB in memory")),
    }
}

/// Without the file a program has a limit of its own, and says so.
fn alone(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let group = stage.programs.join("group");
    let line = format!("rm $ODFORK_PAGE_GROUP; exec {} fill 8 1", group.display());
    let mut command = Command::new(&stage.launcher);
    command.args(run_any()).args(["--limit", "8M", "--", "sh", "-c", &line]);
    let output = command
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdin(Stdio::null())
        .output()
        .map_err(text)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.stdout == b"ok\n" && said.contains("a limit of its own: the file") {
        true => Ok(()),
        false => Err(format!("{}: {said}", output.status)),
    }
}

/// Two that fit one after the other and not together: one is put out, and has its turn.
fn turns(stage: &Stage) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let folder = tempfile::tempdir().map_err(text)?;
        finish(start(stage, folder.path(), &["group", "together", "2", "20", "400"])?)?;
        if sum(folder.path(), "outs") > 0 {
            return Ok(());
        }
        // On a busy machine one may have ended before the other had its memory.
        if Instant::now() > deadline {
            return Err("none was put out".into());
        }
    }
}

/// Programs that are started one by one and name the same group.
fn named(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let run = |options: &[&str], words: &[&str]| {
        let mut command = Command::new(&stage.launcher);
        command.args(&run_any()[..2]).args(&run_any()[4..]).args(options).arg("--").args(words);
        command.env("XDG_RUNTIME_DIR", folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let any = |limit: &'static str| ["--memory", "any", "--limit", limit, "--group", "a-group"];
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(run(&any("16M"), &["sh", "-c", "read line; echo ok"]).spawn().map_err(text)?);
    }
    let file = folder.path().join("odfork/limit-of-a-group");
    let tasks = || {
        let words = fs::read(&file).unwrap_or_default();
        let slots = words.chunks_exact(GROUP_SLOT).skip(1);
        slots.filter(|slot| slot[..8].iter().any(|&byte| byte != 0)).count()
    };
    let joined = wait_for("all to join", || tasks() == 4);
    let mut refused = Ok(());
    for (options, why) in [
        (&any("8M")[..], "group a-group has a limit of 16384K"),
        (&["--memory", "large", "--limit", "8M", "--group", "a"], "--group goes with --memory any"),
        (&["--memory", "any", "--limit", "8M", "--group", "a/b"], "a name has up to 64"),
    ] {
        let output = run(options, &["true"]).output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(2) || !said.contains(why) {
            refused = Err(format!("{options:?}: {}: {said}", output.status));
        }
    }
    for mut child in waiting {
        go(&mut child).and_then(|()| finish(child))?;
    }
    joined.and(refused)
}

/// The next group removes files of groups that are over, and no others.
fn left(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let own = folder.path().join("odfork");
    fs::create_dir(&own)
        .and_then(|()| fs::set_permissions(&own, Permissions::from_mode(0o700)))
        .map_err(text)?;
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for (name, task) in [("limit-of-old", 0), ("limit-of-a-living", std::process::id())] {
        let mut words = vec![0; GROUP_BYTES];
        words[GROUP_SLOT..][..4].copy_from_slice(&task.to_ne_bytes());
        fs::write(own.join(name), words).map_err(text)?;
        let file = fs::File::options().write(true).open(own.join(name)).map_err(text)?;
        file.set_modified(hour_ago).map_err(text)?;
    }
    finish(start(stage, folder.path(), &["group", "fill", "1", "1"])?)?;
    let exists = |name: &str| own.join(name).exists();
    match (exists("limit-of-old"), exists("limit-of-a-living")) {
        (false, true) => Ok(()),
        found => Err(format!("{found:?} are there")),
    }
}

pub const CASES: [(&str, Case); 7] = [
    ("left", left),
    ("together", together),
    ("idle", idle),
    ("kin", kin),
    ("alone", alone),
    ("turns", turns),
    ("named", named),
];
