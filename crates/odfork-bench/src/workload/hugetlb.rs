//! Memory from the kernel's pool of huge pages: getting it, and saying what the pool lacks.
//!
//! The pool has a fixed size that only root can change. A child that writes takes pages from it
//! too, and the kernel kills whoever finds it empty; so an operation is refused beforehand when its
//! copies would not fit.

use anyhow::{anyhow, Result};

use super::protocol::Command;
use super::PAGE;
use crate::mapping::obtain;

const HUGE_PAGE: usize = 2 << 20;
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// New private memory of at least `length` bytes, every page of it reserved in the pool.
pub fn map(length: usize) -> Result<*mut u8> {
    let pages = length.div_ceil(HUGE_PAGE);
    if pages == 0 {
        return Ok(std::ptr::null_mut());
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    obtain(pages * HUGE_PAGE, flags, -1).map_err(|error| match Pool::read().lack(pages) {
        Some(lack) => anyhow!("{lack}"),
        None => anyhow!("cannot map {pages} huge pages: {error}"),
    })
}

/// What is missing for a command of a subject that holds `pages` small pages in huge ones.
pub fn lack(command: Command, pages: usize) -> Option<String> {
    match copied(command, pages) {
        0 => None,
        needed => Pool::read().lack(needed),
    }
}

/// Huge pages that exist twice at the most while a command runs.
fn copied(command: Command, pages: usize) -> usize {
    let huge = |pages: usize| (pages * PAGE).div_ceil(HUGE_PAGE);
    let portion = |permille: u32| huge((pages * permille as usize).div_ceil(1000));
    match command {
        Command::Fault => huge(pages.min(1)),
        Command::Grid { permille, .. } => portion(permille),
        Command::Touch { read_permille: 1000, .. } => 0,
        Command::Touch { share_permille, .. } => portion(share_permille),
        Command::Sparse | Command::Full | Command::Verify | Command::Service => huge(pages),
        _ => 0,
    }
}

/// The pool as it is.
pub struct Pool {
    pub all: usize,
    /// Not in use and not promised to anybody.
    pub free: usize,
}

impl Pool {
    pub fn read() -> Pool {
        let number = |name: &str| {
            let text = std::fs::read_to_string(format!("{POOL}/{name}")).unwrap_or_default();
            text.trim().parse().unwrap_or(0usize)
        };
        let free = number("free_hugepages").saturating_sub(number("resv_hugepages"));
        Pool { all: number("nr_hugepages"), free }
    }

    fn lack(&self, needed: usize) -> Option<String> {
        let missing = needed.checked_sub(self.free).filter(|&missing| missing > 0)?;
        let enough = self.all + missing;
        Some(format!(
            "{needed} free huge pages of 2 MB are needed, {} are there; as root: \
             echo {enough} > /proc/sys/vm/nr_hugepages",
            self.free
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::memory::{Layout, Memory};

    #[test]
    fn a_small_pool_is_told_with_its_remedy() {
        let pool = Pool { all: 100, free: 30 };
        assert_eq!(pool.lack(30), None);
        let lack = pool.lack(64).unwrap();
        assert!(lack.starts_with("64 free") && lack.contains("echo 134 >"), "{lack}");
    }

    #[test]
    fn copies_follow_what_is_written() {
        let pages = 1024;
        assert_eq!(copied(Command::Fork { calls: 9 }, pages), 0);
        assert_eq!(copied(Command::Fault, pages), 1);
        assert_eq!(copied(Command::Fault, 0), 0);
        assert_eq!(copied(Command::Full, pages), 2);
        assert_eq!(copied(Command::Grid { forks: 5, permille: 500 }, pages), 1);
        let touch = |read_permille| Command::Touch { read_permille, share_permille: 1000 };
        assert_eq!([0, 500, 1000].map(|read| copied(touch(read), pages)), [2, 2, 0]);
    }

    #[test]
    fn the_pool_gives_memory_or_the_reason() {
        let size = 4 << 20;
        match Memory::hold(size, Layout::Hugetlb) {
            Ok(memory) => assert_eq!(memory.first_wrong_page_fully(), None),
            Err(error) => {
                println!("no huge pages here: {error}");
                assert!(error.to_string().contains("nr_hugepages"), "{error}");
            }
        }
        // More than any machine has.
        let error = map(1 << 46).unwrap_err().to_string();
        assert!(error.contains("33554432 free huge pages"), "{error}");
    }
}
