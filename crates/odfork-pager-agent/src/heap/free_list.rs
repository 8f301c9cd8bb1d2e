//! The free pages of the heap: a sorted list of pieces, first fit, neighbours joined.
//!
//! Pure: it owns numbers, not memory. It lies outside paged memory and has a fixed size, since the
//! agent has no heap of its own.

const MOST: usize = 8192;

/// Free pages. `zero`: they read as zeros.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    len: usize,
    zero: bool,
}

pub struct FreeList {
    pieces: [Piece; MOST],
    count: usize,
}

impl FreeList {
    pub const fn new() -> FreeList {
        FreeList { pieces: [Piece { start: 0, len: 0, zero: true }; MOST], count: 0 }
    }

    fn list(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }

    /// First fit: where it starts, and whether it reads as zeros.
    pub fn take(&mut self, len: usize) -> Option<(usize, bool)> {
        let at = self.list().iter().position(|piece| piece.len >= len)?;
        Some(self.cut(at, len))
    }

    /// Takes `len` bytes that begin exactly here; whether they read as zeros.
    pub fn take_at(&mut self, start: usize, len: usize) -> Option<bool> {
        let at = self.list().iter().position(|piece| piece.start == start && piece.len >= len)?;
        Some(self.cut(at, len).1)
    }

    /// Takes the front of a piece that is long enough.
    fn cut(&mut self, at: usize, len: usize) -> (usize, bool) {
        let piece = &mut self.pieces[at];
        let cut = (piece.start, piece.zero);
        piece.start += len;
        piece.len -= len;
        if piece.len == 0 {
            self.remove(at);
        }
        cut
    }

    fn remove(&mut self, at: usize) {
        self.pieces.copy_within(at + 1..self.count, at);
        self.count -= 1;
    }

    /// Puts pages back. With a full list they are lost to the heap (not to the program: they are
    /// given back).
    pub fn put(&mut self, start: usize, len: usize, zero: bool) {
        let at = self.list().partition_point(|piece| piece.start < start);
        let joins = |left: &Piece, start, zero| left.start + left.len == start && left.zero == zero;
        let before = at > 0 && joins(&self.pieces[at - 1], start, zero);
        let next = self.list().get(at).copied();
        let after =
            next.is_some_and(|next| joins(&Piece { start, len, zero }, next.start, next.zero));
        match (before, after) {
            (true, true) => {
                self.pieces[at - 1].len += len + self.pieces[at].len;
                self.remove(at);
            }
            (true, false) => self.pieces[at - 1].len += len,
            (false, true) => {
                self.pieces[at].start = start;
                self.pieces[at].len += len;
            }
            (false, false) if self.count < MOST => {
                self.pieces.copy_within(at..self.count, at + 1);
                self.pieces[at] = Piece { start, len, zero };
                self.count += 1;
            }
            (false, false) => {}
        }
    }
}
