//! `page run --memory any`: one of its tasks is killed, or both.

use std::os::unix::process::ExitStatusExt;
use std::thread::sleep;
use std::time::Duration;

use super::any::{command, tasks_of, Case};
use super::others::text;
use super::world::*;

/// Tasks of a program are killed after so many milliseconds: the program is killed with them, and
/// neither it nor a child reads a wrong byte, and nothing hangs.
fn kill(stage: &Stage, words: &[&str], which: Which, wait: u64) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let mut child = command(stage, folder.path(), "8M", words).spawn().map_err(text)?;
    let mut tasks = None;
    wait_for("the tasks", || {
        tasks = tasks_of(child.id());
        tasks.is_some()
    })?;
    sleep(Duration::from_millis(wait));
    let [serving, holding] = tasks.unwrap_or_default();
    let doomed = match which {
        Which::Serving => &[serving][..],
        Which::Holding => &[holding],
        Which::Both => &[serving, holding],
    };
    for &task in doomed {
        // SAFETY: signals to processes of ours; they stay zombies at most while their parent lives.
        unsafe { libc::kill(task, libc::SIGKILL) };
    }
    wait_for("its end", || !matches!(child.try_wait(), Ok(None)))
        .inspect_err(|_| drop(child.kill()))?;
    // Waits for its children, too: they have its standard error.
    let output = child.wait_with_output().map_err(text)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.signal() == Some(libc::SIGKILL) && !said.contains("WRONG") {
        true => Ok(()),
        false => Err(format!("killed after {wait} ms: {}: {said}", output.status)),
    }
}

#[derive(Clone, Copy)]
enum Which {
    Serving,
    Holding,
    Both,
}

fn killed(stage: &Stage) -> Outcome {
    for wait in [1, 5, 20, 60, 130, 200, 310, 400] {
        kill(stage, &["content", "16", "2", "600", "7", "40"], Which::Serving, wait)?;
        kill(stage, &["content", "16", "2", "600", "7", "40"], Which::Holding, wait)?;
    }
    Ok(())
}

/// Children of a raw fork, which nobody kills: what they miss is SIGBUS.
fn killed_raw(stage: &Stage) -> Outcome {
    (0..40)
        .try_for_each(|round| kill(stage, &["any", "raw", "600"], Which::Serving, 150 + 7 * round))
}

/// Both tasks at once, as the kernel's out-of-memory killer does: children that were made through
/// the C library wait until they have everything, and end if they do not get it.
fn killed_both(stage: &Stage) -> Outcome {
    (0..80).try_for_each(|round| {
        let way = if round % 2 == 0 { "forked" } else { "unhandled" };
        kill(stage, &["any", way, "600"], Which::Both, 150 + 7 * (round / 2))
    })
}

pub const CASES: [(&str, Case); 3] =
    [("serving_or_holding", killed), ("raw", killed_raw), ("both", killed_both)];
