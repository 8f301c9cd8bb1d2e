//! The index of an image: for each cluster where its pages are and what they must hash to.
//!
//! Owns reading it block by block, on first use, checked against the head. It lies in memory of its
//! own and is read without locks and without the heap, because page faults are served from it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use crate::codec::Codec;
use crate::format::{Shape, RECORD};
use crate::memory::Memory;

/// One cluster. Pages that are neither present nor zero are as in the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where its stored bytes begin, and how many they are.
    pub offset: u64,
    pub stored: u32,
    pub codec: Codec,
    /// One bit a page: stored here; zeros.
    pub present: u64,
    pub zero: u64,
    sums: &'a [u8],
}

impl Record<'_> {
    /// The checksum of a page that is present.
    pub fn sum(&self, page: u32) -> u64 {
        let at = page as usize * 8;
        let bytes = self.sums.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    /// Writes a record; `sums` has one entry for each page of a cluster.
    pub fn encode(
        offset: u64,
        stored: u32,
        codec: Codec,
        bits: (u64, u64),
        sums: &[u64],
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&stored.to_le_bytes());
        out.extend_from_slice(&[codec.number(), 0, 0, 0]);
        out.extend_from_slice(&bits.0.to_le_bytes());
        out.extend_from_slice(&bits.1.to_le_bytes());
        sums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
    }
}

fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let second = word(8)?;
    let codec = Codec::from_number((second >> 32) as u32)?;
    let (present, zero) = (word(16)?, word(24)?);
    Some(Record {
        offset: word(0)?,
        stored: second as u32,
        codec,
        present,
        zero,
        sums: bytes.get(RECORD..)?,
    })
}

const UNREAD: u8 = 0;
const READING: u8 = 1;
const GOOD: u8 = 2;
const BAD: u8 = 3;

#[derive(Debug)]
pub struct Index {
    shape: Shape,
    /// Where it begins in the file.
    start: u64,
    content: Memory,
    states: Memory,
    blocks: Vec<u64>,
}

impl Index {
    pub fn new(shape: Shape, start: u64, blocks: Vec<u64>) -> std::io::Result<Index> {
        let content = Memory::new(shape.index_bytes() as usize)?;
        Ok(Index { shape, start, content, states: Memory::new(blocks.len())?, blocks })
    }

    /// The record of a cluster; `None` when its block cannot be read or is not what was written.
    pub fn record(&self, file: &File, cluster: u64) -> Option<Record<'_>> {
        if cluster >= self.shape.clusters {
            return None;
        }
        let block = cluster / self.shape.per_block;
        if !self.is_good(file, block) {
            return None;
        }
        let at = cluster as usize * self.shape.record;
        // SAFETY: the block is GOOD: nobody writes to it any more, and that was seen with Acquire.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.content.as_ptr().add(at), self.shape.record) };
        decode(bytes)
    }

    fn is_good(&self, file: &File, block: u64) -> bool {
        // SAFETY: inside of `states`, which has a byte for each block and is only used as atomics.
        let state = unsafe { AtomicU8::from_ptr(self.states.as_ptr().add(block as usize)) };
        loop {
            match state.load(Ordering::Acquire) {
                GOOD => return true,
                BAD => return false,
                READING => std::thread::yield_now(),
                _ => {
                    let mine = state.compare_exchange(
                        UNREAD,
                        READING,
                        Ordering::Acquire,
                        Ordering::Acquire,
                    );
                    if mine.is_ok() {
                        let good = self.read(file, block);
                        state.store(if good { GOOD } else { BAD }, Ordering::Release);
                        return good;
                    }
                }
            }
        }
    }

    fn read(&self, file: &File, block: u64) -> bool {
        let (at, len) = self.shape.block(block);
        // SAFETY: inside of `content`; the state READING gives this block to us alone.
        let room =
            unsafe { std::slice::from_raw_parts_mut(self.content.as_ptr().add(at as usize), len) };
        file.read_exact_at(room, self.start + at).is_ok()
            && self.blocks.get(block as usize) == Some(&xxh3_64(room))
    }
}
