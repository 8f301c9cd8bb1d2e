//! Which parts of a mapping go into which kind of backing file. Pure.
//!
//! Owns the division of one mapping into pieces by how densely its 2 MB
//! windows are populated, and with it the bound on what frozen memory may cost above stock.
//!
//! An untouched page costs nothing on stock, not even when it is read. In a backing file it is
//! a hole: a huge page fills it at once, and reading it allocates a page. So memory is frozen
//! only where at most one page in 11 is untouched: if every hole is filled, the file is 10 %
//! larger than its content. What is thinner stays anonymous, as before.
//!
//! ```text
//! mapping   |head|== full ==|~ thin ~|.. untouched ..|== full ==|tail|
//! pieces    |small|  huge   |  anon  |     anon      |   huge   |small|
//! ```

pub use crate::sys::{HUGE, PAGE};

/// One page in this many of a piece may be untouched.
const HOLE_SHARE: usize = 11;
/// A piece of 4 KB pages is frozen only from this many populated pages (256 KB).
const MIN_SMALL_PAGES: usize = 64;
/// Of one mapping the largest pieces are frozen, so that freezing does not multiply mappings.
pub const MAX_PIECES: usize = 64;

/// Where a piece goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file of 2 MB pages.
    Huge,
    /// A file of 4 KB pages.
    Small,
}

/// A part of one mapping to be frozen into one backing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First address.
    pub start: usize,
    /// Address behind the last one.
    pub end: usize,
    /// Populated pages seen when planning.
    pub pages: usize,
    /// The file it goes into.
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
    /// First and last populated address of the window.
    extent: (usize, usize),
    /// Runs are counted from here on: one that is fed again must not open a second piece
    /// over the same addresses, whose content the first would already have taken.
    fed: usize,
    open: Option<Piece>,
    pieces: [Piece; MAX_PIECES],
    count: usize,
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
            extent: (0, 0),
            fed: start,
            open: None,
            pieces: [NO_PIECE; MAX_PIECES],
            count: 0,
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
            if self.in_window == 0 {
                self.extent.0 = at;
            }
            self.extent.1 = stop;
            self.in_window += (stop - at) / PAGE;
            at = stop;
        }
    }

    /// Ends the mapping and gives the pieces in rising order.
    pub fn finish(&mut self) -> &[Piece] {
        self.close_window();
        self.close_piece();
        &self.pieces[..self.count]
    }

    fn close_window(&mut self) {
        let pages = core::mem::take(&mut self.in_window);
        if pages == 0 {
            return;
        }
        let (from, to) = (self.window * HUGE, (self.window + 1) * HUGE);
        let inside = from >= self.start && to <= self.end;
        let whole = Piece { start: from, end: to, pages, kind: Kind::Huge };
        let (start, end) = self.extent;
        let piece = match self.huge && inside && few_holes(&whole) {
            true => whole,
            false => Piece { start, end, pages, kind: Kind::Small },
        };
        match self.open.and_then(|open| joined(open, piece)) {
            Some(both) => self.open = Some(both),
            None => {
                self.close_piece();
                self.open = Some(piece);
            }
        }
    }

    fn close_piece(&mut self) {
        let Some(p) = self.open.take().filter(worth_it) else { return };
        if self.count == MAX_PIECES && !self.drop_smaller(p.pages) {
            return;
        }
        self.pieces[self.count] = p;
        self.count += 1;
    }

    /// Makes room for a piece of so many pages, if another is smaller.
    fn drop_smaller(&mut self, pages: usize) -> bool {
        let smallest = (0..self.count).min_by_key(|&i| self.pieces[i].pages);
        match smallest.filter(|&i| self.pieces[i].pages < pages) {
            Some(i) => {
                self.pieces.copy_within(i + 1..self.count, i);
                self.count -= 1;
                true
            }
            None => false,
        }
    }
}

/// Two pieces of one kind as one: neighbours in huge pages, and in 4 KB pages what has few holes
/// together.
fn joined(a: Piece, b: Piece) -> Option<Piece> {
    let both = Piece { start: a.start, end: b.end, pages: a.pages + b.pages, kind: a.kind };
    let fits = match a.kind {
        Kind::Huge => a.end == b.start,
        Kind::Small => few_holes(&both),
    };
    (a.kind == b.kind && fits).then_some(both)
}

/// So many pages of a window of 2 MB are enough for a file of huge pages.
pub fn is_dense(pages: usize) -> bool {
    few_holes(&Piece { start: 0, end: HUGE, pages, kind: Kind::Huge })
}

/// At most one page in 11 is untouched.
fn few_holes(p: &Piece) -> bool {
    let pages = p.len() / PAGE;
    p.pages.saturating_mul(HOLE_SHARE) >= pages.saturating_mul(HOLE_SHARE - 1)
}

fn worth_it(p: &Piece) -> bool {
    p.kind == Kind::Huge || p.pages >= MIN_SMALL_PAGES && few_holes(p)
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
    fn of_too_many_fragments_the_largest_are_taken() {
        let runs: Vec<_> = (0..200)
            .map(|w| (2 * w * HUGE, (2 * w + 1 + usize::from(w % 10 == 0)) * HUGE - PAGE))
            .collect();
        let got = plan(0, 401 * HUGE, &runs);
        assert_eq!(got.len(), MAX_PIECES);
        assert!(got.windows(2).all(|two| two[0].end <= two[1].start));
        assert_eq!(got.iter().filter(|p| p.start % (20 * HUGE) == 0).count(), 20);
    }

    #[test]
    fn one_page_in_eleven_may_be_untouched() {
        let run = |pages: usize| (HUGE, HUGE + pages * PAGE);
        let huge = |pages| plan(HUGE, 2 * HUGE, &[run(pages)])[0];
        assert_eq!((huge(466).kind, huge(465).kind), (Kind::Huge, Kind::Small));
        // What is thinner is cut to what is populated, and left alone where that is thin.
        assert_eq!(huge(465).len(), 465 * PAGE);
        let rows = |of: usize| -> Vec<_> {
            (0..512).filter(|i| i % of != 0).map(|i| (i * PAGE, (i + 1) * PAGE)).collect()
        };
        assert_eq!(plan(0, HUGE, &rows(12)).len(), 1);
        assert!(plan(0, HUGE, &rows(10)).is_empty());
    }

    #[test]
    fn small_pieces_join_over_small_gaps() {
        let plan = |gap: usize| {
            let mut p = Planner::new(0, 64 * HUGE, false);
            p.feed(0, 10 * HUGE);
            p.feed(10 * HUGE + gap, 11 * HUGE + gap);
            p.finish().len()
        };
        assert_eq!((plan(PAGE), plan(HUGE), plan(2 * HUGE)), (1, 1, 2));
    }

    #[test]
    fn runs_fed_twice_give_no_overlapping_pieces() {
        let runs: Vec<_> = (0..1024).map(|b| (b * 16 * PAGE, (b * 16 + 15) * PAGE)).collect();
        let again: Vec<_> = runs.iter().chain(&runs[512..]).copied().collect();
        assert_eq!(plan(0, 1024 * 16 * PAGE, &again), plan(0, 1024 * 16 * PAGE, &runs));
        assert!(!plan(0, 1024 * 16 * PAGE, &runs).is_empty());
    }

    #[test]
    fn parts_are_few_and_never_tiny() {
        let piece = |len| Piece { start: 0, end: len, pages: 1, kind: Kind::Small };
        assert_eq!(part_len(&piece(PAGE)), HUGE);
        let big = piece(64 << 30);
        assert!(big.len().div_ceil(part_len(&big)) <= 64);
    }
}
