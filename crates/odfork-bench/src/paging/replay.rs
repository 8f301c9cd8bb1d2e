//! `odfork replay`: makes the accesses of a trace, one by one, on private memory, and nothing else.
//!
//! Owns the file of accesses and the process. Each word of the file says the page, whether it is
//! written, and what it must hold before. So the process keeps no list of its own, and the file,
//! mapped shared, is nobody's private memory. Every access compares the whole page. It says where
//! its pages are, makes a part of the accesses for each line on standard input, and answers each
//! with a line of JSON. It ends with the last line, or with standard input.

use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use clap::{Arg, ArgMatches, Command};
use serde::{Deserialize, Serialize};

use super::page::{self, PAGE, WORDS};
use crate::mapping::Mapping;

/// Pages that begin at a multiple of this: blocks that are read together begin where those of a
/// simulation do. And so many behind the last one, as a simulated program's memory has no end.
const ALIGNED: u64 = 64;

/// One access, and the version that the page has before: 0 are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    page: u64,
    version: u8,
    write: bool,
}

impl Access {
    fn word(self) -> u64 {
        self.page << 16 | u64::from(self.version) << 8 | u64::from(self.write)
    }

    fn of(word: u64) -> Access {
        Access { page: word >> 16, version: (word >> 8) as u8, write: word & 1 != 0 }
    }
}

fn next(version: u8) -> u8 {
    version % u8::MAX + 1
}

/// Accesses are made in so many parts.
const PARTS: usize = 16;

/// Where it makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Address of the first page.
    pub base: u64,
    /// How many there are.
    pub pages: u64,
    /// Accesses in all.
    pub accesses: u64,
}

/// What came out so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Made until now.
    pub accesses: u64,
    /// Nanoseconds for them.
    pub ns: u64,
    /// A page with wrong content: nothing follows.
    pub wrong: Option<u64>,
}

/// Writes pages and accesses (page, write) into a file that `odfork replay` takes.
///
/// # Errors
/// The file cannot be written.
pub fn write_file(
    path: &Path,
    pages: u32,
    accesses: impl Iterator<Item = (u32, bool)>,
) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&u64::from(pages).to_ne_bytes())?;
    let mut versions = vec![0u8; pages as usize];
    for (page, write) in accesses {
        let version = &mut versions[page as usize];
        let access = Access { page: page.into(), version: *version, write };
        out.write_all(&access.word().to_ne_bytes())?;
        if write {
            *version = next(*version);
        }
    }
    out.flush()
}

pub(crate) fn command() -> Command {
    Command::new("replay")
        .about("Make the accesses of a file that 'odfork page compare --live' wrote")
        .hide(true)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The accesses"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> u8 {
    let file = matches.get_one::<PathBuf>("file").cloned().unwrap_or_default();
    replay(&file).unwrap_or_else(|error| odfork_proc::command::cannot("replay", &error))
}

fn replay(path: &Path) -> Result<u8> {
    // SAFETY: a flag of this process: pages of 2 MB would not be those of the trace.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let (pages, accesses) = open(path)?;
    let memory = Memory::map(pages)?;
    let start = Start { base: memory.base as u64, pages, accesses: accesses.len() as u64 };
    println!("{}", serde_json::to_string(&start)?);
    let (mut answer, mut line) = (Answer::default(), String::new());
    for part in accesses.chunks(accesses.len().div_ceil(PARTS)) {
        line.clear();
        if std::io::stdin().lock().read_line(&mut line)? == 0 || answer.wrong.is_some() {
            break;
        }
        let begin = Instant::now();
        let wrong = part.iter().map(|&word| Access::of(word)).find(|&one| !memory.access(one));
        answer.ns += begin.elapsed().as_nanos() as u64;
        answer.accesses += part.len() as u64;
        answer.wrong = wrong.map(|access| access.page);
        println!("{}", serde_json::to_string(&answer)?);
    }
    std::io::stdin().lock().read_line(&mut line)?;
    // At once, with all memory: the pager's last counts are of the accesses.
    // SAFETY: ends the process; everything is written.
    unsafe { libc::_exit(i32::from(answer.wrong.is_some())) }
}

/// Pages, and accesses that stay mapped to the end of the process.
fn open(path: &Path) -> Result<(u64, &'static [u64])> {
    let file = File::options().read(true).write(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let bytes = file.metadata()?.len();
    ensure!(bytes >= 16 && bytes % 8 == 0, "{}: no file of accesses", path.display());
    let mapping = Box::leak(Box::new(Mapping::of_file(&file, bytes)?));
    let (pages, accesses) = mapping.words().split_first().context("an empty file")?;
    let fits = accesses.iter().all(|&word| Access::of(word).page < *pages);
    ensure!(fits, "{}: damaged, or no file of accesses", path.display());
    Ok((*pages, accesses))
}

struct Memory {
    base: *mut [u64; WORDS],
    _mapping: Mapping,
}

impl Memory {
    fn map(pages: u64) -> Result<Memory> {
        let mapping = Mapping::anonymous((pages + 2 * ALIGNED) * PAGE)?;
        let start = (mapping.base() as u64).next_multiple_of(ALIGNED * PAGE);
        Ok(Memory { base: start as *mut [u64; WORDS], _mapping: mapping })
    }

    /// False: the page does not hold what it should. A write is the first thing that happens to
    /// its page: the word that it puts there is the one that should be there.
    fn access(&self, access: Access) -> bool {
        let Access { page: number, version, write } = access;
        // SAFETY: below the number of pages, in the mapping, which is this thread's alone.
        let page = unsafe { self.base.add(number as usize) };
        if write {
            let first = if version == 0 { 0 } else { page::first(number, version) };
            // SAFETY: as above; volatile, so that it comes first.
            unsafe { page.cast::<u64>().write_volatile(first) };
        }
        // SAFETY: as above; the reference ends before the next write.
        let content = unsafe { &*page };
        let holds = match version {
            0 => content.iter().fold(0, |all, word| all | word) == 0,
            _ => page::holds(content, number, version),
        };
        if write {
            // SAFETY: as above.
            page::write(unsafe { &mut *page }, number, next(version));
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(accesses: &[(u32, bool)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_file(file.path(), 5, accesses.iter().copied()).unwrap();
        file
    }

    #[test]
    fn every_access_finds_what_the_ones_before_left() {
        let file = file(&[(4, true), (0, false), (4, false), (4, true), (2, true), (4, false)]);
        let (pages, accesses) = open(file.path()).unwrap();
        let memory = Memory::map(pages).unwrap();
        assert!(accesses.iter().all(|&word| memory.access(Access::of(word))));
        assert_eq!(memory.base as u64 % (ALIGNED * PAGE), 0);
        // What is not there any more is noticed.
        assert!(!memory.access(Access { page: 4, version: 1, write: false }));
        assert!(!memory.access(Access { page: 4, version: 0, write: false }));
        assert!(!memory.access(Access { page: 3, version: 7, write: true }));
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let file = file(&[(4, true)]);
        let beyond = [5u64, 9 << 16].map(u64::to_ne_bytes).concat();
        std::fs::write(file.path(), beyond).unwrap();
        assert!(open(file.path()).is_err());
        std::fs::write(file.path(), [0; 7]).unwrap();
        assert!(open(file.path()).is_err());
    }

    #[test]
    fn versions_are_never_zero_again() {
        let last = (0..600).fold(0, |version, _| next(version));
        assert!(last > 0 && (0..=u8::MAX).all(|version| next(version) > 0));
    }
}
