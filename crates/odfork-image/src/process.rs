//! The memory of a process as a source: this one, or another that stands still.
//!
//! Owns reading through the kernel, so that memory that goes away is an error and no crash. It does
//! not stop anybody: who saves another process holds it (ptrace), who saves its own memory sees to
//! it that nobody writes meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;

use odfork_proc::smaps::Usage;
use odfork_sys::abi::pagemap::{ENTRY_BYTES, ENTRY_GUARD, ENTRY_PRESENT, ENTRY_SWAPPED};

use crate::error::{Error, Result};
use crate::format::Region;
use crate::selection::{self, RegionWish};
use crate::source::{Known, Source};
use crate::PAGE;

/// Entries of the page table read at once.
const ENTRIES: usize = 4096;
/// A page has content of its own.
const POPULATED: u64 = ENTRY_PRESENT | ENTRY_SWAPPED;

/// A process whose memory can be saved, with its map as it was when this was made.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    name: String,
    maps: Vec<Usage>,
    pagemap: Option<File>,
    /// Reads what is protected against reading; opened when it is needed.
    memory: Option<File>,
    /// Page-table entries from page number `.0` on.
    entries: (u64, Vec<u64>),
}

impl Process {
    /// The calling process.
    ///
    /// # Errors
    /// No /proc.
    pub fn this() -> Result<Process> {
        Process::new(std::process::id() as i32, "self".to_owned())
    }

    /// Another process, which must stand still until the save is done.
    ///
    /// # Errors
    /// It is not there, or may not be looked at.
    pub fn other(pid: i32) -> Result<Process> {
        Process::new(pid, pid.to_string())
    }

    fn new(pid: i32, name: String) -> Result<Process> {
        let maps = selection::read(&name)?;
        // Without it every page is read, also those that were never touched.
        let pagemap = File::open(format!("/proc/{name}/pagemap")).ok();
        Ok(Process { pid, name, maps, pagemap, memory: None, entries: (0, Vec::new()) })
    }

    /// What the wishes mean here.
    ///
    /// # Errors
    /// A wish that means nothing.
    pub fn regions(&self, wishes: &[RegionWish]) -> Result<Vec<Region>> {
        selection::choose(&self.name, &self.maps, wishes)
    }

    fn is_other(&self) -> bool {
        self.name != "self"
    }

    fn mapping(&self, address: u64) -> Option<&Usage> {
        let after = self.maps.partition_point(|usage| usage.mapping.start <= address);
        self.maps.get(after.checked_sub(1)?).filter(|usage| address < usage.mapping.end)
    }

    /// The page-table entry; `None` when it cannot be read.
    fn entry(&mut self, page: u64) -> Option<u64> {
        let file = self.pagemap.as_ref()?;
        let (first, entries) = &mut self.entries;
        if !(*first..*first + entries.len() as u64).contains(&page) {
            let mut bytes = vec![0; ENTRIES * ENTRY_BYTES];
            let count = file.read_at(&mut bytes, page * ENTRY_BYTES as u64).ok()?;
            let words = bytes[..count].chunks_exact(ENTRY_BYTES);
            *entries =
                words.map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default())).collect();
            *first = page;
        }
        entries.get((page - *first) as usize).copied()
    }

    fn read_memory(&mut self, address: u64, out: &mut [u8]) -> std::io::Result<()> {
        if self.memory.is_none() {
            self.memory = Some(File::open(format!("/proc/{}/mem", self.name))?);
        }
        self.memory.as_ref().map_or(Ok(()), |file| file.read_exact_at(out, address))
    }
}

/// Never touched, or a guard page, which has no content.
fn is_empty(entry: u64) -> bool {
    entry & POPULATED == 0 || entry & ENTRY_GUARD != 0
}

/// Nobody but this process has content for it: what is not there is zeros.
fn is_anonymous(usage: &Usage) -> bool {
    !usage.mapping.is_of_file() && !usage.mapping.shared && !usage.is_watched()
}

impl Source for Process {
    fn known(&mut self, address: u64, out: &mut [Known]) -> Result<()> {
        for (at, known) in out.iter_mut().enumerate() {
            let address = address + (at * PAGE) as u64;
            let mapping = self.mapping(address);
            if self.is_other() && mapping.is_some_and(Usage::is_watched) {
                return Err(Error::Refused(format!(
                    "the memory at {address:#x} of process {} is paged by a userfaultfd, which \
                     answers nobody while the process stands still: save it from within \
                     (odfork_image_save)",
                    self.pid
                )));
            }
            let anonymous = mapping.is_some_and(is_anonymous);
            let empty = anonymous && self.entry(address / PAGE as u64).is_some_and(is_empty);
            *known = if empty { Known::Zero } else { Known::Nothing };
        }
        Ok(())
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match odfork_proc::memory::read(self.pid, address + done as u64, &mut out[done..]) {
                Ok(count) if count > 0 => done += count,
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                    return Err(Error::Refused(format!("process {} has ended", self.pid)));
                }
                _ => {
                    let to_page_end = PAGE - done % PAGE;
                    let (at, buffer) = (address + done as u64, &mut out[done..done + to_page_end]);
                    if let Err(error) = self.read_memory(at, buffer) {
                        let is_guard = |entry| entry & ENTRY_GUARD != 0;
                        if !self.entry(at / PAGE as u64).is_some_and(is_guard) {
                            let pid = self.pid;
                            let what =
                                format!("cannot read the memory at {at:#x} of process {pid}");
                            return Err(Error::io(what, error));
                        }
                        // It has no content.
                        buffer.fill(0);
                    }
                    done += to_page_end;
                }
            }
        }
        Ok(())
    }
}
