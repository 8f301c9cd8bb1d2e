//! What fits into memory: cases that do not are left out with a note.

use anyhow::{bail, Result};

pub struct Room {
    available: u64,
    notes: Vec<String>,
}

impl Room {
    pub fn new(available: u64) -> Room {
        Room { available, notes: Vec::new() }
    }

    /// Whether so many bytes are there.
    pub fn has(&mut self, needed: u64, what: &str) -> bool {
        let fits = needed <= self.available;
        if !fits {
            self.notes.push(format!("{what} left out: {}", words(needed, self.available)));
        }
        fits
    }

    /// What is left, and why the rest is not.
    pub fn rest<C>(self, cases: Vec<C>) -> Result<(Vec<C>, Vec<String>)> {
        match cases.is_empty() {
            true => bail!("nothing is left to measure: {}", self.notes.join("; ")),
            false => Ok((cases, self.notes)),
        }
    }
}

pub fn words(needed: u64, available: u64) -> String {
    format!("{} MB are needed and {} MB are available", needed >> 20, available >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said_and_nothing_is_an_error() {
        let mut room = Room::new(3 << 20);
        assert!(room.has(3 << 20, "three") && !room.has(4 << 20, "four"));
        let (cases, notes) = room.rest(vec!["three"]).unwrap();
        assert_eq!(cases, ["three"]);
        assert_eq!(notes, ["four left out: 4 MB are needed and 3 MB are available"]);
        let mut room = Room::new(0);
        assert!(!room.has(1 << 20, "one"));
        let why = room.rest(Vec::<()>::new()).unwrap_err().to_string();
        assert!(why.contains("one left out"), "{why}");
    }
}
