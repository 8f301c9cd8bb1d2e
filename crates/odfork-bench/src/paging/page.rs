//! The content of a page of the workload: half of it cannot be compressed, half is one word again
//! and again.
//!
//! Every word follows from the page's number and its version (how often it was written). So a page
//! that was lost, mixed up with another, torn, or is an older copy of itself is noticed by whoever
//! reads it. Pure.

/// Words of 8 bytes in a page.
pub const WORDS: usize = 512;
pub const PAGE: u64 = 4096;

/// Words that no compressor makes smaller.
const NOISE: usize = WORDS / 2;
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^ (word >> 29)
}

fn seed(number: u64, version: u8) -> u64 {
    mix((number << 8 | u64::from(version)).wrapping_add(1).wrapping_mul(ODD))
}

/// The first word of a page.
pub fn first(number: u64, version: u8) -> u64 {
    mix(seed(number, version).wrapping_add(ODD))
}

/// Writes a page.
pub fn write(page: &mut [u64; WORDS], number: u64, version: u8) {
    let seed = seed(number, version);
    let (noise, plain) = page.split_at_mut(NOISE);
    for (at, word) in (1u64..).zip(noise) {
        *word = mix(seed.wrapping_add(at.wrapping_mul(ODD)));
    }
    plain.fill(seed);
}

/// Whether a page holds exactly what `write` put there. All words are read, whatever the first
/// says: the time is the same.
pub fn holds(page: &[u64; WORDS], number: u64, version: u8) -> bool {
    let seed = seed(number, version);
    let (noise, plain) = page.split_at(NOISE);
    let mut difference = 0;
    for (at, word) in (1u64..).zip(noise) {
        difference |= word ^ mix(seed.wrapping_add(at.wrapping_mul(ODD)));
    }
    for word in plain {
        difference |= word ^ seed;
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_holds_and_nothing_else_does() {
        let mut page = [0; WORDS];
        assert!(!holds(&page, 0, 0), "a page of zeros is nobody's content");
        write(&mut page, 7, 3);
        assert!(holds(&page, 7, 3) && page[0] == first(7, 3));
        assert!(!holds(&page, 7, 2), "an older copy");
        assert!(!holds(&page, 8, 3), "another page");
        for at in [0, NOISE - 1, NOISE, WORDS - 1] {
            let mut torn = page;
            torn[at] ^= 1 << 17;
            assert!(!holds(&torn, 7, 3), "word {at}");
        }
    }

    #[test]
    fn half_of_a_page_is_noise() {
        let mut page = [0; WORDS];
        write(&mut page, 123_456, 0);
        let mut halves: Vec<u32> =
            page.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect();
        halves.sort_unstable();
        halves.dedup();
        // 512 different ones from the noise, two from the plain half.
        assert!((513..=514).contains(&halves.len()), "{}", halves.len());
    }
}
