//! The mapped form: the file itself in memory, privately; of a delta, its pages over those of the
//! base.
//!
//! Owns which part of which file goes where. Pages come by the kernel's own page faults and can be
//! taken away again by it; nothing is checked. A delta of many scattered pages would need more
//! mappings than a process may have, so there is a limit.

use std::fs::File;

use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::format::Region;
use crate::image::{runs, Image};
use crate::memory::{self, At, What};
use crate::PAGE;

/// An eighth of the usual vm.max_map_count.
const MOST: usize = 8192;

/// A piece of a region: address at which it was saved, bytes, and the file and offset it comes
/// from; else zeros.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    address: u64,
    bytes: u64,
    from: Option<(&'a File, u64)>,
}

/// How a region is put together.
#[derive(Debug)]
pub struct Overlay<'a> {
    pieces: Vec<Piece<'a>>,
}

/// Why an image cannot be mapped, or `None`.
pub fn obstacle(image: &Image) -> Option<String> {
    let bad = image.chain().find(|image| image.head.codec != Codec::None)?;
    Some(format!("{} is compressed ({})", bad.path().display(), bad.head.codec.name()))
}

impl<'a> Overlay<'a> {
    /// `others`: the plans made for other regions of the same call.
    ///
    /// # Errors
    /// The index is damaged, a page is in no image, or there would be too many pieces.
    pub fn plan(image: &'a Image, region: &Region, others: &[Overlay<'a>]) -> Result<Overlay<'a>> {
        // A region is a mapping in any form.
        let more = others.iter().map(|other| other.pieces.len().saturating_sub(1)).sum();
        let most = MOST.saturating_sub(more);
        let chain: Vec<&Image> = image.chain().collect();
        let mut pieces = Vec::new();
        for image in chain.into_iter().rev() {
            for placement in &image.head.regions {
                let start = placement.region.address.max(region.address);
                let end = placement.region.end().min(region.end());
                if start >= end {
                } else if image.head.placed {
                    let offset = placement.data + (start - placement.region.address);
                    pieces.push(Piece {
                        address: start,
                        bytes: end - start,
                        from: Some((&*image.file, offset)),
                    });
                } else {
                    let first = pieces.len();
                    image.clusters(placement, |page, record| {
                        let cluster = placement.region.address + page * PAGE as u64;
                        let mut add = |run: (u32, u32), from| {
                            let address = cluster + u64::from(run.0) * PAGE as u64;
                            let stop = (address + u64::from(run.1) * PAGE as u64).min(end);
                            if stop > address.max(start) {
                                push(&mut pieces, first, address, stop, start, from);
                            }
                        };
                        for run in runs(record.present) {
                            add(run, Some((&*image.file, image.offset(record, run.0))));
                        }
                        for run in runs(record.zero) {
                            add(run, None);
                        }
                    })?;
                }
                if pieces.len() > most {
                    return Err(Error::Refused(format!(
                        "{} changes so many scattered pages that mapping it would take more than \
                         {MOST} mappings",
                        image.path().display()
                    )));
                }
            }
        }
        match uncovered(&pieces, region) {
            None => Ok(Overlay { pieces }),
            Some(address) => Err(Error::Refused(format!(
                "{}: no image of the chain has the page of address {address:#x}",
                image.path().display()
            ))),
        }
    }

    /// Maps the pieces into memory of our own at `address`.
    ///
    /// # Safety
    /// The whole region at `address` is a mapping that nobody else refers to.
    pub unsafe fn put(&self, region: &Region, address: u64) -> std::io::Result<()> {
        for piece in &self.pieces {
            let at = At::Over(address + (piece.address - region.address));
            let what =
                piece.from.map_or(What::Anonymous, |(file, offset)| What::Private(file, offset));
            // SAFETY: inside of the region, says `plan`; passed on to the caller.
            unsafe { memory::map(at, piece.bytes as usize, region.prot, what)? };
        }
        Ok(())
    }
}

/// The first address of the region that lies in no piece: anonymous memory there would be zeros
/// that nobody saved.
fn uncovered(pieces: &[Piece], region: &Region) -> Option<u64> {
    let mut ranges: Vec<_> = pieces.iter().map(|p| (p.address, p.address + p.bytes)).collect();
    ranges.sort_unstable();
    let mut done = region.address;
    for (start, end) in ranges {
        if start > done {
            break;
        }
        done = done.max(end);
    }
    (done < region.end()).then_some(done)
}

/// Adds a piece cut to `start`, or lengthens the last one of this delta.
fn push<'a>(
    pieces: &mut Vec<Piece<'a>>,
    first: usize,
    address: u64,
    stop: u64,
    start: u64,
    from: Option<(&'a File, u64)>,
) {
    let cut = start.saturating_sub(address);
    let (address, from) = (address + cut, from.map(|(file, offset)| (file, offset + cut)));
    let bytes = stop - address;
    if let Some(last) = pieces[first..].last_mut() {
        let follows = match (last.from, from) {
            (Some((_, before)), Some((_, offset))) => before + last.bytes == offset,
            (None, None) => true,
            _ => false,
        };
        if follows && last.address + last.bytes == address {
            last.bytes += bytes;
            return;
        }
    }
    pieces.push(Piece { address, bytes, from });
}
