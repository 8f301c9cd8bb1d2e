//! A process scanned while it is stopped: its private mappings, their pages with content, its
//! memory.
//!
//! Owns the rule which pages count: every page with content of a writable private mapping, and of
//! the others those the process has written before (relocated data, memory a collector protects).
//! Must be dropped before the process runs on or execs; reading does not populate pages, for only
//! pages with content are read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use odfork_proc::maps::{self, Mapping};
use odfork_proc::pagemap::{Pagemap, Run, FILE};

/// One mapping and its runs of pages.
#[derive(Debug)]
pub struct Area {
    pub mapping: Mapping,
    pub runs: Vec<Run>,
}

impl Area {
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(Run::pages).sum()
    }
}

/// A process that stands still.
#[derive(Debug)]
pub struct Scan {
    pub pid: i32,
    memory: File,
    pub areas: Vec<Area>,
}

impl Scan {
    pub fn at(pid: i32) -> Result<Scan> {
        Scan::with(pid, |pagemap, mapping| pagemap.runs(mapping.start, mapping.end))
    }

    /// The same by another way of reading the page tables.
    pub fn with(
        pid: i32,
        mut read: impl FnMut(&mut Pagemap, &Mapping) -> Result<Vec<Run>>,
    ) -> Result<Scan> {
        let path = format!("/proc/{pid}/mem");
        let memory = File::open(&path).with_context(|| format!("cannot read {path}"))?;
        let mut pagemap = Pagemap::open(pid)?;
        let mut areas = Vec::new();
        let maps = maps::private_of_process(pid);
        for mapping in maps.with_context(|| format!("cannot read /proc/{pid}/maps"))? {
            let mut runs = read(&mut pagemap, &mapping)?;
            if !mapping.is_writable() {
                runs.retain(|run| !run.has(FILE));
            }
            if !runs.is_empty() {
                areas.push(Area { mapping, runs });
            }
        }
        Ok(Scan { pid, memory, areas })
    }

    /// Fills the buffer from `address`; false when the kernel does not give these pages.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.memory.read_exact_at(buffer, address).is_ok()
    }
}
