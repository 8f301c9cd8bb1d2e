//! The head and the index of an image file, and what is read through them.
//!
//! A false file that is merely damaged ends at its checksums, so the first byte says which of them
//! are put right again: then every number in the file counts.

use std::fs;
use std::path::PathBuf;

use odfork_image::{Fate, Image, Room, PAGE};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

const FIXED: usize = 128;
const REGION: usize = 64;
/// A block of the index is as many records as fit this.
const BLOCK: usize = 64 << 10;
/// Pages read of each region.
const PAGES: usize = 20;

thread_local! {
    /// Where the files are, with a whole image for deltas beside them. Goes with its thread.
    static FOLDER: TempDir = make_folder();
}

fn make_folder() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    let folder = in_memory.or_else(|_| tempfile::tempdir()).expect("a temporary folder");
    fs::write(folder.path().join("base"), &include_bytes!("../../corpus/image/lz4")[1..])
        .expect("the base is written");
    folder
}

fn number(file: &[u8], at: usize, bytes: usize) -> Option<usize> {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(file.get(at..at + bytes)?);
    usize::try_from(u64::from_le_bytes(word)).ok()
}

/// The checksums of the index's blocks, at the end of the head.
fn repair_blocks(file: &mut [u8]) -> Option<()> {
    let head = number(file, 12, 4).filter(|&head| head <= file.len())?;
    let cluster = number(file, 20, 4).filter(|&pages| pages <= 64)?;
    let (index, bytes) = (number(file, 32, 8)?, number(file, 40, 8)?);
    let record = 32 + 8 * cluster;
    let content = file.get(index..index.checked_add(bytes)?)?;
    let sums: Vec<u64> = content.chunks(BLOCK / record * record).map(xxh3_64).collect();
    let table = head.checked_sub(8 * sums.len()).filter(|&at| at >= FIXED + REGION)?;
    for (at, sum) in sums.into_iter().enumerate() {
        file[table + 8 * at..][..8].copy_from_slice(&sum.to_le_bytes());
    }
    Some(())
}

fn repair_head(file: &mut [u8]) -> Option<()> {
    let head = number(file, 12, 4).filter(|head| (FIXED..=file.len()).contains(head))?;
    file[FIXED - 8..FIXED].fill(0);
    let sum = xxh3_64(&file[..head]);
    file[FIXED - 8..FIXED].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

fn path() -> PathBuf {
    FOLDER.with(|folder| folder.path().join("image"))
}

pub fn run(data: &[u8]) {
    let Some((&how, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if how & 1 != 0 {
        // Not the size of the file: most mutations change it, and nothing behind that check would
        // be seen.
        let size = file.len() as u64;
        file.iter_mut().skip(48).zip(size.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    if how & 2 != 0 {
        let _ = repair_blocks(&mut file);
    }
    if how & 4 != 0 {
        let _ = repair_head(&mut file);
    }
    fs::write(path(), &file).expect("the image is written");
    match Image::open(path()) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(image) => read(&image),
    }
}

/// Every page read is content, zeros, or lost; a region's neighbours are none of it.
fn read(image: &Image) {
    let mut room = Room::new().expect("memory for a cluster");
    let mut out = vec![0; PAGES * PAGE];
    let mut fates = [Fate::Zero; PAGES];
    for region in image.regions() {
        assert!(region.bytes > 0 && region.address.checked_add(region.bytes).is_some());
        image.read(region.address, &mut out, &mut fates, &mut room);
        let pages = usize::try_from(region.pages()).unwrap_or(usize::MAX);
        // A base may have more than its delta shows.
        let next_door = |at: u64| {
            let mut all = image.chain().flat_map(Image::regions);
            all.any(|region| (region.address..region.end()).contains(&at))
        };
        for (at, fate) in fates.iter().enumerate().skip(pages) {
            let address = region.address + (at * PAGE) as u64;
            assert!(next_door(address) || matches!(fate, Fate::Lost(_)), "{address:#x}");
        }
    }
    if image.regions().map(|region| region.pages()).sum::<u64>() <= 4096 {
        let _ = image.verify(|_, _| true);
    }
    assert_eq!(image.summary().id, image.id());
}
