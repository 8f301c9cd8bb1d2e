//! A short text, without a heap.

/// A short text that is put together.
pub struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    pub const fn new() -> Line {
        Line { bytes: [0; 512], len: 0 }
    }

    pub fn text(&mut self, text: &[u8]) -> &mut Line {
        let len = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text[..len]);
        self.len += len;
        self
    }

    pub fn number(&mut self, number: u64) -> &mut Line {
        let mut digits = [b'0'; 20];
        let (mut left, mut at) = (number, digits.len());
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.text(&digits[at..])
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
