//! What is made live: accesses of a trace, or made up ones, to enough pages for a real process.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use odfork_bench::{patterns, replay};
use odfork_policy::trace::{Batch, Page, Reference};

use super::super::cases::Trace;

/// Pages of those that are made up: 64 MB.
const MADE_UP: u32 = 16_384;
/// A process needs memory of its own beside these: 32 MB.
const LEAST: u32 = 8_192;
/// Of a trace with fewer pages, accesses are left out to one of this part of its pages that were
/// accessed last. That is far below any memory it gets here.
const WINDOW: u32 = 16;

/// Accesses, after each page was written once in order: all pages have content then.
pub struct Accesses {
    pub name: String,
    pub pages: u32,
    /// Each page of the trace became so many, all of which are accessed in its place.
    pub factor: u32,
    pub piece: Arc<Batch>,
}

impl Accesses {
    /// All that are made up.
    pub fn made_up() -> Vec<Accesses> {
        let made = |name: &str| {
            let accesses = patterns::accesses(name, MADE_UP).into_iter();
            let list = accesses.map(|(page, write)| Reference::new(page, write)).collect();
            Accesses::new(name.to_owned(), MADE_UP, 1, list)
        };
        patterns::NAMES.into_iter().map(made).collect()
    }

    /// A trace's; pages lie in the order in which they are accessed first.
    pub fn of(trace: &Trace) -> Accesses {
        let pages = trace.summary.pages() as u32;
        let references = trace.pieces.iter().flat_map(|piece| &piece.references).copied();
        let factor = LEAST.div_ceil(pages);
        let list = match factor {
            1 => references.collect(),
            _ => widened(&thinned(references, (pages / WINDOW) as usize), factor),
        };
        Accesses::new(trace.name.clone(), pages * factor, factor, list)
    }

    fn new(name: String, pages: u32, factor: u32, list: Vec<Reference>) -> Accesses {
        let first = (0..pages).map(|page| Reference::new(page, true));
        let references = first.chain(list).collect();
        let new_pages = vec![0; pages as usize];
        let piece = Arc::new(Batch { references, new_pages, marks: Vec::new() });
        Accesses { name, pages, factor, piece }
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let pair = |reference: &Reference| (reference.page(), reference.is_write());
        replay::write_file(path, self.pages, self.piece.references.iter().map(pair))
    }
}

/// Without those to one of so many pages that were accessed last, but with their first writes.
fn thinned(references: impl Iterator<Item = Reference>, window: usize) -> Vec<Reference> {
    let mut recent: VecDeque<(Page, bool)> = VecDeque::new();
    let mut list = Vec::new();
    for reference in references {
        let (page, write) = (reference.page(), reference.is_write());
        let place = recent.iter().position(|&(known, _)| known == page);
        let known = place.and_then(|at| recent.remove(at));
        if !known.is_some_and(|(_, is_written)| is_written || !write) {
            list.push(reference);
        }
        recent.push_front((page, write || known.is_some_and(|known| known.1)));
        recent.truncate(window);
    }
    list
}

fn widened(references: &[Reference], factor: u32) -> Vec<Reference> {
    let wide = |one: &Reference| {
        let (first, write) = (one.page() * factor, one.is_write());
        (first..first + factor).map(move |page| Reference::new(page, write))
    };
    references.iter().flat_map(wide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_policy::trace::{from_pairs, Summary};

    #[test]
    fn a_small_trace_becomes_larger_and_keeps_its_order() {
        let pairs = [(7, false), (9, false), (7, false), (7, true), (8, false), (9, false)];
        let piece = from_pairs(pairs);
        let mut summary = Summary::default();
        summary.add(&piece);
        let trace = Trace { name: "t".into(), pieces: vec![Arc::new(piece)], summary };
        let accesses = Accesses::of(&trace);
        assert_eq!((accesses.pages, accesses.factor), (3 * 2731, 2731));
        let all = &accesses.piece.references;
        assert_eq!(all.len(), (accesses.pages + 6 * 2731) as usize);
        assert!(all[..accesses.pages as usize].iter().all(|one| one.is_write()));
        assert_eq!(all[accesses.pages as usize + 2731].page(), 2731);
    }

    #[test]
    fn what_was_accessed_lately_is_left_out_but_not_its_first_write() {
        let piece =
            from_pairs([(1, false), (2, true), (1, true), (2, true), (1, true), (3, false)]);
        let list = thinned(piece.references.iter().copied(), 2);
        let kept: Vec<_> = list.iter().map(|one| (one.page(), one.is_write())).collect();
        assert_eq!(kept, [(0, false), (1, true), (0, true), (2, false)]);
    }
}
