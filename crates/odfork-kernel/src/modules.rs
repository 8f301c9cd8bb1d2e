//! The modules a distribution's kernel needs before it can see the host's files, taken from
//! `lib/modules/VERSION`, where the kernel itself is (`vmlinuz`) or beside whose `lib` it is
//! (`boot/vmlinuz-VERSION`). A kernel of the lab has none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::needs;
use crate::tool::{output, run};

/// Devices of the guest and the file systems of its root. What is built in is passed over.
const WANTED: [&str; 8] = [
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "virtio_rng",
    "9pnet_virtio",
    "9p",
    "overlay",
    "zram",
];

/// The folder of a kernel's modules; none for a kernel without.
pub fn folder(kernel: &Path) -> Option<PathBuf> {
    let (within, name) = (kernel.parent()?, kernel.file_name()?.to_str()?);
    let folder = match name.strip_prefix("vmlinuz-") {
        Some(version) => within.parent()?.join("lib/modules").join(version),
        None => within.to_path_buf(),
    };
    folder.join("kernel").is_dir().then_some(folder)
}

/// Modules in the order they are to be loaded.
pub fn load_order(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = folder.join("modules.dep");
    if !list.exists() {
        make_list(folder)?;
    }
    let text = fs::read_to_string(&list).with_context(|| format!("no {}", list.display()))?;
    Ok(ordered(&text).into_iter().map(|file| folder.join(file)).collect())
}

fn make_list(folder: &Path) -> Result<()> {
    let Some(depmod) = needs::program("depmod") else {
        bail!("the kernel's modules need depmod; install it: apt-get install kmod");
    };
    let base = folder.ancestors().nth(3).unwrap_or(Path::new("/"));
    let version = folder.file_name().unwrap_or_default();
    run(Command::new(depmod).arg("-b").arg(base).arg(version))
}

/// Of modules.dep, lines "FILE: NEEDED NEEDED ..." with the first needed last.
fn ordered(list: &str) -> Vec<&str> {
    let mut order: Vec<&str> = Vec::new();
    for wanted in WANTED {
        let line = list.lines().find_map(|line| {
            let (file, needed) = line.split_once(':')?;
            (name_of(file) == wanted).then_some((file, needed))
        });
        let Some((file, needed)) = line else { continue };
        for part in needed.split_whitespace().rev().chain([file]) {
            if !order.contains(&part) {
                order.push(part);
            }
        }
    }
    order
}

/// "virtio_rng" of "kernel/drivers/char/hw_random/virtio-rng.ko.xz".
fn name_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

/// A module as the kernel takes it.
pub fn content(file: &Path) -> Result<Vec<u8>> {
    let unpacker = match file.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    output(Command::new(unpacker).arg("-dc").arg(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let list = "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko\n\
                    kernel/fs/ext4.ko:\n\
                    kernel/net/9p/9pnet.ko:\n\
                    kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko\n\
                    kernel/drivers/char/hw_random/virtio-rng.ko:\n";
        assert_eq!(
            ordered(list),
            [
                "kernel/drivers/char/hw_random/virtio-rng.ko",
                "kernel/net/9p/9pnet.ko",
                "kernel/net/9p/9pnet_virtio.ko.xz",
                "kernel/fs/netfs/netfs.ko",
                "kernel/fs/9p/9p.ko",
            ]
        );
    }

    #[test]
    fn modules_lie_beside_the_kernel() {
        let place = tempfile::tempdir().unwrap();
        let kernel = place.path().join("boot/vmlinuz-6.1.0-9-amd64");
        assert_eq!(folder(&kernel), None);
        let modules = place.path().join("lib/modules/6.1.0-9-amd64");
        fs::create_dir_all(modules.join("kernel")).unwrap();
        assert_eq!(folder(&kernel), Some(modules.clone()));
        assert_eq!(folder(&modules.join("vmlinuz")), Some(modules));
        assert_eq!(folder(&place.path().join("boot/bzImage")), None);
    }
}
