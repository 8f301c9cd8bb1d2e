//! `odfork page run --memory any`: no daemon; the library pages all memory of its own process.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{bail, Result};
use clap::ArgMatches;

use super::{daemon, group};

/// Refuses what this way does not know; the variables that tell the library the rest.
pub fn variables(given: &ArgMatches) -> Result<[(&'static str, OsString); 4]> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let limit = daemon::limit_of(given)?;
    if text("compress") == Some("zstd") || text("store-size").is_some() {
        bail!("--memory any has no --store-size, and compresses by lz4 alone");
    }
    if given.contains_id("socket") || given.get_flag("allow-user-mode") {
        bail!("--memory any has no daemon: --socket and --allow-user-mode do not go with it");
    }
    let group = group::file(text("group"), limit)?.into();
    let store = place_of(text("store").unwrap_or("/var/tmp"), text("compress") == Some("lz4"))?;
    if !given.get_flag("allow-pinning") {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if let Some(kind) = reference_holder(&mounts) {
            bail!(
                "reads of a mounted file system of type {kind} are lost when a page leaves \
                 meanwhile: --allow-pinning, if the program does not read from there"
            );
        }
    }
    Ok([
        ("ODFORK_PAGE_MEMORY", "any".into()),
        ("ODFORK_PAGE_LIMIT", limit.to_string().into()),
        ("ODFORK_PAGE_STORE", store),
        ("ODFORK_PAGE_GROUP", group),
    ])
}

/// The library's word for a store. A folder is tried: it fails where the program would go unpaged.
fn place_of(store: &str, compresses: bool) -> Result<OsString> {
    match (store, compresses) {
        ("memory", true) => return Ok("lz4".into()),
        ("memory", false) => return Ok("memory".into()),
        (_, true) => {
            bail!("with --memory any only a store in memory is compressed: --store memory")
        }
        (_, false) => {}
    }
    if !Path::new(store).is_dir() {
        bail!("the store cannot be made in {store}: with --memory any it is a folder, or memory");
    }
    drop(odfork_pager::store::create_on_disk(Path::new(store))?);
    Ok(std::path::absolute(store)?.into())
}

/// A file system whose plain reads write to pages by their frames, without a pin that the kernel
/// would refuse to move.
fn reference_holder(mounts: &str) -> Option<&str> {
    const TYPES: [&str; 1] = ["9p"];
    mounts.lines().find_map(|line| {
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        TYPES.contains(&kind).then_some(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::reference_holder;

    #[test]
    fn a_mount_is_told_by_its_type() {
        const ROOT: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/9p rw\n";
        assert_eq!(reference_holder(ROOT), None);
        let both = format!("{ROOT}40 22 0:33 / /mnt/a rw - 9p host rw,trans=virtio\n");
        assert_eq!(reference_holder(&both), Some("9p"));
    }
}
