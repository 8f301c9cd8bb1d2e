//! What is in an image, for people and for programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use odfork_image::{Error, Image, Region, Result};
use odfork_proc::process::printable;
use serde_json::json;

use super::Progress;

/// Raised when a key changes its meaning or goes.
const SCHEMA: u32 = 1;

pub fn show(file: &Path, bases: &[PathBuf], as_json: bool, verify: bool) -> Result<()> {
    let image = Image::open_with(file, bases)?;
    if verify {
        let mut progress = Progress::new();
        let sound = image.verify(|done, total| progress.step(done, total));
        progress.clear();
        sound?;
    }
    print(&if as_json { object(&image, verify) } else { text(&image, verify) })
}

fn text(image: &Image, verified: bool) -> String {
    let summary = image.summary();
    let mut out = format!("{}\n  id        {}\n", image.path().display(), summary.id);
    for base in image.chain().skip(1) {
        out +=
            &format!("  base      {} {}\n", base.id(), printable(&base.path().to_string_lossy()));
    }
    let form = match (summary.placed, summary.base.is_some()) {
        (true, _) => "whole, can be mapped",
        (false, false) => "whole",
        (false, true) => "delta",
    };
    out += &format!(
        "  form      {form}; compression {}, clusters of {} pages\n",
        summary.codec.name(),
        summary.cluster_pages
    );
    out += &format!(
        "  pages     {} ({}): {} stored, {} of zeros, {} as in the base\n",
        summary.pages,
        size(summary.pages * 4096),
        summary.stored_pages,
        summary.zero_pages,
        summary.pages - summary.stored_pages - summary.zero_pages
    );
    out += &format!(
        "  file      {} ({} on the disk)\n",
        size(summary.file_bytes),
        size(summary.disk_bytes)
    );
    for region in image.regions() {
        out += &format!(
            "  region    {:012x}-{:012x} {} {:>10}  {}\n",
            region.address,
            region.end(),
            access(region),
            size(region.bytes),
            // Whoever made the file chose it.
            printable(&region.name)
        );
    }
    if verified {
        out += "  verified  every page is as it was saved\n";
    }
    out
}

fn object(image: &Image, verified: bool) -> String {
    let summary = image.summary();
    let regions: Vec<_> = image
        .regions()
        .map(|region| {
            json!({
                "name": region.name,
                "address": region.address,
                "bytes": region.bytes,
                "access": access(region),
            })
        })
        .collect();
    let bases: Vec<_> = image
        .chain()
        .skip(1)
        .map(|base| json!({"id": base.id().to_string(), "file": base.path().to_string_lossy()}))
        .collect();
    let object = json!({
        "schema": SCHEMA,
        "file": image.path().to_string_lossy(),
        "id": summary.id.to_string(),
        "bases": bases,
        "compression": summary.codec.name(),
        "cluster_pages": summary.cluster_pages,
        "mappable": summary.placed,
        "page_bytes": odfork_image::PAGE,
        "pages": summary.pages,
        "stored_pages": summary.stored_pages,
        "zero_pages": summary.zero_pages,
        "file_bytes": summary.file_bytes,
        "disk_bytes": summary.disk_bytes,
        "verified": verified,
        "regions": regions,
    });
    format!("{object}\n")
}

fn access(region: &Region) -> String {
    let letters = [(libc::PROT_READ, 'r'), (libc::PROT_WRITE, 'w'), (libc::PROT_EXEC, 'x')];
    letters
        .iter()
        .map(|&(bit, letter)| if region.prot & bit as u32 != 0 { letter } else { '-' })
        .collect()
}

/// `1.5 MB`; powers of 1024, as memory is counted.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} bytes")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A reader that went away is not worth a word.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { what: "cannot write to standard output".to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!([size(7), size(4096), size(1 << 30)], ["7 bytes", "4.0 KB", "1.0 GB"]);
    }
}
