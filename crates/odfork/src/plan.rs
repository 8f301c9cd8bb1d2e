//! Which parts of a mapping go into which kind of backing file. Pure.
//!
//! Owns the division of one mapping into pieces by how densely its 2 MB
//! windows are populated. A huge page costs 2 MB even when one page of it is
//! used, so only well-filled windows go to the huge backing file; thin ones go to the
//! 4 KB backing file; untouched ones stay anonymous and cost nothing, as before.
//!
//! ```text
//! mapping   |head|== dense ==|~ thin ~|.. untouched ..|== dense ==|tail|
//! pieces    |anon|   huge    |  small |     anon      |   huge    |anon|
//! ```

use crate::sys::{HUGE, PAGE};

/// Pages in one window.
const WINDOW_PAGES: usize = HUGE / PAGE;
/// A window with at least this many populated pages is dense (3/4).
const DENSE_PAGES: usize = WINDOW_PAGES * 3 / 4;
/// A thin piece is frozen only from this many populated pages (256 KB) ...
const MIN_THIN_PAGES: usize = 64;
/// ... and when at least one page in this many of its span is populated:
/// below that, reading the untouched rest would cost memory it does not on stock.
const THIN_SHARE: usize = 8;
/// More pieces than this in one mapping are joined into one 4 KB piece, so that
/// freezing does not multiply mappings.
pub const MAX_PIECES: usize = 64;

/// Where a piece goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Huge,
    Small,
}

/// A part of one mapping to be frozen into one backing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub start: usize,
    pub end: usize,
    /// Populated pages seen when planning.
    pub pages: usize,
    pub kind: Kind,
}

impl Piece {
    /// Length of the address range in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True for a piece without addresses.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// Plans one mapping from its populated runs, fed in rising order.
pub struct Planner {
    start: usize,
    end: usize,
    huge: bool,
    window: usize,
    in_window: usize,
    /// Runs are counted from here on: one that is fed again must not open a second piece
    /// over the same addresses, whose content the first would already have taken.
    fed: usize,
    open: Option<Piece>,
    pieces: [Piece; MAX_PIECES],
    count: usize,
    whole: Piece,
}

const NO_PIECE: Piece = Piece { start: 0, end: 0, pages: 0, kind: Kind::Small };

impl Planner {
    /// Begins planning the mapping `start..end`; `huge` says whether a huge
    /// backing file can be had.
    pub fn new(start: usize, end: usize, huge: bool) -> Self {
        Planner {
            start,
            end,
            huge,
            window: start / HUGE,
            in_window: 0,
            fed: start,
            open: None,
            pieces: [NO_PIECE; MAX_PIECES],
            count: 0,
            whole: NO_PIECE,
        }
    }

    /// Takes the next run of populated pages; what lies before an earlier one's end is ignored.
    pub fn feed(&mut self, run_start: usize, run_end: usize) {
        let (mut at, end) = (run_start.max(self.fed), run_end.min(self.end));
        self.fed = self.fed.max(end);
        while at < end {
            if at / HUGE != self.window {
                self.close_window();
                self.window = at / HUGE;
            }
            let stop = ((self.window + 1) * HUGE).min(end);
            self.in_window += (stop - at) / PAGE;
            at = stop;
        }
    }

    /// Ends the mapping and gives the pieces in rising order.
    pub fn finish(&mut self) -> &[Piece] {
        self.close_window();
        self.close_piece();
        if self.count > MAX_PIECES {
            self.pieces[0] = self.whole;
            self.count = usize::from(worth_it(&self.whole));
        }
        &self.pieces[..self.count]
    }

    fn close_window(&mut self) {
        let pages = core::mem::take(&mut self.in_window);
        if pages == 0 {
            return;
        }
        let (from, to) = (self.window * HUGE, (self.window + 1) * HUGE);
        let inside = from >= self.start && to <= self.end;
        let dense = self.huge && inside && pages >= DENSE_PAGES;
        let piece = Piece {
            start: from.max(self.start),
            end: to.min(self.end),
            pages,
            kind: if dense { Kind::Huge } else { Kind::Small },
        };
        self.whole = join(self.whole, piece, Kind::Small);
        match self.open {
            Some(open) if open.kind == piece.kind && open.end == piece.start => {
                self.open = Some(join(open, piece, piece.kind));
            }
            _ => {
                self.close_piece();
                self.open = Some(piece);
            }
        }
    }

    fn close_piece(&mut self) {
        if let Some(p) = self.open.take().filter(worth_it) {
            if let Some(slot) = self.pieces.get_mut(self.count) {
                *slot = p;
            }
            self.count += 1;
        }
    }
}

fn join(a: Piece, b: Piece, kind: Kind) -> Piece {
    let start = if a.is_empty() { b.start } else { a.start };
    Piece { start, end: b.end, pages: a.pages + b.pages, kind }
}

fn worth_it(p: &Piece) -> bool {
    match p.kind {
        Kind::Huge => true,
        Kind::Small => p.pages >= MIN_THIN_PAGES && p.pages * THIN_SHARE * PAGE >= p.len(),
    }
}

/// How far a 4 KB piece is split, so that one page dirtied by the parent
/// brings back only the page-table entries of its own part: at most 64 parts,
/// none below 2 MB.
pub fn part_len(piece: &Piece) -> usize {
    match piece.kind {
        Kind::Huge => piece.len(),
        Kind::Small => piece.len().div_ceil(64).next_multiple_of(HUGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(start: usize, end: usize, runs: &[(usize, usize)]) -> Vec<Piece> {
        let mut p = Planner::new(start, end, true);
        for &(a, b) in runs {
            p.feed(a, b);
        }
        p.finish().to_vec()
    }

    #[test]
    fn a_full_aligned_mapping_is_one_huge_piece() {
        let got = plan(HUGE, 9 * HUGE, &[(HUGE, 9 * HUGE)]);
        assert_eq!(got.len(), 1);
        assert_eq!((got[0].start, got[0].end, got[0].kind), (HUGE, 9 * HUGE, Kind::Huge));
    }

    #[test]
    fn edges_that_share_a_window_with_neighbours_go_small() {
        let (a, b) = (HUGE - 128 * PAGE, 2 * HUGE + 128 * PAGE);
        let kinds: Vec<Kind> = plan(a, b, &[(a, b)]).iter().map(|p| p.kind).collect();
        assert_eq!(kinds, [Kind::Small, Kind::Huge, Kind::Small]);
    }

    #[test]
    fn untouched_windows_stay_out() {
        let got = plan(0, 100 * HUGE, &[(0, HUGE), (50 * HUGE, 51 * HUGE)]);
        assert_eq!(got.len(), 2);
        assert_eq!(got[1].start, 50 * HUGE);
    }

    #[test]
    fn one_page_in_each_window_is_left_alone() {
        let runs: Vec<_> = (0..1000).map(|w| (w * HUGE, w * HUGE + PAGE)).collect();
        assert!(plan(0, 1000 * HUGE, &runs).is_empty());
    }

    #[test]
    fn many_fragments_become_one_small_piece() {
        let runs: Vec<_> = (0..200).map(|w| (2 * w * HUGE, (2 * w + 1) * HUGE)).collect();
        let got = plan(0, 400 * HUGE, &runs);
        assert_eq!(got.len(), 1);
        assert_eq!((got[0].kind, got[0].pages), (Kind::Small, 200 * WINDOW_PAGES));
    }

    #[test]
    fn runs_fed_twice_give_no_overlapping_pieces() {
        let runs: Vec<_> = (0..1024).map(|b| (b * 8 * PAGE, (b * 8 + 1) * PAGE)).collect();
        let again: Vec<_> = runs.iter().chain(&runs[512..]).copied().collect();
        assert_eq!(plan(0, 1024 * 8 * PAGE, &again), plan(0, 1024 * 8 * PAGE, &runs));
    }

    #[test]
    fn parts_are_few_and_never_tiny() {
        let piece = |len| Piece { start: 0, end: len, pages: 1, kind: Kind::Small };
        assert_eq!(part_len(&piece(PAGE)), HUGE);
        let big = piece(64 << 30);
        assert!(big.len().div_ceil(part_len(&big)) <= 64);
    }
}
