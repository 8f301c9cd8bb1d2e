//! A set of addresses as sorted intervals, of fixed size and conservative: when
//! it is full it claims more than it was given, never less. Pure.

/// Intervals at most.
const MAX_SPANS: usize = 4096;

/// The set.
pub struct Spans {
    spans: [(usize, usize); MAX_SPANS],
    count: usize,
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}

impl Spans {
    /// Empty.
    pub const fn new() -> Self {
        Spans { spans: [(0, 0); MAX_SPANS], count: 0 }
    }

    /// True if any address of `start..end` is in the set.
    pub fn touches(&self, start: usize, end: usize) -> bool {
        let spans = &self.spans[..self.count];
        let i = spans.partition_point(|s| s.1 <= start);
        spans.get(i).is_some_and(|s| s.0 < end)
    }

    /// Adds `start..end`.
    pub fn cover(&mut self, start: usize, end: usize) {
        let spans = &mut self.spans[..self.count];
        let first = spans.partition_point(|s| s.1 < start);
        let last = spans.partition_point(|s| s.0 <= end);
        if first == last {
            self.insert(first, (start, end));
        } else {
            let merged = (start.min(spans[first].0), end.max(spans[last - 1].1));
            spans[first] = merged;
            self.spans.copy_within(last..self.count, first + 1);
            self.count -= last - first - 1;
        }
    }

    fn insert(&mut self, at: usize, span: (usize, usize)) {
        if self.count < MAX_SPANS {
            self.spans.copy_within(at..self.count, at + 1);
            self.spans[at] = span;
            self.count += 1;
        } else if at > 0 {
            // Full: widen the neighbour. Too much is only slower, never wrong.
            self.spans[at - 1].1 = span.1;
        } else {
            self.spans[0].0 = span.0;
        }
    }

    /// Takes `start..end` out.
    pub fn uncover(&mut self, start: usize, end: usize) {
        let mut i = self.spans[..self.count].partition_point(|s| s.1 <= start);
        while i < self.count && self.spans[i].0 < end {
            let (a, b) = self.spans[i];
            match (a < start, b > end) {
                (true, true) if self.count == MAX_SPANS => return,
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
                    self.spans.copy_within(i + 1..self.count, i);
                    self.count -= 1;
                    continue;
                }
            }
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simple model: one bit per page of a small address space.
    #[test]
    fn cover_and_uncover_agree_with_a_bitmap() {
        let mut spans = Box::new(Spans::new());
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
                spans.cover(a, b);
            } else {
                spans.uncover(a, b);
            }
            model[a..b].fill(set);
            for (i, &m) in model.iter().enumerate() {
                assert_eq!(spans.touches(i, i + 1), m, "page {i}");
            }
        }
    }

    #[test]
    fn a_full_map_stays_conservative() {
        let mut spans = Box::new(Spans::new());
        for i in 0..MAX_SPANS + 10 {
            spans.cover(10 * i + 10, 10 * i + 15);
        }
        for i in 0..MAX_SPANS + 10 {
            assert!(spans.touches(10 * i + 10, 10 * i + 15));
        }
    }
}
