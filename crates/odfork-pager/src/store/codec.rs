//! Compression of one page.

use odfork_pager_protocol::PAGE;

/// How a page in the store is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    #[default]
    None,
    /// An LZ4 block.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

/// A page that does not get smaller than this is stored as it is.
const WORTH_IT: usize = PAGE * 7 / 8;

impl Codec {
    /// The one of this word.
    pub fn from_name(name: &str) -> Option<Codec> {
        Some(match name {
            "none" => Codec::None,
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            _ => return None,
        })
    }

    /// Its word in options and status.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// Writes the page to the front of `room` (at least two pages); returns the bytes used: less
    /// than a page means compressed.
    pub fn encode(self, page: &[u8], buffer: &mut [u8]) -> usize {
        let len = match self {
            Codec::None => None,
            // It refuses to begin without room for the worst case.
            Codec::Lz4 => lz4_flex::block::compress_into(page, buffer).ok(),
            Codec::Zstd => zstd::bulk::compress_to_buffer(page, &mut buffer[..WORTH_IT], 1).ok(),
        };
        len.filter(|&len| len <= WORTH_IT).unwrap_or_else(|| {
            buffer[..PAGE].copy_from_slice(page);
            PAGE
        })
    }

    /// False when the bytes are no page.
    pub fn decode(self, bytes: &[u8], page: &mut [u8]) -> bool {
        if bytes.len() == PAGE {
            page.copy_from_slice(bytes);
            return true;
        }
        match self {
            Codec::None => false,
            Codec::Lz4 => {
                lz4_flex::block::decompress_into(bytes, page).is_ok_and(|len| len == PAGE)
            }
            Codec::Zstd => {
                zstd::bulk::decompress_to_buffer(bytes, page).is_ok_and(|len| len == PAGE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_as_they_were() {
        let mut noise = vec![0u8; PAGE];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        let mut half = noise.clone();
        half[PAGE / 2..].fill(7);
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            for (page, small) in [(&noise, false), (&half, codec != Codec::None)] {
                let (mut buffer, mut back) = (vec![0; 2 * PAGE], vec![1; PAGE]);
                let len = codec.encode(page, &mut buffer);
                assert_eq!(len < PAGE, small, "{codec:?}");
                assert!(codec.decode(&buffer[..len], &mut back));
                assert!(back == *page);
                assert!(!codec.decode(&buffer[..7], &mut back));
            }
            assert_eq!(Codec::from_name(codec.name()), Some(codec));
        }
    }
}
