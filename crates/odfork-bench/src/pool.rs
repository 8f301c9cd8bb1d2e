//! The kernel's pool of 2 MB pages, enlarged for an experiment and put back afterwards.
//!
//! Owns /proc/sys/vm/nr_hugepages while it lives. Needs root; anybody else uses what is there.

use std::fs;

use odfork_samples::environment::memory_available;

use crate::configuration::Subject;
use crate::workload::hugetlb;
use crate::workload::memory::Layout;

const POOL: &str = "/proc/sys/vm/nr_hugepages";
const HUGE: u64 = 2 << 20;

/// An enlarged pool; the old size comes back when it is dropped.
#[derive(Debug)]
pub struct Pool {
    before: u64,
}

impl Pool {
    /// What subjects in the pool need, and a few pages for what a child of each writes.
    pub fn for_subjects(subjects: &[Subject]) -> Result<Option<Pool>, String> {
        let pooled = subjects.iter().filter(|subject| subject.layout == Layout::Hugetlb);
        let pages: u64 = pooled.map(|subject| subject.size.div_ceil(HUGE) + 8).sum();
        if pages == 0 {
            return Ok(None);
        }
        Pool::reserve(pages)
    }

    /// Makes sure that `pages` are free; an error says what was had and what to do.
    pub fn reserve(pages: u64) -> Result<Option<Pool>, String> {
        let (before, free) = read();
        if free >= pages {
            return Ok(None);
        }
        let wanted = before + pages - free;
        // The kernel would try, and take what all others need meanwhile.
        let room = memory_available() / HUGE / 4 * 3;
        if pages - free > room {
            return Err(format!(
                "{pages} pages of 2 MB are needed, {free} are free and memory has room for {room} \
                 more"
            ));
        }
        let written = fs::write(POOL, wanted.to_string());
        let pool = Pool { before };
        let (_, now) = read();
        if now >= pages {
            return Ok(Some(pool));
        }
        let why = match written {
            Ok(()) => "memory is too fragmented or too small".to_string(),
            Err(error) => error.to_string(),
        };
        Err(format!(
            "{pages} pages of 2 MB are needed and {now} are free ({why}); as root: \
             echo {wanted} > {POOL}"
        ))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = fs::write(POOL, self.before.to_string()) {
            eprintln!("odfork bench: cannot put {POOL} back to {}: {error}", self.before);
        }
    }
}

/// All pages of the pool, and the free ones.
fn read() -> (u64, u64) {
    let pool = hugetlb::Pool::read();
    (pool.all as u64, pool.free as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_needs_no_reservation_and_too_much_is_refused_in_one_line() {
        assert!(matches!(Pool::reserve(0), Ok(None)));
        let before = read();
        let refusal = Pool::reserve(1 << 40).unwrap_err();
        assert!(refusal.contains("room for") && !refusal.contains('\n'), "{refusal}");
        assert_eq!(read(), before);
    }
}
