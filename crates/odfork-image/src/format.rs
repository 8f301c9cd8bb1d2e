//! The head of an image file: who it is, its regions, where the index lies and what its blocks must
//! hash to.
//!
//! Owns the bytes and the rule what is a sound head; pure. docs/image-format.md describes the same
//! layout: change both. Everything is little-endian. A head is believed only as a whole: one
//! checksum covers it, and every number in it is checked against the others and the size of the
//! file before it is used.

use std::fmt;

use xxhash_rust::xxh3::{xxh3_64, Xxh3};

use crate::codec::Codec;
use crate::PAGE;

pub const MAGIC: [u8; 8] = *b"odfimage";
pub const VERSION: u32 = 1;
/// Bytes of the fixed part, and of one region.
pub const FIXED: usize = 128;
const REGION: usize = 64;
/// Most pages of a cluster: their bits fit one word.
pub const MAX_CLUSTER: u32 = 64;
pub const MAX_REGIONS: usize = 1 << 16;
pub const MAX_NAME: usize = 4096;
const MAX_HEAD: usize = 256 << 20;
/// An index block is as many records as fit this.
const BLOCK: usize = 64 << 10;
/// Fixed part of an index record; the checksums of its pages follow.
pub const RECORD: usize = 32;
/// End of user addresses with five levels of page tables.
pub const TOP: u64 = 1 << 56;

const FLAG_DELTA: u32 = 1;
const FLAG_PLACED: u32 = 2;

/// What an image holds, as a number: equal content at equal addresses gives equal ids, however it
/// is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Id(pub u128);

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// One region of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name, by which it is found again; need not be unique.
    pub name: String,
    /// Where it was, and where it is put again.
    pub address: u64,
    /// Its size: whole pages.
    pub bytes: u64,
    /// PROT_READ | PROT_WRITE | PROT_EXEC.
    pub prot: u32,
}

impl Region {
    /// The address behind its last byte.
    pub fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// Its size in pages.
    pub fn pages(&self) -> u64 {
        self.bytes / PAGE as u64
    }
}

/// What a delta is a delta of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub id: Id,
    /// Name of its file, without the folder.
    pub name: String,
}

/// A region and where its parts lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub region: Region,
    /// Offset of its first page in a placed image, else 0.
    pub data: u64,
    /// Its first record in the index.
    pub first_cluster: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub id: Id,
    pub base: Option<Base>,
    pub cluster_pages: u32,
    pub codec: Codec,
    /// Every page lies at its own place, so that a region can be mapped.
    pub placed: bool,
    pub regions: Vec<Placement>,
    pub index: u64,
    pub file_bytes: u64,
    pub stored_pages: u64,
    pub zero_pages: u64,
    /// Checksum of each block of the index.
    pub blocks: Vec<u64>,
}

/// The sizes that follow from the number of clusters and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub clusters: u64,
    pub record: usize,
    pub per_block: u64,
}

impl Shape {
    pub fn of(clusters: u64, cluster_pages: u32) -> Shape {
        let record = RECORD + 8 * cluster_pages as usize;
        Shape { clusters, record, per_block: (BLOCK / record) as u64 }
    }

    pub fn index_bytes(&self) -> u64 {
        self.clusters * self.record as u64
    }

    pub fn blocks(&self) -> u64 {
        self.clusters.div_ceil(self.per_block)
    }

    /// Where a block lies in the index, and its length.
    pub fn block(&self, number: u64) -> (u64, usize) {
        let first = number * self.per_block;
        let records = self.per_block.min(self.clusters - first);
        (first * self.record as u64, records as usize * self.record)
    }
}

pub fn clusters_of(bytes: u64, cluster_pages: u32) -> u64 {
    (bytes / PAGE as u64).div_ceil(u64::from(cluster_pages))
}

/// Bytes of a head before it is written.
pub fn head_bytes(regions: &[Region], base: Option<&Base>, blocks: u64) -> usize {
    let names: usize = regions.iter().map(|region| region.name.len()).sum();
    let names = names + base.map_or(0, |base| base.name.len());
    FIXED + regions.len() * REGION + names.next_multiple_of(8) + blocks as usize * 8
}

impl Head {
    pub fn shape(&self) -> Shape {
        let last = self.regions.last();
        let clusters = last.map_or(0, |last| {
            last.first_cluster + clusters_of(last.region.bytes, self.cluster_pages)
        });
        Shape::of(clusters, self.cluster_pages)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let base = self.base.as_ref();
        let base_name = base.map_or("", |base| &base.name);
        let flags = u32::from(base.is_some()) * FLAG_DELTA + u32::from(self.placed) * FLAG_PLACED;
        let plain: Vec<Region> = self.regions.iter().map(|p| p.region.clone()).collect();
        let total = head_bytes(&plain, base, self.blocks.len() as u64);
        let mut out = Writer(Vec::with_capacity(total));
        out.bytes(&MAGIC);
        for word in [VERSION, total as u32, PAGE as u32, self.cluster_pages, flags] {
            out.u32(word);
        }
        out.u32(self.regions.len() as u32);
        out.u64(self.index);
        out.u64(self.shape().index_bytes());
        out.u64(self.file_bytes);
        out.u64(plain.iter().map(Region::pages).sum());
        out.bytes(&self.id.0.to_le_bytes());
        out.bytes(&base.map_or(0, |base| base.id.0).to_le_bytes());
        out.u32(self.codec.number().into());
        out.u32(base_name.len() as u32);
        out.u64(self.stored_pages);
        out.u64(self.zero_pages);
        out.u64(0);
        let mut name = base_name.len() as u32;
        for Placement { region, data, first_cluster } in &self.regions {
            for word in [region.address, region.bytes, *data, *first_cluster] {
                out.u64(word);
            }
            for word in [region.prot, 0, name, region.name.len() as u32] {
                out.u32(word);
            }
            out.bytes(&[0; 16]);
            name += region.name.len() as u32;
        }
        out.bytes(base_name.as_bytes());
        plain.iter().for_each(|region| out.bytes(region.name.as_bytes()));
        out.0.resize(out.0.len().next_multiple_of(8), 0);
        self.blocks.iter().for_each(|&sum| out.u64(sum));
        debug_assert_eq!(out.0.len(), total);
        let sum = xxh3_64(&out.0);
        out.0[FIXED - 8..FIXED].copy_from_slice(&sum.to_le_bytes());
        out.0
    }

    /// How long the whole head is, from its fixed part; `file` is the size of the file.
    ///
    /// # Errors
    /// What is wrong, in words that complete "FILE: ".
    pub fn length(fixed: &[u8], file: u64) -> Result<usize, String> {
        let Some(fixed) = fixed.get(..FIXED).filter(|fixed| fixed[..8] == MAGIC) else {
            return Err(match fixed.get(..8) == Some(&MAGIC) {
                true => format!("this image is cut off after {file} bytes"),
                false => "this is no memory image (its first bytes are not 'odfimage')".to_owned(),
            });
        };
        let mut fields = Reader(&fixed[8..]);
        let version = fields.u32()?;
        if version != VERSION {
            return Err(format!(
                "this image has format version {version}; this odfork reads version {VERSION}: \
                 save it again, or use the odfork that wrote it"
            ));
        }
        let length = fields.u32()? as usize;
        if !(FIXED..=MAX_HEAD).contains(&length) {
            return Err(format!("damaged: a head of {length} bytes"));
        }
        if file < length as u64 {
            return Err(format!(
                "this image is cut off: its head alone has {length} bytes, the file {file}"
            ));
        }
        Ok(length)
    }

    /// The head in these bytes, which are as many as [`Head::length`] said.
    ///
    /// # Errors
    /// What is wrong, in words that complete "FILE: ".
    pub fn parse(bytes: &[u8], file: u64) -> Result<Head, String> {
        check_sum(bytes)?;
        // From here on only a program that makes false images can surprise us; it shall not either.
        let mut fields = Reader(&bytes[16..FIXED]);
        let page = fields.u32()?;
        if page as usize != PAGE {
            return Err(format!("made with pages of {page} bytes; this machine needs {PAGE}"));
        }
        let cluster_pages = fields.u32()?;
        let flags = fields.u32()?;
        let count = fields.u32()? as usize;
        let (index, index_bytes) = (fields.u64()?, fields.u64()?);
        let (file_bytes, pages) = (fields.u64()?, fields.u64()?);
        let (id, base_id) = (Id(fields.u128()?), Id(fields.u128()?));
        let codec = Codec::from_number(fields.u32()?).ok_or("damaged: an unknown compression")?;
        let base_name = fields.u32()? as usize;
        let (stored_pages, zero_pages) = (fields.u64()?, fields.u64()?);
        let sound = cluster_pages.is_power_of_two()
            && cluster_pages <= MAX_CLUSTER
            && flags & !(FLAG_DELTA | FLAG_PLACED) == 0
            && flags != FLAG_DELTA | FLAG_PLACED
            && (flags & FLAG_PLACED == 0 || codec == Codec::None)
            && (1..=MAX_REGIONS).contains(&count)
            && base_name <= MAX_NAME
            && bytes.len() >= FIXED + count * REGION;
        if !sound {
            return Err("damaged: its head contradicts itself".to_owned());
        }
        let (records, rest) = bytes[FIXED..].split_at(count * REGION);
        let regions: Vec<Placement> = parse_regions(records, rest)?;
        let names: usize = regions.iter().map(|p| p.region.name.len()).sum::<usize>() + base_name;
        let blocks = parse_blocks(rest, names)?;
        let base = match flags & FLAG_DELTA {
            0 => None,
            _ => Some(Base { id: base_id, name: text(rest, 0, base_name)? }),
        };
        let placed = flags & FLAG_PLACED != 0;
        let head = Head {
            id,
            base,
            cluster_pages,
            codec,
            placed,
            regions,
            index,
            file_bytes,
            stored_pages,
            zero_pages,
            blocks,
        };
        head.check(bytes.len(), index_bytes, pages)?;
        match file.checked_sub(file_bytes) {
            Some(0) => Ok(head),
            Some(more) => Err(format!("{more} bytes follow the end of this image")),
            None => Err(format!("this image is cut off: {file} of {file_bytes} bytes are there")),
        }
    }

    /// Regions in order, apart, and inside the file; sizes that follow from them.
    fn check(&self, head: usize, index_bytes: u64, pages: u64) -> Result<(), String> {
        let (mut clusters, mut end, mut total) = (0, 0, 0);
        for Placement { region, data, first_cluster } in &self.regions {
            let page = PAGE as u64;
            let sound = region.address % page == 0
                && region.bytes % page == 0
                && region.bytes > 0
                && region.address >= end
                && region.bytes <= TOP
                && region.address <= TOP - region.bytes
                && region.prot <= 7
                && *first_cluster == clusters
                && (!self.placed
                    || data % page == 0
                        && *data >= head as u64
                        && *data <= self.index
                        && self.index - data >= region.bytes);
            if !sound {
                return Err(format!("damaged: the region at {:#x} cannot be", region.address));
            }
            end = region.end();
            clusters += clusters_of(region.bytes, self.cluster_pages);
            total += region.pages();
        }
        let shape = self.shape();
        let fits = shape.index_bytes() == index_bytes
            && shape.blocks() == self.blocks.len() as u64
            && total == pages
            && self.stored_pages.checked_add(self.zero_pages).is_some_and(|known| known <= total)
            && self.index >= head as u64
            && self.index.checked_add(index_bytes) == Some(self.file_bytes);
        if fits {
            Ok(())
        } else {
            Err("damaged: its index is not as long as its regions say".to_owned())
        }
    }
}

fn check_sum(head: &[u8]) -> Result<(), String> {
    let mut zeroed = head.to_vec();
    let stored = zeroed.get_mut(FIXED - 8..FIXED).ok_or("damaged: a short head")?;
    let sum = u64::from_le_bytes(stored.try_into().unwrap_or_default());
    stored.fill(0);
    match xxh3_64(&zeroed) == sum {
        true => Ok(()),
        false => Err("damaged: the checksum of its head is wrong".to_owned()),
    }
}

fn parse_regions(records: &[u8], names: &[u8]) -> Result<Vec<Placement>, String> {
    let each = records.chunks_exact(REGION).map(|record| {
        let mut fields = Reader(record);
        let (address, bytes) = (fields.u64()?, fields.u64()?);
        let (data, first_cluster) = (fields.u64()?, fields.u64()?);
        let (prot, _) = (fields.u32()?, fields.u32()?);
        let name = text(names, fields.u32()? as usize, fields.u32()? as usize)?;
        Ok(Placement { region: Region { name, address, bytes, prot }, data, first_cluster })
    });
    each.collect()
}

/// The table behind the names, which end at a multiple of 8.
fn parse_blocks(rest: &[u8], names: usize) -> Result<Vec<u64>, String> {
    let table = rest.get(names.next_multiple_of(8)..).ok_or("damaged: names without end")?;
    let number = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
    Ok(table.chunks_exact(8).map(number).collect())
}

fn text(names: &[u8], at: usize, len: usize) -> Result<String, String> {
    let bytes = at.checked_add(len).and_then(|end| names.get(at..end)).filter(|_| len <= MAX_NAME);
    let bytes = bytes.ok_or("damaged: a name outside of its head")?;
    String::from_utf8(bytes.to_vec()).map_err(|_| "damaged: a name that is no text".to_owned())
}

/// Hashes what an image holds, page by page.
pub struct Identity(Xxh3);

impl Identity {
    pub fn of(regions: &[Region]) -> Identity {
        let mut hash = Xxh3::new();
        for region in regions {
            hash.update(&region.address.to_le_bytes());
            hash.update(&region.bytes.to_le_bytes());
            hash.update(&region.prot.to_le_bytes());
            hash.update(&(region.name.len() as u64).to_le_bytes());
            hash.update(region.name.as_bytes());
        }
        Identity(hash)
    }

    /// The next page, by its checksum; [`ZERO_SUM`] for one of zeros.
    pub fn page(&mut self, sum: u64) {
        self.0.update(&sum.to_le_bytes());
    }

    pub fn id(&self) -> Id {
        Id(self.0.digest128())
    }
}

/// Stands for a page of zeros; a page with content may have the same checksum without harm.
pub const ZERO_SUM: u64 = 0;

/// The checksum of a page with content.
pub fn sum(page: &[u8]) -> u64 {
    xxh3_64(page)
}

struct Writer(Vec<u8>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn u32(&mut self, word: u32) {
        self.bytes(&word.to_le_bytes());
    }
    fn u64(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or("damaged: a short head")?;
        self.0 = rest;
        Ok(*first)
    }
    fn u32(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }
    fn u128(&mut self) -> Result<u128, String> {
        self.take().map(u128::from_le_bytes)
    }
}

#[cfg(test)]
mod tests;
