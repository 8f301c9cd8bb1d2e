//! What saved inputs do when each runs in a process of its own: which edges the fuzzer saw that
//! none reaches, and whether each reaches the same with odfork as without.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::fuzzer::{Run, HANG};
use crate::foreign::last_words;

/// Runs inputs one after the other, each in its own process.
pub struct Replay<'a> {
    pub tool: &'a Path,
    /// New files go there.
    pub folder: &'a Path,
}

impl Replay<'_> {
    /// How many edges a fuzzer has found that no input of its queue reaches.
    pub fn lost(&self, run: &Run, results: &Path) -> Result<usize, String> {
        let out = self.folder.join("edges");
        let _ = fs::remove_file(&out);
        let queue = results.join("queue");
        self.run(run, vec!["-C".into(), "-i".into(), queue.into(), "-o".into(), (&out).into()])?;
        let text = fs::read_to_string(&out).map_err(|_| self.silent())?;
        let map = fs::read(results.join("fuzz_bitmap"))
            .map_err(|error| format!("fuzz_bitmap: {error}"))?;
        Ok(missing(&map, &text))
    }

    /// The first input whose edges or their counts differ, and how many were compared.
    pub fn compare(&self, both: [&Run; 2], queue: &Path, most: usize) -> Result<usize, String> {
        let inputs = self.folder.join("inputs");
        let names = choose(queue, &inputs, most)?;
        let mut maps = Vec::new();
        for (number, run) in both.into_iter().enumerate() {
            let out = self.folder.join(format!("maps{number}"));
            let _ = fs::remove_dir_all(&out);
            let words = ["-i".into(), (&inputs).into(), "-o".into(), (&out).into()];
            self.run(run, words.into())?;
            maps.push(out);
        }
        for name in &names {
            let map = |folder: &PathBuf| fs::read(folder.join(name)).map_err(|_| self.silent());
            let (one, other) = (map(&maps[0])?, map(&maps[1])?);
            if one != other || one.is_empty() {
                let input = fs::read(inputs.join(name)).unwrap_or_default();
                let input = String::from_utf8_lossy(&input).into_owned();
                return Err(format!("the edges of {input:?} are not those of stock"));
            }
        }
        Ok(names.len())
    }

    fn run(&self, run: &Run, mut words: Vec<OsString>) -> Result<(), String> {
        words.extend(["-q".into(), "-t".into(), HANG.into()]);
        let mut command = run.command(self.tool, words);
        let log = File::create(self.log()).and_then(|file| Ok((file.try_clone()?, file)));
        let (copy, log) = log.map_err(|error| format!("{}: {error}", self.log().display()))?;
        command.stdin(Stdio::null()).stdout(log).stderr(copy);
        let status = command.status().map_err(|error| format!("afl-showmap: {error}"))?;
        // It tells of crashes and hangs among the inputs by 1 and 2.
        match status.code() {
            Some(0..=2) => Ok(()),
            _ => Err(format!("afl-showmap: {status}")),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Before version 4.05 it waits 10 seconds for a target to build its state, whatever was asked.
    fn silent(&self) -> String {
        format!("afl-showmap wrote no map; it said: {}", last_words(&self.log()))
    }
}

/// Edges of a fuzzer's map that are not in a list of lines "edge:count". What was never reached is
/// 255 in the map; edge 0 is AFL's own.
fn missing(map: &[u8], list: &str) -> usize {
    let edge = |line: &str| line.split(':').next()?.parse::<usize>().ok();
    let reached: BTreeSet<usize> = list.lines().filter_map(edge).collect();
    let found = map.iter().enumerate().skip(1).filter(|(_, &seen)| seen != 255);
    found.filter(|(edge, _)| !reached.contains(edge)).count()
}

/// Copies at most so many inputs of a queue, evenly spread; their names.
fn choose(queue: &Path, folder: &Path, most: usize) -> Result<Vec<OsString>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", queue.display());
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(said)?;
    let entries = fs::read_dir(queue).map_err(said)?.flatten();
    let files = entries.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name());
    let mut names: Vec<OsString> = files.collect();
    names.sort();
    let step = names.len().div_ceil(most.max(1)).max(1);
    let chosen: Vec<OsString> = names.into_iter().step_by(step).collect();
    for name in &chosen {
        fs::copy(queue.join(name), folder.join(name)).map_err(said)?;
    }
    match chosen.is_empty() {
        true => Err(format!("{} is empty", queue.display())),
        false => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_lost_when_it_was_found_and_is_not_reached() {
        assert_eq!(missing(&[0, 254, 255, 0, 7], "000001:1\n000009:3\n"), 2);
        assert_eq!(missing(&[0, 255], ""), 0);
    }

    #[test]
    fn inputs_are_spread_over_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let (queue, chosen) = (folder.path().join("queue"), folder.path().join("chosen"));
        fs::create_dir_all(queue.join(".state")).unwrap();
        assert!(choose(&queue, &chosen, 3).is_err());
        for number in 0..10 {
            fs::write(queue.join(format!("id:{number}")), "x").unwrap();
        }
        let names = choose(&queue, &chosen, 3).unwrap();
        assert_eq!(names, ["id:0", "id:4", "id:8"]);
        assert_eq!(choose(&queue, &chosen, 100).unwrap().len(), 10);
        assert_eq!(fs::read_dir(&chosen).unwrap().count(), 10);
    }
}
