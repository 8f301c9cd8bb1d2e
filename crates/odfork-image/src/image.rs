//! An opened image with its bases: which page is where, and reading pages, checked.
//!
//! Owns the chain from a delta to the whole image below it, and the rule which of them has a page.
//! Reading uses neither locks nor the heap once a [`Room`] is there: page faults are served by it.
//! It does not put anything into the program's memory (`map`).

mod read;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::{Codec, Unpacker};
use crate::error::{Error, Result};
use crate::format::{self, Head, Id, Identity, Placement, Region, FIXED, MAX_CLUSTER};
use crate::index::{Index, Record};
use crate::memory::Memory;
use crate::source::Known;
use crate::PAGE;
pub(crate) use read::runs;

/// Deltas on deltas, at most: each costs a descriptor and a look per page.
const MAX_CHAIN: usize = 64;
const CLUSTER_BYTES: usize = MAX_CLUSTER as usize * PAGE;

/// What became of a page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its content is in the buffer.
    Content,
    /// It is all zeros; nothing was written to the buffer.
    Zero,
    /// It cannot be had; the buffer holds nothing of it.
    Lost(Lost),
}

/// Why a page does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// No image of the chain has it.
    Nowhere,
    /// Its part of the index cannot be read, or is not what was written.
    Index,
    /// The file cannot be read there.
    Unreadable,
    /// Its bytes cannot be unpacked.
    Packed,
    /// It is not what was saved.
    Sum,
}

impl Lost {
    const ALL: [Lost; 5] = [Lost::Nowhere, Lost::Index, Lost::Unreadable, Lost::Packed, Lost::Sum];

    /// From 1 on, to be kept in an atomic.
    pub(crate) fn number(self) -> u32 {
        self as u32 + 1
    }

    pub(crate) fn from_number(number: u32) -> Option<Lost> {
        Lost::ALL.into_iter().find(|lost| lost.number() == number)
    }

    /// The same in words that complete "the page is lost: ".
    pub fn words(self) -> &'static str {
        match self {
            Lost::Nowhere => "no image of the chain has it",
            Lost::Index => "its part of the index is damaged",
            Lost::Unreadable => "the file cannot be read there",
            Lost::Packed => "its bytes cannot be unpacked",
            Lost::Sum => "its checksum is wrong",
        }
    }
}

/// Buffers for reading.
pub struct Room {
    packed: Memory,
    cluster: Memory,
    unpacker: Unpacker,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str("Room")
    }
}

impl Room {
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Room> {
        let memory =
            || Memory::new(CLUSTER_BYTES).map_err(|e| Error::io("memory for a cluster", e));
        Ok(Room { packed: memory()?, cluster: memory()?, unpacker: Unpacker::new() })
    }
}

/// Figures of one image file, without its bases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it holds, bases included.
    pub id: Id,
    /// Id and file name of the base of a delta.
    pub base: Option<(Id, String)>,
    /// How its clusters are packed.
    pub codec: Codec,
    /// Pages of a cluster.
    pub cluster_pages: u32,
    /// Its regions can be mapped as they are.
    pub placed: bool,
    /// Pages of all regions.
    pub pages: u64,
    /// Of these, pages whose content is in this file.
    pub stored_pages: u64,
    /// Of these, pages of zeros. The rest is in its bases.
    pub zero_pages: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// What the file takes on its disk, holes left out.
    pub disk_bytes: u64,
}

/// An image file whose head has been read, with its bases. A clone shares the descriptors.
#[derive(Clone, Debug)]
pub struct Image {
    path: PathBuf,
    pub(crate) file: Arc<File>,
    pub(crate) head: Arc<Head>,
    index: Arc<Index>,
    base: Option<Arc<Image>>,
}

impl Image {
    /// Opens an image; the bases of a delta are looked for beside it.
    ///
    /// # Errors
    /// The file cannot be read, is no whole sound image, or its base is missing or another. Only
    /// the heads are read: damage further in is found when a page is needed, or by
    /// [`Image::verify`].
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        Image::open_with(path, &[])
    }

    /// As [`Image::open`], with files that may be bases, looked at before the folder is.
    ///
    /// # Errors
    /// As for [`Image::open`].
    pub fn open_with(path: impl AsRef<Path>, bases: &[PathBuf]) -> Result<Image> {
        let mut newest = Image::open_alone(path.as_ref())?;
        let mut chain = Vec::new();
        let mut wanted = newest.head.base.clone();
        while let Some(base) = wanted {
            let last: &Image = chain.last().unwrap_or(&newest);
            if chain.len() == MAX_CHAIN {
                let why = format!(
                    "more than {MAX_CHAIN} deltas on each other: make a whole image \
                     with `odfork image apply`"
                );
                return Err(Error::Refused(format!("{}: {why}", newest.path.display())));
            }
            let found = find_base(last, &base, bases)?;
            wanted = found.head.base.clone();
            chain.push(found);
        }
        let base = chain.into_iter().rev().fold(None, |below, mut image: Image| {
            image.base = below;
            Some(Arc::new(image))
        });
        newest.base = base;
        Ok(newest)
    }

    fn open_alone(path: &Path) -> Result<Image> {
        let path = path.to_owned();
        let cannot = |e| Error::io(format!("cannot read the image {}", path.display()), e);
        let malformed = |why| Error::Malformed { path: path.clone(), why };
        // A pipe that nobody writes to would be waited for, and no signal ends std's open.
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(&path).map_err(cannot)?;
        let status = file.metadata().map_err(cannot)?;
        if !status.is_file() {
            return Err(malformed("an image is a regular file".to_owned()));
        }
        let size = status.len();
        let mut fixed = [0; FIXED];
        let there = read_up_to(&file, &mut fixed).map_err(cannot)?;
        let length = Head::length(&fixed[..there], size).map_err(malformed)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).map_err(cannot)?;
        let mut head = Head::parse(&bytes, size).map_err(malformed)?;
        let blocks = std::mem::take(&mut head.blocks);
        let index = Index::new(head.shape(), head.index, blocks).map_err(cannot)?;
        let (file, head, index) = (Arc::new(file), Arc::new(head), Arc::new(index));
        Ok(Image { path, file, head, index, base: None })
    }

    /// The same with descriptors of its own.
    pub(crate) fn duplicate(&self) -> std::io::Result<Image> {
        let base = match &self.base {
            Some(base) => Some(Arc::new(base.duplicate()?)),
            None => None,
        };
        Ok(Image { file: Arc::new(self.file.try_clone()?), base, ..self.clone() })
    }

    /// The file it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds, as a number.
    pub fn id(&self) -> Id {
        self.head.id
    }

    /// Its regions at the addresses where they were saved, in ascending order.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = &Region> {
        self.head.regions.iter().map(|placement| &placement.region)
    }

    /// The image below a delta.
    pub fn base(&self) -> Option<&Image> {
        self.base.as_deref()
    }

    /// This image and those below it, newest first.
    pub fn chain(&self) -> impl Iterator<Item = &Image> {
        std::iter::successors(Some(self), |image| image.base())
    }

    /// Its figures.
    pub fn summary(&self) -> Summary {
        let head = &self.head;
        Summary {
            id: head.id,
            base: head.base.as_ref().map(|base| (base.id, base.name.clone())),
            codec: head.codec,
            cluster_pages: head.cluster_pages,
            placed: head.placed,
            pages: head.regions.iter().map(|p| p.region.pages()).sum(),
            stored_pages: head.stored_pages,
            zero_pages: head.zero_pages,
            file_bytes: head.file_bytes,
            disk_bytes: self.file.metadata().map_or(0, |status| status.blocks() * 512),
        }
    }

    /// Calls `each` with every cluster of a region: its first page's number in the region, its
    /// record.
    pub(crate) fn clusters(
        &self,
        placement: &Placement,
        mut each: impl FnMut(u64, &Record),
    ) -> Result<()> {
        let step = u64::from(self.head.cluster_pages);
        for page in (0..placement.region.pages()).step_by(step as usize) {
            let record = self.record(&self.spot(placement, page));
            let address = placement.region.address + page * PAGE as u64;
            each(page, &record.ok_or_else(|| self.lost(address, Lost::Index))?);
        }
        Ok(())
    }

    /// What is known of pages without reading them.
    ///
    /// # Errors
    /// A part of the index is damaged.
    pub fn known(&self, address: u64, out: &mut [Known]) -> Result<()> {
        out.fill(Known::Nothing);
        for image in self.chain() {
            let mut page = 0;
            while page < out.len() {
                let at = address + (page * PAGE) as u64;
                let Some(spot) = image.locate(at) else {
                    page += 1;
                    continue;
                };
                let record = image.record(&spot).ok_or_else(|| image.lost(at, Lost::Index))?;
                let count = (spot.pages - spot.first).min((out.len() - page) as u32);
                for bit in spot.first..spot.first + count {
                    let entry = &mut out[page + (bit - spot.first) as usize];
                    if *entry != Known::Nothing {
                        continue;
                    } else if record.zero >> bit & 1 != 0 {
                        *entry = Known::Zero;
                    } else if record.present >> bit & 1 != 0 {
                        *entry = Known::Sum(record.sum(bit));
                    }
                }
                page += count as usize;
            }
        }
        Ok(())
    }

    /// Reads every page and compares ids: whether all of the content is there and right. `progress`
    /// is called with pages done and pages in all, and returns false to stop.
    ///
    /// # Errors
    /// The first page that is lost, or that the content as a whole is not what the head says.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64) -> bool) -> Result<()> {
        const STEP: usize = 256;
        let regions: Vec<Region> = self.regions().cloned().collect();
        let total: u64 = regions.iter().map(Region::pages).sum();
        let mut identity = Identity::of(&regions);
        let (mut room, mut done) = (Room::new()?, 0);
        let (mut out, mut fates) = (vec![0; STEP * PAGE], vec![Fate::Zero; STEP]);
        for region in &regions {
            for address in (region.address..region.end()).step_by(STEP * PAGE) {
                let count = (((region.end() - address) / PAGE as u64) as usize).min(STEP);
                self.read(address, &mut out[..count * PAGE], &mut fates[..count], &mut room);
                for (at, fate) in fates[..count].iter().enumerate() {
                    match fate {
                        Fate::Zero => identity.page(format::ZERO_SUM),
                        Fate::Content => identity.page(format::sum(&out[at * PAGE..][..PAGE])),
                        Fate::Lost(why) => {
                            return Err(self.lost(address + (at * PAGE) as u64, *why))
                        }
                    }
                }
                done += count as u64;
                if !progress(done, total) {
                    return Err(Error::Interrupted);
                }
            }
        }
        if identity.id() == self.head.id {
            return Ok(());
        }
        let why =
            "every page is sound, but together they are not the image its id names".to_owned();
        Err(Error::Malformed { path: self.path.clone(), why })
    }

    fn lost(&self, address: u64, why: Lost) -> Error {
        Error::Lost { path: self.path.clone(), address, why: why.words().to_owned() }
    }
}

/// One of the files given that has the id, else the one of this name in the folder of the delta.
fn find_base(delta: &Image, base: &format::Base, given: &[PathBuf]) -> Result<Image> {
    let mut wrong = None;
    for path in given {
        let found = Image::open_alone(path)?;
        if found.head.id == base.id {
            return Ok(found);
        }
        wrong.get_or_insert(found);
    }
    // A name from a file must not lead out of the folder: opening alone does things to a device.
    let plain = Path::new(&base.name).file_name().is_some_and(|name| name == base.name.as_str());
    let beside = delta.path.parent().unwrap_or(Path::new("")).join(&base.name);
    let missing =
        || Error::NoBase { delta: delta.path.clone(), name: base.name.clone(), id: base.id };
    let found = match plain.then(|| Image::open_alone(&beside)) {
        Some(Ok(found)) => found,
        Some(Err(error)) if !is_missing(&error) => return Err(error),
        _ => wrong.ok_or_else(missing)?,
    };
    if found.head.id == base.id {
        return Ok(found);
    }
    let (needed, other) = (base.id, found.head.id);
    Err(Error::WrongBase { delta: delta.path.clone(), needed, base: found.path, found: other })
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

fn read_up_to(file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
