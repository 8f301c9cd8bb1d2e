//! Reading pages of an opened chain, each checked.
//!
//! Owns the way from an address to bytes of a file. It uses neither locks nor the heap: page faults
//! are served by it.

use std::os::unix::fs::FileExt;

use super::{Fate, Image, Lost, Room};
use crate::codec::Codec;
use crate::format::{self, Placement};
use crate::index::Record;
use crate::PAGE;

/// Where a page is in an image.
pub(super) struct Spot<'a> {
    pub(super) placement: &'a Placement,
    /// In the index.
    pub(super) cluster: u64,
    /// Number of the page in its cluster, and pages of the cluster.
    pub(super) first: u32,
    pub(super) pages: u32,
}

impl Image {
    /// Reads pages from `address` on, one for each of `fates`; content goes to `out`. Every page is
    /// checked.
    pub fn read(&self, address: u64, out: &mut [u8], fates: &mut [Fate], room: &mut Room) {
        debug_assert_eq!(out.len(), fates.len() * PAGE);
        fates.fill(Fate::Lost(Lost::Nowhere));
        for image in self.chain() {
            image.read_own(address, out, fates, room);
            if !fates.contains(&Fate::Lost(Lost::Nowhere)) {
                return;
            }
        }
    }

    fn read_own(&self, address: u64, out: &mut [u8], fates: &mut [Fate], room: &mut Room) {
        let mut page = 0;
        while page < fates.len() {
            let Some(spot) = self.locate(address + (page * PAGE) as u64) else {
                page += 1;
                continue;
            };
            let count = (spot.pages - spot.first).min((fates.len() - page) as u32) as usize;
            let out = &mut out[page * PAGE..][..count * PAGE];
            self.read_cluster(&spot, out, &mut fates[page..][..count], room);
            page += count;
        }
    }

    fn read_cluster(&self, spot: &Spot, out: &mut [u8], fates: &mut [Fate], room: &mut Room) {
        let record = self.record(spot);
        let mut wanted = 0u64;
        for (at, fate) in fates.iter_mut().enumerate() {
            if *fate != Fate::Lost(Lost::Nowhere) {
                continue;
            }
            let bit = 1 << (spot.first as usize + at);
            match &record {
                None => *fate = Fate::Lost(Lost::Index),
                Some(record) if record.zero & bit != 0 => *fate = Fate::Zero,
                Some(record) if record.present & bit != 0 => wanted |= 1 << at,
                Some(_) => {}
            }
        }
        let Some(record) = record.filter(|_| wanted != 0) else { return };
        let loaded = match record.codec {
            Codec::None => self.load_plain(spot, &record, wanted, out),
            _ => self.load_packed(spot, &record, wanted, out, room),
        };
        for at in bits(wanted) {
            let page = &out[at * PAGE..][..PAGE];
            fates[at] = match loaded {
                Ok(()) if format::sum(page) == record.sum(spot.first + at as u32) => Fate::Content,
                Ok(()) => Fate::Lost(Lost::Sum),
                Err(why) => Fate::Lost(why),
            };
        }
    }

    /// Runs of pages that lie one behind the other, by one read each.
    fn load_plain(
        &self,
        spot: &Spot,
        record: &Record,
        wanted: u64,
        out: &mut [u8],
    ) -> std::result::Result<(), Lost> {
        for (at, count) in runs(wanted) {
            let offset = self.offset(record, spot.first + at);
            let buffer = &mut out[at as usize * PAGE..][..count as usize * PAGE];
            self.file.read_exact_at(buffer, offset).map_err(|_| Lost::Unreadable)?;
        }
        Ok(())
    }

    fn load_packed(
        &self,
        spot: &Spot,
        record: &Record,
        wanted: u64,
        out: &mut [u8],
        room: &mut Room,
    ) -> std::result::Result<(), Lost> {
        let packed = &mut room.packed[..record.stored as usize];
        self.file.read_exact_at(packed, record.offset).map_err(|_| Lost::Unreadable)?;
        let cluster = &mut room.cluster[..record.present.count_ones() as usize * PAGE];
        if !room.unpacker.unpack(record.codec, packed, cluster) {
            return Err(Lost::Packed);
        }
        for at in bits(wanted) {
            let from = &cluster[rank(record.present, spot.first + at as u32) * PAGE..][..PAGE];
            out[at * PAGE..][..PAGE].copy_from_slice(from);
        }
        Ok(())
    }

    /// Where an unpacked page lies in the file.
    pub(crate) fn offset(&self, record: &Record, page: u32) -> u64 {
        let ahead = if self.head.placed { page as usize } else { rank(record.present, page) };
        record.offset + (ahead * PAGE) as u64
    }

    pub(super) fn locate(&self, address: u64) -> Option<Spot<'_>> {
        let after = self.head.regions.partition_point(|p| p.region.address <= address);
        let placement = self.head.regions.get(after.checked_sub(1)?)?;
        let page = (address - placement.region.address) / PAGE as u64;
        if page >= placement.region.pages() {
            return None;
        }
        Some(self.spot(placement, page))
    }

    pub(super) fn spot<'a>(&self, placement: &'a Placement, page: u64) -> Spot<'a> {
        let cluster_pages = u64::from(self.head.cluster_pages);
        let pages =
            (placement.region.pages() - page / cluster_pages * cluster_pages).min(cluster_pages);
        Spot {
            placement,
            cluster: placement.first_cluster + page / cluster_pages,
            first: (page % cluster_pages) as u32,
            pages: pages as u32,
        }
    }

    /// The record, if it is one that can be: a forged file must not make us read or write
    /// elsewhere.
    pub(super) fn record(&self, spot: &Spot) -> Option<Record<'_>> {
        let record = self.index.record(&self.file, spot.cluster)?;
        let all = u64::MAX >> (64 - spot.pages);
        let known = record.present | record.zero;
        let count = u64::from(record.present.count_ones()) * PAGE as u64;
        let plain = record.codec == Codec::None;
        let place = match self.head.placed {
            true => {
                let within = spot.cluster - spot.placement.first_cluster;
                plain
                    && record.offset
                        == spot.placement.data
                            + within * u64::from(self.head.cluster_pages) * PAGE as u64
            }
            false => plain || record.codec == self.head.codec,
        };
        let sound = record.present & record.zero == 0
            && known & !all == 0
            && (known == all || self.base.is_some())
            && place
            && if plain {
                u64::from(record.stored) == count
            } else {
                u64::from(record.stored) < count
            }
            && record.offset <= self.head.index
            && self.head.index - record.offset >= u64::from(record.stored);
        sound.then_some(record)
    }
}

/// How many present pages come before this one.
fn rank(present: u64, page: u32) -> usize {
    (present & !(u64::MAX << page)).count_ones() as usize
}

fn bits(word: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| word >> bit & 1 != 0)
}

/// Runs of ones: where they begin, how long they are.
pub(crate) fn runs(mut word: u64) -> impl Iterator<Item = (u32, u32)> {
    let mut shifted = 0;
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let skip = word.trailing_zeros();
        word >>= skip;
        let count = word.trailing_ones();
        let start = shifted + skip;
        word = word.checked_shr(count).unwrap_or(0);
        shifted = start + count;
        Some((start, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_runs_and_ranks() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(runs(0b1110_0110).collect::<Vec<_>>(), [(1, 2), (5, 3)]);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs(u64::MAX << 60).collect::<Vec<_>>(), [(60, 4)]);
        assert_eq!(runs(0).count(), 0);
        assert_eq!((rank(0b1011, 0), rank(0b1011, 3), rank(u64::MAX, 63)), (0, 2, 63));
    }
}
