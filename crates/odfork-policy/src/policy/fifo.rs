//! First in, first out.

use super::slots::{Eviction, Slots};

#[derive(Default)]
pub(super) struct Fifo {
    oldest: usize,
}

impl Eviction for Fifo {
    fn victim(&mut self, slots: &mut Slots) -> usize {
        let after = slots.after(self.oldest);
        std::mem::replace(&mut self.oldest, after)
    }
}
