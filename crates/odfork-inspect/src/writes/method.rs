//! The ways to learn what changed, which of them this machine has, and the choice.
//!
//! Owns the order of `--method auto` and the one line that says why a method is not taken. Bytes
//! are counted by "compare" only, so it is what `auto` takes when bytes are wanted.

use anyhow::{bail, Result};

use super::change::Change;
use super::inject;
use super::marks::{probe_soft_dirty, Marks};
use super::scan::Scan;
use super::snapshot::Snapshot;
use odfork_proc::tracee::Tracee;

/// A way to learn what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Scan,
    SoftDirty,
    Compare,
}

impl Method {
    pub const ALL: [Method; 3] = [Method::Scan, Method::SoftDirty, Method::Compare];

    pub fn word(self) -> &'static str {
        match self {
            Method::Scan => "scan",
            Method::SoftDirty => "soft-dirty",
            Method::Compare => "compare",
        }
    }

    pub fn counts_bytes(self) -> bool {
        self == Method::Compare
    }

    /// Ok, or why this machine does not have it: found by doing.
    pub fn probe(self) -> Result<(), String> {
        match self {
            Method::Scan => inject::probe(),
            Method::SoftDirty => probe_soft_dirty(),
            Method::Compare => Ok(()),
        }
    }

    /// The method for a word of `--method`, and what is to be said about those passed over.
    pub fn choose(word: &str, bytes: bool) -> Result<(Method, Vec<String>)> {
        let word = if word == "uffd" { "scan" } else { word };
        if word == "auto" {
            return Ok(Method::automatic(bytes));
        }
        let method = Method::ALL.into_iter().find(|m| m.word() == word).unwrap_or(Method::Compare);
        if let Err(why) = method.probe() {
            bail!("method {word} cannot be had: {why}; use --method compare");
        }
        if bytes && !method.counts_bytes() {
            bail!("method {word} counts pages only; bytes need --method compare");
        }
        Ok((method, Vec::new()))
    }

    fn automatic(bytes: bool) -> (Method, Vec<String>) {
        let mut passed = Vec::new();
        for method in Method::ALL.into_iter().filter(|method| !bytes || method.counts_bytes()) {
            match method.probe() {
                Ok(()) => return (method, passed),
                Err(why) => passed.push(format!("method {} not taken: {why}", method.word())),
            }
        }
        (Method::Compare, passed)
    }
}

/// A method at work on one process.
#[derive(Debug)]
pub enum Detector {
    Marks(Marks),
    Compare(Snapshot),
}

impl Detector {
    /// `limit`: bytes a snapshot may take.
    pub fn new(method: Method, limit: u64) -> Detector {
        match method {
            Method::Scan => Detector::Marks(Marks::scan()),
            Method::SoftDirty => Detector::Marks(Marks::soft_dirty()),
            Method::Compare => Detector::Compare(Snapshot::new(limit)),
        }
    }

    /// What changed since the last call; the first one only begins. The process must be stopped.
    pub fn update(&mut self, tracee: &mut Tracee) -> Result<Change> {
        match self {
            Detector::Marks(marks) => marks.update(tracee),
            Detector::Compare(snapshot) => snapshot.update(&Scan::at(tracee.pid)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_comparing_only() {
        assert_eq!(Method::choose("auto", true).unwrap().0, Method::Compare);
        assert_eq!(Method::choose("compare", false).unwrap().0, Method::Compare);
        let error = Method::choose("scan", true).unwrap_err().to_string();
        assert!(error.contains("--method compare"), "{error}");
    }

    #[test]
    fn what_is_passed_over_is_said() {
        let (method, passed) = Method::choose("auto", false).unwrap();
        let before = Method::ALL.iter().position(|m| *m == method).unwrap();
        assert_eq!(passed.len(), before);
    }
}
