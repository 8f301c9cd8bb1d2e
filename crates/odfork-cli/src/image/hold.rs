//! Saving another process: all its threads stand still from the first page read to the last.

use std::path::Path;
use std::time::Instant;

use odfork_image::{Delta, Error, Image, Process, RegionWish, Result, SaveOptions};
use odfork_proc::tracee::Tracee;

use super::options::Wish;

/// Saves what the wishes mean in process `pid` to `file`, as a delta when there is a base.
pub fn save(
    pid: i32,
    regions: &[RegionWish],
    file: &Path,
    base: Option<&Image>,
    wish: &Wish,
) -> Result<()> {
    if pid == std::process::id() as i32 {
        return Err(Error::Refused("odfork cannot save itself".to_owned()));
    }
    // `{:#}`: the whole chain of causes in one line.
    let refused = |error| Error::Refused(format!("{error:#}"));
    let mut tracee = Tracee::seize(pid, None).map_err(refused)?;
    let begin = Instant::now();
    tracee.stop().map_err(refused)?;
    let mut stood = None;
    let saved = Process::other(pid).and_then(|mut process| {
        let regions = process.regions(regions)?;
        let delta = base.map(|base| Delta { base, trust_checksums: wish.by_checksum });
        super::with_progress(wish, |options| {
            let SaveOptions { codec, cluster_pages, sync, mut progress, .. } = options;
            let mut each = |done, total| {
                // It need not wait for the disk.
                if done == total {
                    tracee.release();
                    stood = Some(begin.elapsed());
                }
                progress.as_mut().is_none_or(|progress| progress(done, total))
            };
            let progress: Option<&mut dyn FnMut(u64, u64) -> bool> = Some(&mut each);
            let options = SaveOptions { codec, cluster_pages, delta, sync, progress };
            odfork_image::save(file, &mut process, &regions, options)
        })
    });
    if stood.is_none() {
        tracee.release();
    }
    super::done(file, &saved?)?;
    let stood = stood.unwrap_or_else(|| begin.elapsed()).as_secs_f64();
    super::show::print(&format!("process {pid} stood still for {stood:.3} s\n"))
}
