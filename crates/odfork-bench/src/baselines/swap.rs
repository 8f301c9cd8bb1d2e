//! Swap for an experiment: on a file, or on compressed memory (zram, lz4, one page at a time as
//! is usual there).

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::journal::{Cleanup, Journal, Undo};
use super::{read, write};

const PAGE: u64 = 4096;
const MB: u64 = 1 << 20;
const CLUSTER: &str = "/proc/sys/vm/page-cluster";
const CONTROL: &str = "/sys/class/zram-control";
/// SWAP_FLAG_PREFER with the highest priority: before all other swap of the machine.
const FIRST: i32 = 0x8000 | 0x7fff;

/// Swap in use; dropping it takes it out of use and removes what it lay on, in this order.
pub type Swap = Vec<Cleanup>;

/// Why swap on a file cannot be had, as far as rights go.
pub fn refusal() -> Option<String> {
    (!rustix::process::geteuid().is_root()).then(|| "swapon needs root".into())
}

/// Why swap on compressed memory cannot be had.
pub fn zram_refusal() -> Option<String> {
    if refusal().is_some() {
        return Some("zram needs root".into());
    }
    let exists = Path::new(CONTROL).exists() || free_device().is_some();
    (!exists).then(|| "this kernel has no zram device; modprobe zram".into())
}

/// A swap file of `bytes` in `folder`, written in full so that it has no holes.
pub fn on_file(journal: &Journal, folder: &Path, bytes: u64) -> Result<Swap, String> {
    let path = folder.join(format!("odfork-swap-{}", std::process::id()));
    let file = journal.record(Undo::RemoveFile(path.clone()));
    let failed = |error: Error| {
        format!(
            "cannot make a swap file of {} MB in {}: {error}; name another folder with --store-dir",
            bytes >> 20,
            folder.display()
        )
    };
    let blocks = bytes.div_ceil(MB);
    let make = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let zeros = vec![0u8; MB as usize];
        (0..blocks).try_for_each(|_| file.write_all(&zeros))?;
        write_header(&mut file, blocks * MB)
    };
    make().map_err(failed)?;
    Ok(vec![swap_on(journal, &path)?, file])
}

/// Swap on a zram device of `bytes` (before compression) with lz4.
pub fn on_zram(journal: &Journal, bytes: u64) -> Result<Swap, String> {
    let (id, device) = zram_device(journal)?;
    let sys = PathBuf::from(format!("/sys/block/zram{id}"));
    write(&sys.join("comp_algorithm"), "lz4").map_err(|_| {
        let has = read(&sys.join("comp_algorithm"));
        format!("zram of this kernel has no lz4 (it has {has})")
    })?;
    write(&sys.join("disksize"), &bytes.to_string())?;
    let path = PathBuf::from(format!("/dev/zram{id}"));
    wait_for(&path)?;
    let opened = OpenOptions::new().write(true).open(&path);
    opened
        .and_then(|mut file| write_header(&mut file, bytes))
        .map_err(|error| format!("cannot write to {}: {error}", path.display()))?;
    let cluster = journal.record(Undo::Write(CLUSTER.into(), read(Path::new(CLUSTER))));
    write(Path::new(CLUSTER), "0")?;
    Ok(vec![swap_on(journal, &path)?, device, cluster])
}

fn write_header(file: &mut File, bytes: u64) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header((bytes / PAGE) as u32))?;
    file.sync_all()
}

/// The first page of swap: version 1, number of the last page, the mark at the end (linux/swap.h).
fn header(pages: u32) -> Vec<u8> {
    let mut page = vec![0u8; PAGE as usize];
    page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&(pages - 1).to_ne_bytes());
    let end = page.len() - 10;
    page[end..].copy_from_slice(b"SWAPSPACE2");
    page
}

fn swap_on(journal: &Journal, path: &Path) -> Result<Cleanup, String> {
    let cleanup = journal.record(Undo::SwapOff(path.to_path_buf()));
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a valid path.
    match unsafe { libc::swapon(name.as_ptr(), FIRST) } {
        0 => Ok(cleanup),
        _ => {
            let (path, error) = (path.display(), Error::last_os_error());
            Err(format!("swapon {path}: {error}; take a folder on ext4 or xfs with --store-dir"))
        }
    }
}

/// A device of our own, or one that nobody has set up.
fn zram_device(journal: &Journal) -> Result<(u32, Cleanup), String> {
    if let Ok(id) = read(&Path::new(CONTROL).join("hot_add")).parse() {
        return Ok((id, journal.record(Undo::ZramRemove(id))));
    }
    let id = free_device().ok_or("no zram device is free")?;
    Ok((id, journal.record(Undo::ZramReset(id))))
}

fn free_device() -> Option<u32> {
    let entries = fs::read_dir("/sys/block").ok()?;
    let ids = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_prefix("zram")?.parse::<u32>().ok()
    });
    ids.filter(|id| read(&PathBuf::from(format!("/sys/block/zram{id}/disksize"))) == "0").min()
}

fn wait_for(device: &Path) -> Result<(), String> {
    let begin = Instant::now();
    while !device.exists() {
        if begin.elapsed() > Duration::from_secs(2) {
            return Err(format!("{} does not appear; is /dev a devtmpfs?", device.display()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_mkswap() {
        let page = header(256);
        assert_eq!(page.len(), 4096);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        assert_eq!((page[1024], page[1028]), (1, 255));
        assert_eq!(page.iter().filter(|&&byte| byte != 0).count(), 12);
    }
}
