//! Writing an image: whole, or what differs from a base.
//!
//! The order of a save: 1 the file under a temporary name, readable by its owner alone; 2 page by
//! page: zeros are noted, what the base has is left out, the rest is packed and written; 3 the
//! index; 4 the head; 5 flush to the disk; 6 the name. A reader sees the old file or the whole new
//! one. Nothing of an image is written over an older one in place.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{self, Region, MAX_CLUSTER};
use crate::image::Image;
use crate::image_source::ImageSource;
use crate::options::{Delta, SaveOptions, Saved};
use crate::source::Source;
use crate::temporary::Temporary;
use crate::write::Writer;
use crate::PAGE;

/// Writes the regions (in any order, not overlapping) of `source` to `path`.
///
/// # Errors
/// Regions that cannot be, a source that cannot be read, a disk that is full; then `path` is as it
/// was.
pub fn save(
    path: &Path,
    source: &mut dyn Source,
    regions: &[Region],
    options: SaveOptions,
) -> Result<Saved> {
    let mut regions = regions.to_vec();
    regions.sort_by_key(|region| region.address);
    check(&regions, &options)?;
    check_place(path, options.delta.as_ref())?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let cannot = |e| Error::io(format!("cannot write the image {}", path.display()), e);
    let temporary = Temporary::new(folder).map_err(cannot)?;
    let sync = options.sync;
    let mut writer = Writer::new(&temporary.file, path, regions, options)?;
    let saved = writer.run(source)?;
    drop(writer);
    if sync {
        temporary.file.sync_all().map_err(cannot)?;
    }
    temporary.rename(path).map_err(cannot)?;
    if sync {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)?;
    }
    Ok(saved)
}

impl Image {
    /// Writes the difference from `delta.base` to this image.
    ///
    /// # Errors
    /// As for [`save`]; a page of either that is lost.
    pub fn save_delta(&self, path: &Path, delta: Delta, options: SaveOptions) -> Result<Saved> {
        let regions: Vec<Region> = self.regions().cloned().collect();
        let SaveOptions { codec, cluster_pages, sync, progress, .. } = options;
        let delta = Some(delta);
        // Not `..options`: its progress function may live longer than the base.
        let progress = progress.map(|progress| progress as &mut dyn FnMut(u64, u64) -> bool);
        let options = SaveOptions { codec, cluster_pages, delta, sync, progress };
        save(path, &mut ImageSource::new(self)?, &regions, options)
    }

    /// Writes this image with all that its bases give as a whole one; it has the same id.
    ///
    /// # Errors
    /// As for [`save`]; a page that is lost.
    pub fn save_whole(&self, path: &Path, options: SaveOptions) -> Result<Saved> {
        let regions: Vec<Region> = self.regions().cloned().collect();
        save(path, &mut ImageSource::new(self)?, &regions, SaveOptions { delta: None, ..options })
    }
}

/// What is there already is replaced: only a regular file may be, and none that the new image
/// needs.
fn check_place(path: &Path, delta: Option<&Delta>) -> Result<()> {
    let Ok(there) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let refuse = |why: &str| Err(Error::Refused(format!("{}: {why}", path.display())));
    if there.is_symlink() {
        return refuse("it is a link, which the image would replace: name the file it leads to");
    }
    if !there.is_file() {
        return refuse("it is there and is not a regular file: name another file");
    }
    let is_there = |image: &Image| {
        let same =
            |status: std::fs::Metadata| (status.dev(), status.ino()) == (there.dev(), there.ino());
        image.file.metadata().is_ok_and(same)
    };
    if delta.is_some_and(|delta| delta.base.chain().any(is_there)) {
        return refuse("the delta needs it as a base: name another file");
    }
    Ok(())
}

fn check(regions: &[Region], options: &SaveOptions) -> Result<()> {
    let refuse = |why: String| Err(Error::Refused(why));
    let page = PAGE as u64;
    if !options.cluster_pages.is_power_of_two() || options.cluster_pages > MAX_CLUSTER {
        return refuse(format!(
            "a cluster is 1, 2, 4 ... {MAX_CLUSTER} pages, not {}",
            options.cluster_pages
        ));
    }
    if regions.is_empty() {
        return refuse("no region to save".to_owned());
    }
    for region in regions {
        let (start, bytes) = (region.address, region.bytes);
        if bytes == 0
            || bytes % page != 0
            || start % page != 0
            || start.checked_add(bytes).is_none_or(|end| end > format::TOP)
        {
            return refuse(format!(
                "the region '{}' at {start:#x} of {bytes} bytes is not whole pages of {PAGE} bytes \
                 in the memory of a program",
                region.name
            ));
        }
    }
    if regions.len() > format::MAX_REGIONS {
        return refuse(format!(
            "{} regions; an image holds {}",
            regions.len(),
            format::MAX_REGIONS
        ));
    }
    if let Some(region) = regions.iter().find(|r| r.name.len() > format::MAX_NAME || r.prot > 7) {
        return refuse(format!(
            "the region at {:#x} has a name or an access that cannot be",
            region.address
        ));
    }
    for pair in regions.windows(2) {
        if pair[0].end() > pair[1].address {
            return refuse(format!(
                "the regions at {:#x} and {:#x} overlap",
                pair[0].address, pair[1].address
            ));
        }
    }
    Ok(())
}
