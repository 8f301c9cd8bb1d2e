//! What a server must hold: every key and value follows from a number, so a snapshot can be
//! compared with the writes that came before its fork.
//!
//! Write `n` changes a key, which follows from `n`, to a value, which follows from both. Write 0 is
//! the filling. Pure.

/// A server's content after some writes.
#[derive(Clone, Debug)]
pub struct Content {
    pub keys: u64,
    /// Bytes of a value.
    pub size: usize,
    seed: u64,
    /// Writes so far.
    pub writes: u64,
}

/// Beside its value, a key takes about so much of a server.
const KEY_BYTES: u64 = 96;

impl Content {
    pub fn new(bytes: u64, size: usize, seed: u64) -> Content {
        let keys = (bytes / (size as u64 + KEY_BYTES)).max(1);
        Content { keys, size, seed, writes: 0 }
    }

    /// Key and value of the next write.
    pub fn write(&mut self, value: &mut Vec<u8>) -> u64 {
        self.writes += 1;
        let key = self.key_of(self.writes);
        self.fill(key, self.writes, value);
        key
    }

    /// The key that a write changes.
    fn key_of(&self, write: u64) -> u64 {
        mixed(self.seed ^ write) % self.keys
    }

    /// The value that a write gives a key: bytes that cannot be compressed.
    pub fn fill(&self, key: u64, write: u64, value: &mut Vec<u8>) {
        value.clear();
        let mut state = mixed(self.seed ^ mixed(key) ^ mixed(write << 32));
        while value.len() < self.size {
            // Weyl's sequence, scattered: no two words alike.
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            value.extend_from_slice(&mixed(state).to_le_bytes());
        }
        value.truncate(self.size);
    }

    /// For each key the last write that changed it, after so many writes.
    pub fn after(&self, writes: u64) -> Vec<u64> {
        let mut last = vec![0; self.keys as usize];
        (1..=writes).for_each(|write| last[self.key_of(write) as usize] = write);
        last
    }
}

/// The name of a key.
pub fn name(key: u64) -> String {
    format!("key:{key:010}")
}

/// Scatters a number over all of 64 bits (splitmix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_holds_follows_from_the_last_write() {
        let mut content = Content::new(64 << 10, 700, 7);
        let (mut value, mut expected) = (Vec::new(), Vec::new());
        let mut held = vec![Vec::new(); content.keys as usize];
        for _ in 0..500 {
            let key = content.write(&mut value);
            held[key as usize] = value.clone();
        }
        for (key, write) in content.after(500).into_iter().enumerate() {
            content.fill(key as u64, write, &mut expected);
            assert_eq!(expected.len(), 700);
            assert!(write == 0 || held[key] == expected);
        }
        // One write less is another content.
        assert_ne!(content.after(499), content.after(500));
    }

    #[test]
    fn no_two_values_are_alike() {
        let content = Content::new(1 << 20, 64, 7);
        let mut seen = std::collections::BTreeSet::new();
        for (key, write) in (0..50).flat_map(|key| (0..50).map(move |write| (key, write))) {
            let mut value = Vec::new();
            content.fill(key, write, &mut value);
            assert!(seen.insert(value), "{key}, {write}");
        }
    }
}
