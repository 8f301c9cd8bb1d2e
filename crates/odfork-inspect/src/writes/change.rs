//! What changed in a phase: counts, and where. Pure numbers, filled by the methods and printed by
//! `table`.
//!
//! Newly populated memory counts as changed, as in Smith and Maguire 1988; memory given back is
//! told apart and is in neither count.

use odfork_proc::maps::Mapping;
use odfork_proc::pagemap::PAGE;

/// Counts of one mapping, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages with content at the end.
    pub pages: u64,
    pub changed: u64,
    /// Of the changed ones those that had no content at the start.
    pub new: u64,
    /// Bytes that differ; a new page counts whole. Meaningless unless the method compares.
    pub bytes: u64,
}

impl Counts {
    pub fn add_new_page(&mut self) {
        self.changed += 1;
        self.new += 1;
        self.bytes += PAGE;
    }

    /// A page that had content before and differs in so many bytes now.
    pub fn add_difference(&mut self, bytes: u64) {
        self.changed += u64::from(bytes > 0);
        self.bytes += bytes;
    }

    pub fn add(&mut self, other: &Counts) {
        self.pages += other.pages;
        self.changed += other.changed;
        self.new += other.new;
        self.bytes += other.bytes;
    }

    pub fn page_share(&self) -> f64 {
        share(self.changed, self.pages)
    }

    pub fn byte_share(&self) -> f64 {
        share(self.bytes, self.bytes_all())
    }

    pub fn bytes_all(&self) -> u64 {
        self.pages * PAGE
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// A place in the process and what changed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub name: String,
    pub start: u64,
    pub end: u64,
    pub counts: Counts,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub counts: Counts,
    /// Pages that had content at the start and have none now.
    pub gone: u64,
    /// Pages the kernel did not let us read; they are in no count.
    pub unreadable: u64,
    pub spots: Vec<Spot>,
}

impl Change {
    /// Adds a mapping; neighbours of the same name are one spot.
    pub fn add(&mut self, mapping: &Mapping, counts: Counts) {
        self.counts.add(&counts);
        let name = mapping.title();
        match self.spots.last_mut() {
            Some(last) if last.end == mapping.start && last.name == name => {
                last.end = mapping.end;
                last.counts.add(&counts);
            }
            _ => {
                let (start, end) = (mapping.start, mapping.end);
                self.spots.push(Spot { name, start, end, counts });
            }
        }
    }

    /// The spots with most changed pages first; without those that did not change.
    pub fn hottest(&self, top: usize) -> Vec<&Spot> {
        let mut spots: Vec<&Spot> = self.spots.iter().filter(|s| s.counts.changed > 0).collect();
        spots.sort_by_key(|spot| (std::cmp::Reverse(spot.counts.changed), spot.start));
        spots.truncate(top);
        spots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pages: u64, changed: u64) -> Counts {
        Counts { pages, changed, new: 0, bytes: changed * 10 }
    }

    #[test]
    fn a_new_page_counts_whole_and_an_equal_one_not_at_all() {
        let mut counts = Counts { pages: 4, ..Counts::default() };
        counts.add_new_page();
        counts.add_difference(0);
        counts.add_difference(24);
        assert_eq!(counts, Counts { pages: 4, changed: 2, new: 1, bytes: PAGE + 24 });
        assert_eq!(counts.page_share(), 0.5);
        assert_eq!(counts.byte_share(), (PAGE + 24) as f64 / (4 * PAGE) as f64);
        assert_eq!(Counts::default().page_share(), 0.0);
    }

    #[test]
    fn the_hottest_spots_come_first_and_quiet_ones_not_at_all() {
        let spot = |name: &str, start: u64, changed: u64| Spot {
            name: name.into(),
            start,
            end: start + 1,
            counts: counts(9, changed),
        };
        let change = Change {
            spots: vec![spot("a", 0, 1), spot("b", 1, 5), spot("c", 2, 0), spot("d", 3, 2)],
            ..Change::default()
        };
        let names = |top| -> Vec<&str> {
            change.hottest(top).iter().map(|spot| spot.name.as_str()).collect()
        };
        assert_eq!(names(9), ["b", "d", "a"]);
        assert_eq!(names(1), ["b"]);
    }
}
