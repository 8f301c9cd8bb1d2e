//! The writer of a save: cluster by cluster, then index and head.
//!
//! Owns which pages are stored, which are zeros and which are the base's, and where stored pages
//! go. Naming and flushing the file is `save`'s.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{Codec, Packer};
use crate::error::{Error, Result};
use crate::format::{
    self, clusters_of, head_bytes, Base, Head, Id, Identity, Placement, Region, Shape, ZERO_SUM,
};
use crate::image::{runs, Fate, Image, Room};
use crate::index::Record;
use crate::options::{SaveOptions, Saved};
use crate::source::{Known, Source};
use crate::PAGE;

/// Large pages of memory and of the file fall together when the offset equals the address in these
/// bits.
const ALIGN: u64 = 2 << 20;

pub struct Writer<'f, 'a> {
    file: &'f File,
    path: &'f Path,
    options: SaveOptions<'a>,
    data: BufWriter<&'f File>,
    head: Head,
    index: Vec<u8>,
    identity: Identity,
    packer: Packer,
    /// Where the next bytes go.
    end: u64,
    base: Option<(&'a Image, Room)>,
    saved: Saved,
}

/// One cluster while it is looked at.
struct Cluster {
    content: Vec<u8>,
    known: Vec<Known>,
    /// The base's.
    old: Vec<Known>,
    old_content: Vec<u8>,
    old_fates: Vec<Fate>,
    packed: Vec<u8>,
}

/// The regions in their order, with the numbers of their clusters.
fn without_places(regions: Vec<Region>, cluster_pages: u32) -> Vec<Placement> {
    let mut first_cluster = 0;
    let place = |region: Region| {
        let first = first_cluster;
        first_cluster += clusters_of(region.bytes, cluster_pages);
        Placement { region, data: 0, first_cluster: first }
    };
    regions.into_iter().map(place).collect()
}

/// Gives each region a place in the file from `end` on; returns the end of the last one. A large
/// one lies as its address does, so that the kernel can map huge pages.
fn give_places(regions: &mut [Placement], mut end: u64) -> u64 {
    for placement in regions {
        let Region { address, bytes, .. } = placement.region;
        let skew = if bytes >= ALIGN { address.wrapping_sub(end) % ALIGN } else { 0 };
        placement.data = end + skew;
        end = placement.data + bytes;
    }
    end
}

impl<'f, 'a> Writer<'f, 'a> {
    pub fn new(
        file: &'f File,
        path: &'f Path,
        regions: Vec<Region>,
        options: SaveOptions<'a>,
    ) -> Result<Writer<'f, 'a>> {
        let base = match &options.delta {
            None => None,
            Some(delta) => Some(Base { id: delta.base.id(), name: file_name(delta.base.path())? }),
        };
        let placed = base.is_none() && options.codec == Codec::None;
        let clusters = regions.iter().map(|r| clusters_of(r.bytes, options.cluster_pages)).sum();
        let shape = Shape::of(clusters, options.cluster_pages);
        let head = head_bytes(&regions, base.as_ref(), shape.blocks()) as u64;
        let mut end = head.next_multiple_of(PAGE as u64);
        let identity = Identity::of(&regions);
        let mut regions = without_places(regions, options.cluster_pages);
        if placed {
            end = give_places(&mut regions, end);
        }
        let head = Head {
            id: Id::default(),
            base,
            cluster_pages: options.cluster_pages,
            codec: options.codec,
            placed,
            regions,
            index: 0,
            file_bytes: 0,
            stored_pages: 0,
            zero_pages: 0,
            blocks: Vec::new(),
        };
        let pages = head.regions.iter().map(|p| p.region.pages()).sum();
        let base = match &options.delta {
            Some(delta) => Some((delta.base, Room::new()?)),
            None => None,
        };
        Ok(Writer {
            file,
            path,
            data: BufWriter::with_capacity(1 << 20, file),
            index: room_for(shape.index_bytes())?,
            identity,
            packer: Packer::new(options.codec),
            end,
            base,
            saved: Saved { pages, ..Saved::default() },
            options,
            head,
        })
    }

    fn cannot(&self, error: std::io::Error) -> Error {
        Error::io(format!("cannot write the image {}", self.path.display()), error)
    }

    pub fn run(&mut self, source: &mut dyn Source) -> Result<Saved> {
        let pages = self.options.cluster_pages as usize;
        let mut cluster = Cluster {
            content: vec![0; pages * PAGE],
            known: vec![Known::Nothing; pages],
            old: vec![Known::Nothing; pages],
            old_content: vec![0; pages * PAGE],
            old_fates: vec![Fate::Zero; pages],
            packed: Vec::with_capacity(pages * PAGE),
        };
        if !self.head.placed {
            self.data.seek(SeekFrom::Start(self.end)).map_err(|e| self.cannot(e))?;
        }
        let mut done = 0;
        for placement in self.head.regions.clone() {
            let region = &placement.region;
            for address in (region.address..region.end()).step_by(pages * PAGE) {
                let count = (((region.end() - address) / PAGE as u64) as usize).min(pages);
                let place = placement.data + (address - region.address);
                self.cluster(source, address, count, place, &mut cluster)?;
                done += count as u64;
                let total = self.saved.pages;
                let step = done % 4096 < count as u64 || done == total;
                if let Some(progress) = self.options.progress.as_mut().filter(|_| step) {
                    if !progress(done, total) {
                        return Err(Error::Interrupted);
                    }
                }
            }
        }
        self.finish()
    }

    fn cluster(
        &mut self,
        source: &mut dyn Source,
        address: u64,
        count: usize,
        place: u64,
        room: &mut Cluster,
    ) -> Result<()> {
        let trusted = self.options.delta.is_some_and(|delta| delta.trust_checksums);
        self.read_pages(source, (address, count), trusted, room)?;
        let compare = !trusted && self.read_base(address, count, room);
        let mut sums = vec![0; self.options.cluster_pages as usize];
        let (present, zero) = self.decide(count, compare, room, &mut sums);
        self.saved.stored_pages += u64::from(present.count_ones());
        self.saved.zero_pages += u64::from(zero.count_ones());
        let content = &room.content[..count * PAGE];
        let (offset, stored, codec) = match self.head.placed {
            true => self.put_placed(content, present, place)?,
            false => self.put_packed(content, present, &mut room.packed)?,
        };
        Record::encode(offset, stored, codec, (present, zero), &sums, &mut self.index);
        Ok(())
    }

    /// What is known of the pages, now and in the base; the content where that is not enough.
    fn read_pages(
        &self,
        source: &mut dyn Source,
        (address, count): (u64, usize),
        trusted: bool,
        room: &mut Cluster,
    ) -> Result<()> {
        let known = &mut room.known[..count];
        let old = &mut room.old[..count];
        source.known(address, known)?;
        old.fill(Known::Nothing);
        if let Some(delta) = &self.options.delta {
            delta.base.known(address, old)?;
        }
        let content = &mut room.content[..count * PAGE];
        let need = |(new, old): (&Known, &Known)| match new {
            Known::Zero => false,
            Known::Sum(_) => !(trusted && new == old),
            Known::Nothing => true,
        };
        if known.iter().zip(old.iter()).any(need) {
            source.read(address, content)?;
        }
        for (at, known) in known.iter_mut().enumerate() {
            let page = &content[at * PAGE..][..PAGE];
            match known {
                Known::Nothing if is_zero(page) => *known = Known::Zero,
                Known::Nothing => *known = Known::Sum(format::sum(page)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the pages of the base when one of them may be equal; whether it did.
    fn read_base(&mut self, address: u64, count: usize, room: &mut Cluster) -> bool {
        let alike = |(new, old): (&Known, &Known)| matches!(new, Known::Sum(_)) && new == old;
        let compare = room.known[..count].iter().zip(&room.old[..count]).any(alike);
        if let Some((base, reading)) = self.base.as_mut().filter(|_| compare) {
            let content = &mut room.old_content[..count * PAGE];
            base.read(address, content, &mut room.old_fates[..count], reading);
        }
        compare
    }

    /// The pages that are stored and those that are zeros, as bits; the others are as in the base.
    fn decide(
        &mut self,
        count: usize,
        compare: bool,
        room: &Cluster,
        sums: &mut [u64],
    ) -> (u64, u64) {
        let Cluster { content, old, old_content, old_fates: fates, .. } = room;
        let (mut present, mut zero) = (0u64, 0u64);
        for (at, &new) in room.known[..count].iter().enumerate() {
            let bytes = at * PAGE..(at + 1) * PAGE;
            let (sum, same) = match new {
                // What the base has lost is stored anew.
                Known::Sum(sum) if compare => {
                    let whole = fates[at] == Fate::Content && new == old[at];
                    (sum, whole && old_content[bytes.clone()] == content[bytes])
                }
                Known::Sum(sum) => (sum, new == old[at]),
                _ => (ZERO_SUM, new == old[at]),
            };
            self.identity.page(sum);
            match new {
                _ if same => self.saved.base_pages += 1,
                Known::Sum(_) => {
                    present |= 1 << at;
                    sums[at] = sum;
                }
                _ => zero |= 1 << at,
            }
        }
        (present, zero)
    }

    /// Each page to its own place; zeros stay holes.
    fn put_placed(
        &mut self,
        content: &[u8],
        present: u64,
        place: u64,
    ) -> Result<(u64, u32, Codec)> {
        for (at, count) in runs(present) {
            let (from, bytes) = (at as usize * PAGE, count as usize * PAGE);
            let written = self.file.write_all_at(&content[from..][..bytes], place + from as u64);
            written.map_err(|e| self.cannot(e))?;
        }
        Ok((place, present.count_ones() * PAGE as u32, Codec::None))
    }

    /// The pages one behind the other, packed if that pays.
    fn put_packed(
        &mut self,
        content: &[u8],
        present: u64,
        room: &mut Vec<u8>,
    ) -> Result<(u64, u32, Codec)> {
        if present == 0 {
            return Ok((self.end, 0, Codec::None));
        }
        room.clear();
        for (at, count) in runs(present) {
            room.extend_from_slice(&content[at as usize * PAGE..][..count as usize * PAGE]);
        }
        let (bytes, codec) = match self.packer.pack(room) {
            Some(packed) => (packed, self.options.codec),
            None => (&room[..], Codec::None),
        };
        let written = self.data.write_all(bytes);
        let (offset, stored) = (self.end, bytes.len() as u32);
        written.map_err(|e| self.cannot(e))?;
        self.end += u64::from(stored);
        Ok((offset, stored, codec))
    }

    fn finish(&mut self) -> Result<Saved> {
        self.data.flush().map_err(|e| self.cannot(e))?;
        let head = &mut self.head;
        head.index = self.end;
        head.id = self.identity.id();
        head.file_bytes = self.end + self.index.len() as u64;
        head.stored_pages = self.saved.stored_pages;
        head.zero_pages = self.saved.zero_pages;
        let shape = head.shape();
        head.blocks = (0..shape.blocks())
            .map(|number| {
                let (at, len) = shape.block(number);
                xxh3_64(&self.index[at as usize..][..len])
            })
            .collect();
        let head = head.to_bytes();
        let written = self.file.write_all_at(&self.index, self.end);
        let written = written.and_then(|()| self.file.write_all_at(&head, 0));
        written.map_err(|e| self.cannot(e))?;
        self.saved.id = self.head.id;
        self.saved.file_bytes = self.head.file_bytes;
        Ok(self.saved)
    }
}

/// Of sizes that the caller names: no memory is an answer.
fn room_for(bytes: u64) -> Result<Vec<u8>> {
    let mut index = Vec::new();
    let wanted =
        usize::try_from(bytes).ok().filter(|&bytes| index.try_reserve_exact(bytes).is_ok());
    wanted.map(|_| ()).ok_or_else(|| {
        let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
        Error::io(format!("cannot get {bytes} bytes of memory for the index of the image"), source)
    })?;
    Ok(index)
}

fn file_name(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        Error::Refused(format!("the file name of the base {} is no text", path.display()))
    })
}

fn is_zero(page: &[u8]) -> bool {
    // SAFETY: any eight bytes are a number.
    let (before, words, after) = unsafe { page.align_to::<u64>() };
    before.iter().chain(after).all(|&byte| byte == 0)
        && words.chunks(32).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}
