//! The page of statistics in a living process: found, copied, and the one word in it that may be
//! written.
//!
//! Owns the search: the page begins with a mark, at the beginning of a page of the library's own
//! data, which follows its code in memory. Programs that have the library linked in are searched in
//! the same way.

use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;

use anyhow::{anyhow, bail, Context, Result};
use odfork_proc::maps::{self, Mapping};
use odfork_proc::process::{self, Pid};
use odfork_proc::{memory, status};
use odfork_stats::{Foreign, Stats, MAGIC, STAY_PLAIN};

const PAGE: u64 = 4096;

/// The statistics of a process at one moment.
pub struct Found {
    pub pid: Pid,
    pub program: String,
    pub stats: Box<Stats>,
    /// They are its parent's: it has not called the library since it was made.
    pub inherited: bool,
    address: u64,
}

/// Looks into one process.
pub fn find(pid: Pid) -> Result<Found> {
    let mappings = maps::of_process(pid)
        .with_context(|| format!("process {pid} cannot be read: is it gone, or another user's?"))?;
    for range in ranges(&mappings, pid) {
        if let Some(address) = search(pid, range)? {
            let stats = copy(pid, address)?;
            let inherited = number_inside(pid) != Some(stats.pid.load(RELAXED));
            let program = process::short_name(pid);
            return Ok(Found { pid, program, stats, inherited, address });
        }
    }
    bail!("process {pid} does not have odfork: start its program with 'odfork run'")
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Asks the process to unfreeze its memory and to stay plain.
pub fn ask_for_plain(found: &Found) -> Result<()> {
    // The descriptor belongs to the memory and not to the number: a process that executes another
    // program meanwhile, or a new one of that number, is not written to.
    let pid = found.pid;
    let path = format!("/proc/{pid}/mem");
    let denied = || format!("process {pid} cannot be written to");
    let memory = File::options().read(true).write(true).open(path).with_context(denied)?;
    let mut mark = MAGIC.to_le_bytes();
    memory.read_exact_at(&mut mark, found.address).with_context(denied)?;
    if mark != MAGIC.to_le_bytes() {
        bail!("process {pid} has ended or executed another program");
    }
    let at = found.address + offset_of!(Stats, wish) as u64;
    memory.write_all_at(&STAY_PLAIN.to_ne_bytes(), at).with_context(denied)
}

/// Writable data of the library, or else of the program.
fn ranges(mappings: &[Mapping], pid: Pid) -> Vec<(u64, u64)> {
    let library = |m: &Mapping| {
        let file = m.name.rsplit('/').next().unwrap_or_default();
        file.starts_with("libodfork.so") && m.is_of_file()
    };
    let data = data_of(mappings, &library);
    if !data.is_empty() {
        return data;
    }
    let program = process::program(pid).unwrap_or_default();
    data_of(mappings, &|m: &Mapping| m.is_of_file() && m.name == program)
}

/// Writable mappings of an object, and what follows it without a gap.
fn data_of(mappings: &[Mapping], of: &dyn Fn(&Mapping) -> bool) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut end = 0;
    for mapping in mappings {
        if of(mapping) || (mapping.start == end && !mapping.is_of_file()) {
            end = mapping.end;
            if mapping.is_writable() && !mapping.shared {
                found.push((mapping.start, mapping.end));
            }
        }
    }
    found
}

/// The page that begins with the mark.
fn search(pid: Pid, (start, end): (u64, u64)) -> Result<Option<u64>> {
    // What follows the library may be a heap: only its beginning can be the library's.
    let end = end.min(start + (16 << 20));
    let mut bytes = vec![0u8; (end - start) as usize];
    let got = memory::read(pid, start, &mut bytes).map_err(|error| unreadable(pid, &error))?;
    let pages = bytes[..got].chunks(PAGE as usize);
    let at = pages.into_iter().position(|page| page.starts_with(&MAGIC.to_le_bytes()));
    Ok(at.map(|index| start + index as u64 * PAGE))
}

fn unreadable(pid: Pid, error: &std::io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => anyhow!("process {pid} may be read by its own user and by root only"),
        Some(libc::ESRCH) => anyhow!("process {pid} has ended"),
        _ => anyhow!("process {pid} cannot be read: {error}"),
    }
}

fn copy(pid: Pid, address: u64) -> Result<Box<Stats>> {
    let mut stats = Box::new(Stats::new());
    // SAFETY: the page is numbers only, of which any bytes are valid; it is ours alone here.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut((&raw mut *stats).cast::<u8>(), size_of::<Stats>())
    };
    memory::read(pid, address, bytes).map_err(|error| unreadable(pid, &error))?;
    match stats.check() {
        Ok(()) => Ok(stats),
        Err(Foreign::Version(version)) => bail!(
            "process {pid} has odfork with statistics of version {version}: use the 'odfork' that \
             started it"
        ),
        Err(Foreign::Nothing) => bail!("process {pid} has ended or executed another program"),
    }
}

/// The number of a process in its own pid namespace.
fn number_inside(pid: Pid) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status::value_of(&text, "NSpid")?.split_whitespace().last()?.parse().ok()
}
