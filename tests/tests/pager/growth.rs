//! `page run --memory any`: a program that grows waits, although the task that serves it does not
//! run.

use std::fs;

use super::any::{command, tasks_of, Case};
use super::others::text;
use super::world::*;

/// Whichever way a program gets memory, it waits before it is above its limit, although the task
/// that serves it does not run. Of each heap of malloc (the first one, and one for each thread), 32
/// pages may not be known yet.
fn waits(stage: &Stage) -> Outcome {
    const LIMIT: u64 = 16;
    for (how, heaps) in [
        ("small", 1),
        ("large", 1),
        ("threads", 5),
        ("mapped", 0),
        ("broken", 0),
        ("protected", 0),
        ("moved", 0),
        ("once", 0),
        ("read", 8),
    ] {
        let folder = tempfile::tempdir().map_err(text)?;
        let words = ["any", "rush", how];
        let mut child =
            command(stage, folder.path(), &format!("{LIMIT}M"), &words).spawn().map_err(text)?;
        read_line(&mut child)?;
        let pid = child.id();
        let mut tasks = None;
        wait_for("the tasks", || {
            tasks = tasks_of(pid);
            tasks.is_some()
        })?;
        let [serving, _] = tasks.unwrap_or_default();
        // SAFETY: signals to a task of ours.
        let signal = |signal| unsafe { libc::kill(serving, signal) };
        signal(libc::SIGSTOP);
        let told = go(&mut child);
        let waited =
            wait_for("memory to be waited for", || has_ended(pid) || waits_for_memory(pid));
        let (ended, peak) = (has_ended(pid), most_private_pages(pid));
        signal(libc::SIGCONT);
        told.and(finish(child)).and(waited).map_err(|why| format!("{how}: {why}"))?;
        if ended || peak > LIMIT * 256 + heaps * 32 {
            return Err(format!("{how}: {peak} pages; it did not wait: {ended}"));
        }
    }
    Ok(())
}

pub fn has_ended(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

/// All threads sleep, and at least one of them for the pager.
fn waits_for_memory(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let places: Vec<_> =
        threads.flat_map(|thread| fs::read_to_string(thread.path().join("wchan"))).collect();
    let is_fault = |place: &String| place == "handle_userfault";
    places.iter().any(is_fault)
        && places.iter().all(|place| is_fault(place) || place.contains("futex"))
}

/// The most that was in memory, without files.
pub fn most_private_pages(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
    };
    field("VmHWM:").saturating_sub(field("RssFile:")) / 4
}

pub const CASES: [(&str, Case); 1] = [("waits", waits)];
