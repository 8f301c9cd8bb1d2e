//! A cluster of pages into few bytes and back.
//!
//! Unlike the pager's store, which packs single pages, an image packs a cluster at a time: it is
//! read as a whole anyway, and packs better.

/// How the clusters of an image are packed. What does not get smaller is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As they are: the one that can be mapped.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard frames, level 3.
    Zstd,
}

/// Fast and already far smaller than lz4; higher levels gain little on 64 KB.
const ZSTD_LEVEL: i32 = 3;

impl Codec {
    /// All of them.
    pub const ALL: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];

    /// The word for it on the command line and in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The one of this word.
    pub fn from_name(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u32) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| u32::from(codec.number()) == number)
    }
}

/// Packs clusters; holds what the library wants to keep between calls.
pub(crate) struct Packer {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    room: Vec<u8>,
}

impl Packer {
    pub fn new(codec: Codec) -> Packer {
        let zstd = match codec {
            Codec::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            _ => None,
        };
        Packer { codec, zstd, room: Vec::new() }
    }

    /// The packed bytes, or `None` when they are not fewer by an eighth.
    pub fn pack(&mut self, content: &[u8]) -> Option<&[u8]> {
        let worth = content.len() / 8 * 7;
        // lz4 refuses to begin without room for the worst case.
        self.room.resize(lz4_flex::block::get_maximum_output_size(content.len()), 0);
        let len = match self.codec {
            Codec::None => None,
            Codec::Lz4 => lz4_flex::block::compress_into(content, &mut self.room).ok(),
            Codec::Zstd => {
                let room = &mut self.room[..worth];
                self.zstd.as_mut()?.compress_to_buffer(content, room).ok()
            }
        };
        len.filter(|&len| len <= worth).map(|len| &self.room[..len])
    }
}

/// Unpacks clusters without asking for memory: it works inside a page fault.
pub(crate) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    pub fn new() -> Unpacker {
        Unpacker { zstd: zstd::bulk::Decompressor::new().ok() }
    }

    /// False when the bytes are not `content.len()` bytes packed.
    pub fn unpack(&mut self, codec: Codec, packed: &[u8], content: &mut [u8]) -> bool {
        let want = content.len();
        match codec {
            Codec::None => false,
            Codec::Lz4 => {
                lz4_flex::block::decompress_into(packed, content).is_ok_and(|len| len == want)
            }
            Codec::Zstd => {
                let Some(zstd) = self.zstd.as_mut() else { return false };
                zstd.decompress_to_buffer(packed, content).is_ok_and(|len| len == want)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_come_back_and_noise_is_left_alone() {
        let mut seed = 7u32;
        let noise: Vec<u8> = (0..65536)
            .map(|_| {
                seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                (seed >> 24) as u8
            })
            .collect();
        let mut half = noise.clone();
        half[20000..].fill(3);
        for codec in Codec::ALL {
            assert_eq!(Codec::from_name(codec.name()), Some(codec));
            assert_eq!(Codec::from_number(codec.number().into()), Some(codec));
            let mut packer = Packer::new(codec);
            assert!(packer.pack(&noise).is_none());
            let packed = packer.pack(&half).map(<[u8]>::to_vec);
            assert_eq!(packed.is_some(), codec != Codec::None);
            let Some(packed) = packed else { continue };
            let (mut unpacker, mut back) = (Unpacker::new(), vec![0; half.len()]);
            assert!(unpacker.unpack(codec, &packed, &mut back) && back == half);
            assert!(!unpacker.unpack(codec, &packed[..packed.len() / 2], &mut back));
            assert!(!unpacker.unpack(codec, &noise[..1000], &mut back));
            assert!(!unpacker.unpack(codec, &packed, &mut vec![0; half.len() - 1]));
            assert!(!unpacker.unpack(codec, &packed, &mut vec![0; half.len() + 1]));
        }
    }
}
