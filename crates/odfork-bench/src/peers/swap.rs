//! Swap for an experiment: on a file, or on compressed memory (zram, lz4, one page at a time as is usual there).

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ledger::{Debt, Shared, Undo};
use super::{is_root, read, write};

const PAGE: u64 = 4096;
const CLUSTER: &str = "/proc/sys/vm/page-cluster";
const CONTROL: &str = "/sys/class/zram-control";
/// Before all other swap of the machine.
const PRIORITY: i32 = 0x7fff;
const PREFER: i32 = 0x8000;

/// Swap in use; dropping it takes it out of use and removes what it lay on.
#[derive(Debug)]
pub struct Swap {
    /// In the order they are paid: fields drop in order.
    _debts: Vec<Debt>,
    pub what: String,
}

/// Whether swap on a file can be had, at least as far as rights go.
pub fn refusal() -> Option<String> {
    (!is_root()).then(|| "swapon needs root".into())
}

/// Whether swap on compressed memory can be had.
pub fn zram_refusal() -> Option<String> {
    if !is_root() {
        return Some("zram needs root".into());
    }
    let there = Path::new(CONTROL).exists() || free_device().is_some();
    (!there).then(|| "this kernel has no zram device; modprobe zram".into())
}

impl Swap {
    /// A file of `bytes` in `folder`, written in full so that it has no holes.
    ///
    /// # Errors
    /// The disk is full, or its file system does not take swap files: one line.
    pub fn on_file(ledger: &Shared, folder: &Path, bytes: u64) -> Result<Swap, String> {
        let path = folder.join(format!("odfork-swap-{}", std::process::id()));
        let file_debt = ledger.owe(Undo::Unlink(path.clone()));
        let told = |error: std::io::Error| {
            format!("cannot make a swap file of {} MB in {}: {error}; name another folder with --store-dir", bytes >> 20, folder.display())
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).map_err(told)?;
        let zeros = vec![0u8; 1 << 20];
        for _ in 0..bytes.div_ceil(1 << 20) {
            file.write_all(&zeros).map_err(told)?;
        }
        let pages = bytes.div_ceil(1 << 20) * ((1 << 20) / PAGE);
        file.seek(SeekFrom::Start(0)).map_err(told)?;
        file.write_all(&header(pages as u32)).map_err(told)?;
        file.sync_all().map_err(told)?;
        let swap_debt = ledger.owe(Undo::SwapOff(path.clone()));
        swap_on(&path)?;
        Ok(Swap {
            _debts: vec![swap_debt, file_debt],
            what: format!("file, page-cluster {}", read(Path::new(CLUSTER))),
        })
    }

    /// A zram device of `bytes` (before compression) with lz4.
    ///
    /// # Errors
    /// No device, no lz4 in this kernel: one line.
    pub fn on_zram(ledger: &Shared, bytes: u64) -> Result<Swap, String> {
        let (id, device_debt) = zram_device(ledger)?;
        let sys = PathBuf::from(format!("/sys/block/zram{id}"));
        write(&sys.join("comp_algorithm"), "lz4").map_err(|_| {
            let has = read(&sys.join("comp_algorithm"));
            format!("zram of this kernel has no lz4 (it has {has})")
        })?;
        write(&sys.join("disksize"), &bytes.to_string())?;
        let device = PathBuf::from(format!("/dev/zram{id}"));
        wait_for(&device)?;
        let told = |error: std::io::Error| format!("cannot write to {}: {error}", device.display());
        let mut file = OpenOptions::new().write(true).open(&device).map_err(told)?;
        file.write_all(&header((bytes / PAGE) as u32)).map_err(told)?;
        file.sync_all().map_err(told)?;
        drop(file);
        let before = read(Path::new(CLUSTER));
        let cluster_debt = ledger.owe(Undo::Write(CLUSTER.into(), before));
        write(Path::new(CLUSTER), "0")?;
        let swap_debt = ledger.owe(Undo::SwapOff(device.clone()));
        swap_on(&device)?;
        Ok(Swap {
            _debts: vec![swap_debt, device_debt, cluster_debt],
            what: "zram lz4, page-cluster 0".into(),
        })
    }
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

fn swap_on(path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a valid path.
    match unsafe { libc::swapon(name.as_ptr(), PREFER | PRIORITY) } {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(format!(
                "swapon {}: {error}; take a folder on ext4 or xfs with --store-dir",
                path.display()
            ))
        }
    }
}

/// A device of our own, or one that nobody has set up.
fn zram_device(ledger: &Shared) -> Result<(u32, Debt), String> {
    if let Ok(id) = read(&Path::new(CONTROL).join("hot_add")).parse() {
        return Ok((id, ledger.owe(Undo::ZramRemove(id))));
    }
    let id = free_device().ok_or("no zram device is free")?;
    Ok((id, ledger.owe(Undo::ZramReset(id))))
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
