//! The plan of a freeze against a plain model of memory: one truth value a page.

use odfork::plan::{part_len, Kind, Piece, Planner, HUGE, MAX_PIECES, PAGE};

use crate::Bytes;

const WINDOW: usize = HUGE / PAGE;
/// Most pages of a mapping here: 400 windows, more than there may be pieces.
const MOST: usize = 400 * WINDOW;

/// A mapping whose pages are populated or not.
struct Memory {
    /// Number of the first page.
    first: usize,
    huge: bool,
    populated: Vec<bool>,
    /// Runs count from here on, as the planner promises.
    fed: usize,
}

impl Memory {
    fn feed(&mut self, from: usize, to: usize) {
        let end = to.min(self.populated.len());
        for page in from.max(self.fed)..end {
            self.populated[page] = true;
        }
        self.fed = self.fed.max(end);
    }

    fn address(&self, page: usize) -> usize {
        (self.first + page) * PAGE
    }

    fn end(&self) -> usize {
        self.address(self.populated.len())
    }

    /// Each touched window, cut to the mapping, with what the rule makes of it.
    fn windows(&self) -> Vec<Piece> {
        let (begin, end) = (self.address(0), self.end());
        let mut pieces = Vec::new();
        for window in begin / HUGE..end.div_ceil(HUGE) {
            let (start, stop) = ((window * HUGE).max(begin), ((window + 1) * HUGE).min(end));
            let pages = (start..stop).step_by(PAGE);
            let pages = pages.filter(|at| self.populated[at / PAGE - self.first]).count();
            let dense = self.huge && stop - start == HUGE && pages * 11 >= WINDOW * 10;
            let populated = |at: &usize| self.populated[at / PAGE - self.first];
            let mut extent = (start..stop).step_by(PAGE).filter(populated);
            let first = extent.next();
            let last = extent.next_back().or(first);
            let (Some(first), Some(last)) = (first, last) else { continue };
            pieces.push(match dense {
                true => Piece { start, end: stop, pages, kind: Kind::Huge },
                false => Piece { start: first, end: last + PAGE, pages, kind: Kind::Small },
            });
        }
        pieces
    }

    /// The plan as its rules say it: neighbours joined where few holes come in, what is thin left
    /// out, and of too many the largest.
    fn plan(&self) -> Vec<Piece> {
        let mut all: Vec<Piece> = Vec::new();
        for window in self.windows() {
            let joined = all.last().map(|last| Piece {
                end: window.end,
                pages: last.pages + window.pages,
                ..*last
            });
            let fits = |last: &Piece, both: &Piece| match last.kind {
                Kind::Huge => last.end == window.start,
                Kind::Small => has_few_holes(both),
            };
            match (all.last_mut(), joined) {
                (Some(last), Some(both)) if last.kind == window.kind && fits(last, &both) => {
                    *last = both;
                }
                _ => all.push(window),
            }
        }
        all.retain(is_worth_it);
        while all.len() > MAX_PIECES {
            // The planner sees one piece after the other: of the first 65 the smallest goes.
            let seen = &all[..=MAX_PIECES];
            let least = seen.iter().map(|p| p.pages).min();
            let at = seen.iter().position(|p| Some(p.pages) == least);
            let newest = seen.last().map(|p| p.pages);
            all.remove(if newest == least { MAX_PIECES } else { at.unwrap_or(0) });
        }
        all
    }
}

/// At most one page in 11 is untouched.
fn has_few_holes(piece: &Piece) -> bool {
    piece.pages * 11 >= (piece.end - piece.start) / PAGE * 10
}

/// A piece in 4 KB pages holds at least 256 KB.
fn is_worth_it(piece: &Piece) -> bool {
    piece.kind == Kind::Huge || piece.pages >= 64 && has_few_holes(piece)
}

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (Some(head), Some(pages), Some(first)) = (bytes.byte(), bytes.word(), bytes.short()) else {
        return;
    };
    let pages = pages as usize % MOST + 1;
    let mut memory = Memory {
        first: usize::from(first),
        huge: head & 1 != 0,
        populated: vec![false; pages],
        fed: 0,
    };
    let mut planner = Planner::new(memory.address(0), memory.end(), memory.huge);
    // Runs mostly rise, but one in four begins before the one ahead of it has ended.
    let mut at = 0usize;
    while let (Some(gap), Some(length)) = (bytes.short(), bytes.short()) {
        let gap = usize::from(gap >> 2);
        let from = if gap % 4 == 3 { at.saturating_sub(gap) } else { at + gap };
        at = from + usize::from(length);
        memory.feed(from, at);
        planner.feed(memory.address(from), memory.address(at));
    }
    let plan = planner.finish();
    assert_eq!(plan, memory.plan());
    for piece in plan {
        let part = part_len(piece);
        assert!(part > 0 && piece.len().div_ceil(part) <= 64);
    }
}
