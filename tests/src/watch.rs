//! A limit for a trial that has none of its own.
//!
//! Owns: after it, saying what every process below this one waits for, and ending them, so that
//! the trial ends and the harness goes on. A hang must leave its reason in the log, not a build
//! server's "timed out".

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread::spawn;
use std::time::Duration;

/// Runs the trial; all processes below this one are ended when it takes longer.
pub fn limited<T>(name: &str, limit: Duration, run: impl FnOnce() -> T) -> T {
    let (done, waits) = channel::<()>();
    let name = name.to_owned();
    let watcher = spawn(move || {
        while waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let all = below(std::process::id());
            eprintln!("{name}: no end after {} s; all are ended:", limit.as_secs());
            tell();
            for pid in all {
                // SAFETY: a process that this one started, or one of theirs.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
        }
    });
    let result = run();
    drop(done);
    let _ = watcher.join();
    result
}

/// What every process below this one waits for, on standard error.
pub fn tell() {
    below(std::process::id()).into_iter().for_each(|pid| eprint!("{}", told(pid)));
}

/// The processes below one.
pub fn below(top: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // Behind the name, which may hold anything: state, parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    let (mut found, mut next) = (Vec::new(), vec![top]);
    while let Some(pid) = next.pop() {
        let own = children.remove(&pid).unwrap_or_default();
        next.extend(&own);
        found.extend(own);
    }
    found
}

/// Its name, and for each thread the state, the call and where in the kernel it waits.
fn told(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    let mut text = format!("  {pid} {}\n", words.chars().take(160).collect::<String>());
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
        let stack: Vec<_> = read("stack").lines().take(6).map(bare).collect();
        let call = read("syscall");
        let tid = entry.file_name();
        let tid = tid.to_string_lossy();
        let _ = writeln!(text, "    {tid} {state} call {} in {}", call.trim(), stack.join(" < "));
    }
    text
}

/// `futex_wait` of `[<0>] futex_wait+0x1/0x2`.
fn bare(line: &str) -> String {
    let name = line.rsplit(' ').next().unwrap_or(line);
    name.split('+').next().unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn what_hangs_is_told_and_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let (pid, begun) = (child.id(), Instant::now());
        let (words, mut text) = (format!("  {pid} sleep 1000 \n"), String::new());
        // Its words and its state are read one after the other, and it may still be starting.
        let complete = |text: &str| text.starts_with(&words) && text.contains(" S call ");
        while !complete(&text) && begun.elapsed() < Duration::from_secs(60) {
            text = told(pid);
        }
        assert!(complete(&text), "{text}");
        let status = limited("a sleep", Duration::from_millis(300), || {
            Command::new("sh").args(["-c", "sleep 1000; exit 3"]).status().unwrap()
        });
        assert_eq!(status.signal(), Some(9));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(limited("nothing", Duration::from_secs(100), || 5), 5);
    }
}
