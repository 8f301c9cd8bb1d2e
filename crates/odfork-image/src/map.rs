//! Regions of an image in the memory of this process.
//!
//! Owns the choice of the form and of the place, and giving the memory back. The three forms:
//! mapped (`overlay`), faulted (`faults`), read in (here).

use std::io::ErrorKind;

use odfork_proc::maps;

use crate::error::{Error, Result};
use crate::faults::{Session, Status};
use crate::format::Region;
use crate::image::{Fate, Image, Room};
use crate::memory::{self, At, What};
use crate::options::{Form, MapOptions, Place, Read};
use crate::overlay::{self, Overlay};
use crate::PAGE;

/// Pages read at once when everything is read in.
const STEP: usize = 256;

/// Regions in memory; gives the memory back when dropped.
#[derive(Debug)]
pub struct Mapped {
    regions: Vec<Region>,
    form: Form,
    note: Option<String>,
    session: Option<Session>,
    kept: bool,
}

impl Mapped {
    /// The regions with the addresses they are at now, in the order of the image.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Where the first region of this name begins.
    pub fn address(&self, name: &str) -> Option<*mut u8> {
        let region = self.regions.iter().find(|region| region.name == name)?;
        Some(region.address as usize as *mut u8)
    }

    /// The form that was taken; never `Auto`.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Why it is another form than the one that is best.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// How far loading is; `None` for forms without a thread.
    pub fn status(&self) -> Option<Status> {
        self.session.as_ref().map(Session::status)
    }

    /// Brings in everything that has not come yet; then the thread of the faulted form ends.
    pub fn populate(&self) {
        match &self.session {
            Some(session) => session.populate(),
            None => {
                for region in &self.regions {
                    // Best effort: Linux 5.14; without it pages come later.
                    // SAFETY: changes no content.
                    unsafe {
                        let at = region.address as usize as *mut libc::c_void;
                        libc::madvise(at, region.bytes as usize, libc::MADV_POPULATE_READ);
                    }
                }
            }
        }
    }

    /// The regions as they were before anything was put there. Given back first: at the limit of
    /// mappings the kernel maps nothing over them.
    fn reserve_again(&mut self) -> Result<()> {
        let regions = std::mem::take(&mut self.regions);
        for region in &regions {
            // SAFETY: reserved by `map`, known to nobody else.
            unsafe { memory::unmap(region.address, region.bytes as usize) }
                .map_err(|e| Error::io("cannot give back mappings", e))?;
        }
        for region in regions {
            reserve(&region, Place::Saved)?;
            self.regions.push(region);
        }
        Ok(())
    }

    /// The memory stays until the process ends.
    pub fn keep(mut self) -> Vec<Region> {
        self.kept = true;
        if let Some(session) = self.session.take() {
            session.keep();
        }
        std::mem::take(&mut self.regions)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        drop(self.session.take());
        for region in &self.regions {
            // SAFETY: mapped by us; whoever drops this has no use for the memory any more.
            let _ = unsafe { memory::unmap(region.address, region.bytes as usize) };
        }
    }
}

impl Image {
    /// Puts the regions of this name (all, without one) into memory. Pages that are written to
    /// become the process's own: the file never changes.
    ///
    /// # Errors
    /// No region of this name, its place is taken, no memory; for the form read in also a page that
    /// is lost. Nothing is left mapped.
    pub fn map(&self, name: Option<&str>, options: &MapOptions) -> Result<Mapped> {
        let saved: Vec<Region> = self
            .regions()
            .filter(|region| name.is_none_or(|name| region.name == name))
            .cloned()
            .collect();
        if saved.is_empty() {
            return Err(Error::Refused(format!(
                "{} has no region named '{}' (see `odfork image show`)",
                self.path().display(),
                name.unwrap_or_default()
            )));
        }
        if !options.prefetch.is_power_of_two() || options.prefetch > STEP {
            return Err(Error::Refused(format!(
                "{} pages: prefetch is 1, 2, 4 ... {STEP}",
                options.prefetch
            )));
        }
        let mut mapped = Mapped {
            regions: Vec::new(),
            form: options.form,
            note: None,
            session: None,
            kept: false,
        };
        for region in &saved {
            let address = reserve(region, options.place)?;
            mapped.regions.push(Region { address, ..region.clone() });
        }
        self.fill(&saved, &mut mapped, options)?;
        Ok(mapped)
    }

    fn fill(&self, saved: &[Region], mapped: &mut Mapped, options: &MapOptions) -> Result<()> {
        let mut form = options.form;
        if matches!(form, Form::Auto | Form::Mapped) {
            match self.fill_mapped(saved, mapped, options.read) {
                Ok(()) => {
                    mapped.form = Form::Mapped;
                    return Ok(());
                }
                Err(Error::Refused(why)) if form == Form::Auto => {
                    mapped.note = Some(why);
                    form = Form::Faulted;
                }
                // So many mappings the process may not have: others of the program count.
                Err(error) if form == Form::Auto && error.errno() == libc::ENOMEM => {
                    mapped.reserve_again()?;
                    mapped.note = Some(error.to_string());
                    form = Form::Faulted;
                }
                Err(error) => return Err(error),
            }
        }
        if form == Form::Faulted {
            match Session::start(self, saved, &mapped.regions, options) {
                Ok(session) => {
                    mapped.form = Form::Faulted;
                    mapped.session = Some(session);
                    return Ok(());
                }
                Err(Error::Refused(why)) if options.fall_back => {
                    mapped.note = Some(format!("{why}; everything was read in instead"));
                }
                Err(error) => return Err(error),
            }
        }
        mapped.form = Form::ReadIn;
        self.read_in(saved, &mapped.regions)
    }

    fn fill_mapped(&self, saved: &[Region], mapped: &Mapped, read: Read) -> Result<()> {
        if let Some(why) = overlay::obstacle(self) {
            return Err(Error::Refused(why));
        }
        let cannot = |e| Error::io(format!("cannot map {}", self.path().display()), e);
        let mut plans: Vec<Overlay> = Vec::new();
        for region in saved {
            plans.push(Overlay::plan(self, region, &plans)?);
        }
        for ((plan, region), now) in plans.iter().zip(saved).zip(&mapped.regions) {
            // SAFETY: reserved by `map`, known to nobody else.
            unsafe { plan.put(region, now.address) }.map_err(cannot)?;
            let advice = match read {
                Read::Around => continue,
                Read::Page => libc::MADV_RANDOM,
                Read::Sequential => libc::MADV_SEQUENTIAL,
                Read::All => libc::MADV_WILLNEED,
            };
            // Advice is no promise.
            let _ = memory::advise(now.address, now.bytes as usize, advice);
        }
        Ok(())
    }

    fn read_in(&self, saved: &[Region], now: &[Region]) -> Result<()> {
        let (mut room, mut fates) = (Room::new()?, vec![Fate::Zero; STEP]);
        for (saved, now) in saved.iter().zip(now) {
            let writable = (libc::PROT_READ | libc::PROT_WRITE) as u32;
            let bytes = now.bytes as usize;
            let cannot = |e| Error::io(format!("cannot read {} in", self.path().display()), e);
            // SAFETY: reserved by `map`, known to nobody else, anonymous.
            let memory = unsafe {
                memory::protect(now.address, bytes, writable).map_err(cannot)?;
                std::slice::from_raw_parts_mut(now.address as usize as *mut u8, bytes)
            };
            for (at, out) in memory.chunks_mut(STEP * PAGE).enumerate() {
                let address = saved.address + (at * STEP * PAGE) as u64;
                let fates = &mut fates[..out.len() / PAGE];
                self.read(address, out, fates, &mut room);
                for (page, fate) in fates.iter().enumerate() {
                    if let Fate::Lost(why) = fate {
                        let address = address + (page * PAGE) as u64;
                        let (path, why) = (self.path().to_owned(), why.words().to_owned());
                        return Err(Error::Lost { path, address, why });
                    }
                }
            }
            // SAFETY: as above; the slice is not used any more.
            unsafe { memory::protect(now.address, bytes, now.prot) }.map_err(cannot)?;
        }
        Ok(())
    }
}

/// Anonymous memory where the region shall be.
fn reserve(region: &Region, place: Place) -> Result<u64> {
    let at = match place {
        Place::Saved => At::Free(region.address),
        Place::Anywhere => At::Anywhere,
    };
    // SAFETY: only where nothing is.
    let got = unsafe { memory::map(at, region.bytes as usize, region.prot, What::Anonymous) };
    got.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::Refused(format!(
            "the memory {:#x}-{:#x}, where region '{}' was, is in use by {}: map it before, build \
             it in memory from odfork_image_reserve, or map it anywhere if nothing in it points \
             into it",
            region.address,
            region.end(),
            region.name,
            occupant(region)
        )),
        _ => Error::io(
            format!("cannot get {} bytes of memory for region '{}'", region.bytes, region.name),
            error,
        ),
    })
}

fn occupant(region: &Region) -> String {
    let maps = maps::of_process("self").unwrap_or_default();
    let there = maps.iter().find(|m| m.end > region.address && m.start < region.end());
    match there {
        Some(mapping) if mapping.name.is_empty() => {
            format!("anonymous memory at {:#x}-{:#x}", mapping.start, mapping.end)
        }
        Some(mapping) => format!("{} at {:#x}-{:#x}", mapping.name, mapping.start, mapping.end),
        None => "something else".to_owned(),
    }
}
