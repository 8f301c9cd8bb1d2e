//! What backing files retain of memory that was given up in place: zeros show there, but the pages
//! of the files stay.
//!
//! Owns the account, by ranges that are thawed as a whole. It may say too much: what is given up
//! again counts again, and what was unmapped since is not taken out. Guarded by the lock.

/// What is thawed at a time (32 MB).
pub const THAWED: usize = 32 << 20;

/// Ranges told apart; of more the one with the least is forgotten.
const MOST: usize = 128;

/// A range and what is retained of it; 0: unused.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    bytes: usize,
}

/// The account.
pub struct Retained {
    parts: [Part; MOST],
}

impl Retained {
    /// Nothing.
    pub const fn new() -> Self {
        Retained { parts: [Part { start: 0, bytes: 0 }; MOST] }
    }

    /// The range to thaw around an address.
    pub fn around(at: usize) -> (usize, usize) {
        let start = at / THAWED * THAWED;
        (start, start.saturating_add(THAWED))
    }

    /// So much more is retained at that address.
    pub fn add(&mut self, at: usize, bytes: usize) {
        let (start, _) = Self::around(at);
        let known = self.parts.iter().position(|p| p.bytes > 0 && p.start == start);
        let least = || (0..MOST).min_by_key(|&i| self.parts[i].bytes).unwrap_or(0);
        let part = &mut self.parts[known.unwrap_or_else(least)];
        if part.start != start {
            *part = Part { start, bytes: 0 };
        }
        part.bytes = part.bytes.saturating_add(bytes);
    }

    /// All of it.
    pub fn total(&self) -> usize {
        self.parts.iter().fold(0, |sum, p| sum.saturating_add(p.bytes))
    }

    /// The range of which most is retained.
    pub fn most(&self) -> Option<(usize, usize)> {
        let most = self.parts.iter().max_by_key(|p| p.bytes).filter(|p| p.bytes > 0)?;
        Some(Self::around(most.start))
    }

    /// Nothing is retained of that range any more, or nothing can be done about it.
    pub fn forget(&mut self, (start, _): (usize, usize)) {
        self.parts.iter_mut().filter(|p| p.start == start).for_each(|p| p.bytes = 0);
    }

    /// Nothing at all.
    pub fn clear(&mut self) {
        self.parts.iter_mut().filter(|p| p.bytes > 0).for_each(|p| p.bytes = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_with_most_is_known() {
        let mut retained = Retained::new();
        assert_eq!((retained.total(), retained.most()), (0, None));
        retained.add(5 * THAWED + 4096, 100);
        retained.add(7 * THAWED, 60);
        retained.add(7 * THAWED + 8, 50);
        assert_eq!((retained.total(), retained.most()), (210, Some((7 * THAWED, 8 * THAWED))));
        retained.forget((7 * THAWED, 8 * THAWED));
        assert_eq!((retained.total(), retained.most()), (100, Some((5 * THAWED, 6 * THAWED))));
        retained.clear();
        assert_eq!((retained.total(), retained.most()), (0, None));
    }

    #[test]
    fn of_too_many_ranges_the_least_is_forgotten() {
        let mut retained = Retained::new();
        (0..MOST).for_each(|i| retained.add(i * THAWED, 10 + i));
        retained.add(MOST * THAWED, 1000);
        retained.add(THAWED, 1);
        let all: usize = (1..MOST).map(|i| 10 + i).sum::<usize>() + 1001;
        assert_eq!(retained.total(), all);
        assert_eq!(retained.most(), Some((MOST * THAWED, (MOST + 1) * THAWED)));
    }
}
