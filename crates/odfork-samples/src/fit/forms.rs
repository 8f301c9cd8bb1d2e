//! The shapes a cost model may have, and what a load amounts to in each of their terms.
//!
//! Owns the vocabulary: the three terms of Smith and Maguire, and the few that today's machines
//! add. A form always holds the three; what else it holds is for the data to decide (see `model`).
//! Amounts are counts, so coefficients are seconds apiece.

use odfork_model::{pages_written, PAGE_BYTES};

/// What one last-level page table maps, and one huge page: 2 MB.
pub const TABLE_BYTES: u64 = 2 << 20;

/// One term of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Creating, ending and reaping a process without memory.
    Process,
    /// One page-table entry of the parent: copied in fork, torn down at exit.
    Entry,
    /// One huge page of the parent: its entry, and the page table that is kept ready for splitting
    /// it.
    Huge,
    /// One page the child writes: fault, copy, and the page given back.
    Copy,
    /// What an entry costs more once there are so many that their page structures no longer stay in
    /// the caches.
    FarEntry {
        /// From so many entries on.
        beyond: u64,
    },
    /// What a written page costs more once there are so many that they no longer come out of the
    /// caches.
    FarCopy {
        /// From so many pages on.
        beyond: u64,
    },
    /// One 2 MB region the child writes into: a huge page split, or a page table made or unshared.
    Table,
}

impl Term {
    /// The word for it in tables and JSON.
    pub fn name(self) -> String {
        match self {
            Term::Process => "process".into(),
            Term::Entry => "entry".into(),
            Term::Huge => "huge entry".into(),
            Term::Copy => "copy".into(),
            Term::FarEntry { beyond } => format!("entry beyond {beyond}"),
            Term::FarCopy { beyond } => format!("copy beyond {beyond}"),
            Term::Table => "table".into(),
        }
    }

    /// What a unit of it is, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Term::Process => "creating, ending and reaping a process without memory",
            Term::Entry => "a page-table entry of the parent: copied in fork, torn down at exit",
            Term::Huge => {
                "a huge page of the parent: its entry and the page table kept ready for it"
            }
            Term::Copy => "a page the child writes: fault, copy, page given back",
            Term::FarEntry { .. } => "more for each entry beyond what the caches hold",
            Term::FarCopy { .. } => "more for each written page beyond what the caches hold",
            Term::Table => {
                "a 2 MB region the child writes into: a huge page split or a page table made"
            }
        }
    }

    /// How many units of this term a load has.
    pub fn amount(self, load: &Load) -> u64 {
        match self {
            Term::Process => 1,
            Term::Entry => load.entries,
            Term::Huge => load.huge,
            Term::Copy => load.written,
            Term::FarEntry { beyond } => load.entries.saturating_sub(beyond),
            Term::FarCopy { beyond } => load.written.saturating_sub(beyond),
            Term::Table => (load.written.saturating_mul(load.page)).div_ceil(TABLE_BYTES),
        }
    }
}

/// What a fork has to do: counted, not timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Page-table entries of the parent; those of transparent huge pages are counted apart.
    pub entries: u64,
    /// Entries of 2 MB pages.
    pub huge: u64,
    /// Pages the child writes, of `page` bytes.
    pub written: u64,
    /// Bytes of such a page.
    pub page: u64,
}

impl Load {
    /// The load of `bytes` of heap of which the child writes `frac`, under an engine. Transparent
    /// huge pages are one entry each, but a written one is split and copied by 4 KB (Linux 5.8 and
    /// later); hugetlb pages are copied whole.
    pub fn of(engine: &str, bytes: f64, frac: f64) -> Load {
        let bytes = bytes as u64; // saturates; a size that is no number is 0
        let page = if engine == "hugetlb" { TABLE_BYTES } else { PAGE_BYTES };
        let pages = bytes.div_ceil(page);
        let entries = match engine {
            "thp" => (bytes % TABLE_BYTES).div_ceil(page),
            // Shared last-level tables: fork copies only the entries that point to them.
            "kernel" => bytes.div_ceil(TABLE_BYTES),
            _ => pages,
        };
        let huge = if engine == "thp" { bytes / TABLE_BYTES } else { 0 };
        Load { entries, huge, written: pages_written(pages, frac), page }
    }

    /// The load as on another machine, with pages of `page` bytes, one entry each.
    pub fn in_pages(page: u64, bytes: f64, frac: f64) -> Load {
        let entries = (bytes as u64).div_ceil(page.max(1));
        Load { entries, huge: 0, written: pages_written(entries, frac), page }
    }
}

/// A choice of terms: the three, then extra ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The terms, in the order of the coefficients.
    pub terms: Vec<Term>,
}

impl Form {
    /// The three terms and these.
    pub fn with(extra: &[Term]) -> Form {
        Form { terms: [&[Term::Process, Term::Entry, Term::Copy], extra].concat() }
    }

    /// "process + entry + copy".
    pub fn describe(&self) -> String {
        self.terms.iter().map(|term| term.name()).collect::<Vec<_>>().join(" + ")
    }

    /// How many units of each term a load has: one row of the regression.
    pub fn row(&self, load: &Load) -> Vec<f64> {
        self.terms.iter().map(|term| term.amount(load) as f64).collect()
    }

    /// All forms worth trying for an engine, the simplest family first. A family differs only in
    /// where its knees are. Only plain forks copy entries enough for a knee among them.
    pub fn families(engine: &str) -> Vec<Vec<Form>> {
        let knees = || (8..=17).map(|power| 1u64 << power);
        let copies = || knees().map(|beyond| Term::FarCopy { beyond });
        let entries = || knees().map(|beyond| Term::FarEntry { beyond });
        let always: &[Term] = if engine == "thp" { &[Term::Huge] } else { &[] };
        let form = |extra: &[Term]| Form::with(&[always, extra].concat());
        let mut families = vec![vec![form(&[])], copies().map(|copy| form(&[copy])).collect()];
        if engine == "plain" {
            families.push(entries().map(|entry| form(&[entry])).collect());
        }
        families.push(vec![form(&[Term::Table])]);
        families.push(copies().map(|copy| form(&[copy, Term::Table])).collect());
        if engine == "plain" {
            let both = |entry| copies().map(move |copy| Form::with(&[entry, copy]));
            families.push(entries().flat_map(both).collect());
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_count_what_each_engine_has() {
        let of = |engine, bytes, frac| {
            let load = Load::of(engine, bytes, frac);
            (load.entries, load.written)
        };
        assert_eq!(of("plain", 1e6, 0.5), (245, 123));
        assert_eq!(of("thp", 1e6, 0.5), (245, 123));
        assert_eq!(of("thp", (3u64 << 20) as f64, 1.0), (256, 768));
        assert_eq!(Load::of("thp", (5u64 << 20) as f64, 1.0).huge, 2);
        assert_eq!(of("hugetlb", (4u64 << 20) as f64, 0.6), (2, 2));
        assert_eq!(of("kernel", (4u64 << 20) as f64, 1.0), (2, 1024));
        assert_eq!(of("plain", 0.0, 1.0), (0, 0));
        assert_eq!(of("plain", f64::NAN, f64::NAN), (0, 0));
    }

    #[test]
    fn amounts_begin_beyond_the_knee() {
        let load = Load::of("plain", (8u64 << 20) as f64, 0.5);
        assert_eq!(Term::FarCopy { beyond: 1000 }.amount(&load), 24);
        assert_eq!(Term::FarEntry { beyond: 4096 }.amount(&load), 0);
        assert_eq!(Term::Table.amount(&load), 2);
        assert_eq!(Form::with(&[]).row(&load), [1.0, 2048.0, 1024.0]);
    }

    #[test]
    fn the_simplest_family_is_the_paper_s() {
        let families = Form::families("plain");
        assert_eq!(families[0][0].describe(), "process + entry + copy");
        assert!(families.windows(2).all(|w| w[0][0].terms.len() <= w[1][0].terms.len()));
    }
}
