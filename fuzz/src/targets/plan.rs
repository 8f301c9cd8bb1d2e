//! The plan of a freeze against a plain model of memory: one truth value a page.

use odfork::plan::{part_len, Kind, Piece, Planner, MAX_PIECES};
use odfork::sys::{HUGE, PAGE};

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
            let dense = self.huge && stop - start == HUGE && pages >= WINDOW * 3 / 4;
            let kind = if dense { Kind::Huge } else { Kind::Small };
            if pages > 0 {
                pieces.push(Piece { start, end: stop, pages, kind });
            }
        }
        pieces
    }

    /// The plan as its rules say it: neighbours of one kind joined, thin ones that are not worth it left out.
    fn plan(&self) -> Vec<Piece> {
        let mut joined: Vec<Piece> = Vec::new();
        let mut whole: Option<Piece> = None;
        for window in self.windows() {
            whole = Some(match whole {
                None => Piece { kind: Kind::Small, ..window },
                Some(all) => Piece { end: window.end, pages: all.pages + window.pages, ..all },
            });
            match joined.last_mut() {
                Some(last) if last.kind == window.kind && last.end == window.start => {
                    last.end = window.end;
                    last.pages += window.pages;
                }
                _ => joined.push(window),
            }
        }
        joined.retain(is_worth_it);
        if joined.len() > MAX_PIECES {
            joined = whole.into_iter().filter(is_worth_it).collect();
        }
        joined
    }
}

/// A thin piece holds at least 256 KB, and one page in eight is populated.
fn is_worth_it(piece: &Piece) -> bool {
    let pages = (piece.end - piece.start) / PAGE;
    piece.kind == Kind::Huge || piece.pages >= 64 && piece.pages * 8 >= pages
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
