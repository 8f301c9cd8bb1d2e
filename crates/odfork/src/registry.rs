//! The images this process has, and where the program's memory shows them.
//!
//! Owns the list of images and a conservative map of addresses ("may be
//! frozen"). The truth about any address is the kernel's map of the process;
//! this map only says when there is no need to ask.

use crate::plan::Kind;

/// Images at most; more memory than fits is left anonymous.
pub const MAX_IMAGES: usize = 1024;
/// Address intervals at most.
const MAX_SPANS: usize = 4096;

/// One image file and the two one-page mappings that stand for it.
///
/// ```text
/// file:   | page 0 | hole | content at DATA + start % 2 MB ... |
/// seeds:    private and shared mapping of page 0, never touched
/// ```
/// No descriptor stays open. `mremap` duplicates a seed into a view of the whole
/// file: shared to write into it, private to map it afresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Image {
    /// Device as `major << 32 | minor`.
    pub dev: u64,
    pub inode: u64,
    /// Address range it was made for.
    pub start: usize,
    pub end: usize,
    /// Bytes of file from offset 0 to the end of content.
    pub span: usize,
    /// Seed mappings; 0 in a process that inherited the image.
    pub seed_private: usize,
    pub seed_shared: usize,
    /// The page whose exclusiveness tells that no descendant shows this image.
    pub beacon: usize,
    /// Bytes written into it.
    pub bytes: usize,
    /// 1 = huge pages, 0 = 4 KB pages.
    pub huge: u32,
    /// In use.
    pub live: u32,
}

impl Image {
    /// Which kind of piece it holds.
    pub fn kind(&self) -> Kind {
        if self.huge == 1 {
            Kind::Huge
        } else {
            Kind::Small
        }
    }
}

/// All images of the process.
pub struct Registry {
    images: [Image; MAX_IMAGES],
    spans: [(usize, usize); MAX_SPANS],
    span_count: usize,
}

const EMPTY: Image = Image {
    dev: 0,
    inode: 0,
    start: 0,
    end: 0,
    span: 0,
    seed_private: 0,
    seed_shared: 0,
    beacon: 0,
    bytes: 0,
    huge: 0,
    live: 0,
};

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// No image.
    pub const fn new() -> Self {
        Registry { images: [EMPTY; MAX_IMAGES], spans: [(0, 0); MAX_SPANS], span_count: 0 }
    }

    /// Adds an image; false when the list is full.
    pub fn add(&mut self, image: Image) -> bool {
        let Some(slot) = self.images.iter_mut().find(|i| i.live == 0) else { return false };
        *slot = Image { live: 1, ..image };
        self.cover(image.start, image.end);
        true
    }

    /// Room for `n` more images.
    pub fn room(&self) -> usize {
        self.images.iter().filter(|i| i.live == 0).count()
    }

    /// Images in use, with their slots.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Image)> {
        self.images.iter().enumerate().filter(|(_, i)| i.live == 1)
    }

    /// The image in a slot.
    pub fn get(&self, slot: usize) -> Option<&Image> {
        self.images.get(slot).filter(|i| i.live == 1)
    }

    /// The slot of the image `dev:inode`.
    pub fn find(&self, dev: u64, inode: u64) -> Option<usize> {
        self.live().find(|(_, i)| i.dev == dev && i.inode == inode).map(|(n, _)| n)
    }

    /// Takes an image off the list.
    pub fn remove(&mut self, slot: usize) -> Option<Image> {
        let image = self.images.get_mut(slot).filter(|i| i.live == 1)?;
        let was = *image;
        image.live = 0;
        Some(was)
    }

    /// After fork, in the child: the images belong to the parent; the seeds
    /// were not inherited (`MADV_DONTFORK`).
    pub fn inherit(&mut self) {
        for i in self.images.iter_mut().filter(|i| i.live == 1) {
            i.seed_private = 0;
            i.seed_shared = 0;
            i.beacon = 0;
        }
    }

    /// True if any address of `start..end` may be frozen.
    pub fn may_touch(&self, start: usize, end: usize) -> bool {
        let spans = &self.spans[..self.span_count];
        let i = spans.partition_point(|s| s.1 <= start);
        spans.get(i).is_some_and(|s| s.0 < end)
    }

    /// True while anything may be frozen at all.
    pub fn any(&self) -> bool {
        self.span_count != 0
    }

    /// Notes that `start..end` may be frozen.
    pub fn cover(&mut self, start: usize, end: usize) {
        let spans = &mut self.spans[..self.span_count];
        let first = spans.partition_point(|s| s.1 < start);
        let last = spans.partition_point(|s| s.0 <= end);
        if first == last {
            self.insert(first, (start, end));
        } else {
            let merged = (start.min(spans[first].0), end.max(spans[last - 1].1));
            spans[first] = merged;
            self.spans.copy_within(last..self.span_count, first + 1);
            self.span_count -= last - first - 1;
        }
    }

    fn insert(&mut self, at: usize, span: (usize, usize)) {
        if self.span_count < MAX_SPANS {
            self.spans.copy_within(at..self.span_count, at + 1);
            self.spans[at] = span;
            self.span_count += 1;
        } else if at > 0 {
            // Full: widen the neighbour. Too much is only slower, never wrong.
            self.spans[at - 1].1 = span.1;
        } else {
            self.spans[0].0 = span.0;
        }
    }

    /// Notes that `start..end` certainly is not frozen any more.
    pub fn uncover(&mut self, start: usize, end: usize) {
        let mut i = self.spans[..self.span_count].partition_point(|s| s.1 <= start);
        while i < self.span_count && self.spans[i].0 < end {
            let (a, b) = self.spans[i];
            match (a < start, b > end) {
                (true, true) if self.span_count == MAX_SPANS => return,
                (true, true) => {
                    self.spans[i].1 = start;
                    self.insert(i + 1, (end, b));
                    return;
                }
                (true, false) => self.spans[i].1 = start,
                (false, true) => {
                    self.spans[i].0 = end;
                    return;
                }
                (false, false) => {
                    self.spans.copy_within(i + 1..self.span_count, i);
                    self.span_count -= 1;
                    continue;
                }
            }
            i += 1;
        }
    }

    /// Forgets all addresses, before the true ones are noted again.
    pub fn clear_cover(&mut self) {
        self.span_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simple model: one bit per page of a small address space.
    #[test]
    fn cover_and_uncover_agree_with_a_bitmap() {
        let mut reg = Box::new(Registry::new());
        let mut model = [false; 64];
        let mut seed = 1u32;
        for _ in 0..5000 {
            let mut next = |n: u32| {
                seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                (seed >> 16) as usize % n as usize
            };
            let (a, set) = (next(60), next(2) == 0);
            let b = a + 1 + next(4);
            if set {
                reg.cover(a, b);
            } else {
                reg.uncover(a, b);
            }
            model[a..b].fill(set);
            for (i, &m) in model.iter().enumerate() {
                assert_eq!(reg.may_touch(i, i + 1), m, "page {i}");
            }
        }
    }

    #[test]
    fn a_full_map_stays_conservative() {
        let mut reg = Box::new(Registry::new());
        for i in 0..MAX_SPANS + 10 {
            reg.cover(10 * i + 10, 10 * i + 15);
        }
        for i in 0..MAX_SPANS + 10 {
            assert!(reg.may_touch(10 * i + 10, 10 * i + 15));
        }
    }

    #[test]
    fn slots_are_reused() {
        let mut reg = Box::new(Registry::new());
        let image = Image { inode: 5, dev: 7, start: 0, end: 10, ..Image::default() };
        assert!(reg.add(image));
        let slot = reg.find(7, 5).unwrap();
        assert_eq!(reg.remove(slot).map(|i| i.inode), Some(5));
        assert_eq!((reg.find(7, 5), reg.room()), (None, MAX_IMAGES));
    }
}
