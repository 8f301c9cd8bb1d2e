//! Which pages are still in the image only: one bit each.

use super::slots::Slot;
use crate::memory::Memory;

#[derive(Debug)]
pub struct Fresh {
    bits: Memory,
    left: u64,
}

impl Fresh {
    /// `pages` pages are fresh, and their numbers are below `bits`.
    pub fn new(pages: u64, bits: u64) -> std::io::Result<Fresh> {
        let mut memory = Memory::new(bits.div_ceil(8) as usize)?;
        memory.fill(0xff);
        Ok(Fresh { bits: memory, left: pages })
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn has(&self, bit: u64) -> bool {
        self.bits[(bit / 8) as usize] >> (bit % 8) & 1 != 0
    }

    pub fn consume(&mut self, bit: u64) {
        if self.has(bit) {
            self.bits[(bit / 8) as usize] &= !(1 << (bit % 8));
            self.left -= 1;
        }
    }

    pub fn consume_all(&mut self, part: &Slot) {
        (part.bit..part.bit + part.pages).for_each(|bit| self.consume(bit));
    }

    /// The first of so many from `bit` on, and how many follow each other, at most `most`.
    pub fn run(&self, bit: u64, count: u64, most: u64) -> Option<(u64, u64)> {
        let mut at = bit;
        while at < bit + count {
            if at % 8 == 0 && self.bits[(at / 8) as usize] == 0 {
                at += 8;
            } else if self.has(at) {
                let end = (bit + count).min(at + most);
                return Some((at, (at..end).take_while(|&next| self.has(next)).count() as u64));
            } else {
                at += 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_and_found() {
        let mut fresh = Fresh::new(100, 256).unwrap();
        (0..40).chain(50..60).for_each(|bit| fresh.consume(bit));
        fresh.consume(7);
        assert_eq!(fresh.left(), 50);
        assert_eq!(fresh.run(0, 100, 256), Some((40, 10)));
        assert_eq!(fresh.run(45, 55, 3), Some((45, 3)));
        assert_eq!(fresh.run(50, 12, 256), Some((60, 2)));
        assert_eq!(fresh.run(0, 40, 256), None);
    }
}
