//! The free pool: a queue of frames by links, top reused first, bottom last; any frame can be taken
//! out of the middle.
//!
//! Frames that were never used are only counted ("fresh").

use super::Frame;

const NONE: Frame = Frame::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    up: Frame,
    down: Frame,
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    links: Vec<Link>,
    top: Frame,
    bottom: Frame,
    linked: u32,
    fresh: u32,
}

impl Pool {
    pub fn new(fresh: u32) -> Pool {
        Pool { links: Vec::new(), top: NONE, bottom: NONE, linked: 0, fresh }
    }

    pub fn len(&self) -> u32 {
        self.linked + self.fresh
    }

    pub fn add_fresh(&mut self, more: u32) {
        self.fresh += more;
    }

    pub fn take_fresh(&mut self) -> bool {
        let some = self.fresh > 0;
        self.fresh -= u32::from(some);
        some
    }

    /// One more frame exists, not in the pool.
    pub fn grow(&mut self) {
        self.links.push(Link { up: NONE, down: NONE });
    }

    pub fn top(&self) -> Option<Frame> {
        (self.top != NONE).then_some(self.top)
    }

    pub fn push_bottom(&mut self, frame: Frame) {
        self.links[frame as usize] = Link { up: self.bottom, down: NONE };
        match self.bottom {
            NONE => self.top = frame,
            last => self.links[last as usize].down = frame,
        }
        self.bottom = frame;
        self.linked += 1;
    }

    pub fn push_top(&mut self, frame: Frame) {
        self.links[frame as usize] = Link { up: NONE, down: self.top };
        match self.top {
            NONE => self.bottom = frame,
            first => self.links[first as usize].up = frame,
        }
        self.top = frame;
        self.linked += 1;
    }

    /// `frame` must be in the pool.
    pub fn unlink(&mut self, frame: Frame) {
        let Link { up, down } = self.links[frame as usize];
        match up {
            NONE => self.top = down,
            up => self.links[up as usize].down = down,
        }
        match down {
            NONE => self.bottom = up,
            down => self.links[down as usize].up = up,
        }
        self.links[frame as usize] = Link { up: NONE, down: NONE };
        self.linked -= 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = Frame> + '_ {
        std::iter::successors(self.top(), |&frame| {
            let down = self.links[frame as usize].down;
            (down != NONE).then_some(down)
        })
    }
}
