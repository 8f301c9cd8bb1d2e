//! The pager's library in a process whose loader is not asked: mapped by system calls of a borrowed
//! thread, its addresses written from here.
//!
//! The loader and malloc may be in the middle of anything in the process, so neither is called.
//! What the library needs of the C library is looked up in its file.

use std::fs::File;
use std::path::Path;

use anyhow::{bail, Context, Result};
use odfork_pager_protocol::adoption::{Adoption, Choice, ADOPTED_CALL};
use odfork_proc::maps::Mapping;
use odfork_proc::memory;

use super::object::{Object, Place, Segment};
use super::target::Target;
use super::thread::Thread;

const ENTRY: &str = "odfork_page_adopt";
/// Of the thread, while it runs the library's code.
const STACK: u64 = 256 << 10;
const PAGE: u64 = 4096;

/// An ELF file and where it is mapped.
pub struct Mapped {
    pub object: Object,
    pub base: u64,
}

impl Mapped {
    /// The C library of a process.
    pub fn c_library(target: &Target) -> Result<Mapped> {
        let (pid, maps) = (target.pid, &target.maps);
        let is_it = |one: &&Mapping| {
            Path::new(&one.name).file_name().is_some_and(|name| name == "libc.so.6")
        };
        let first = maps.iter().filter(is_it).find(|first| target.is_loaded_at(first));
        let first = first.with_context(|| {
            format!("process {pid} has no glibc of its own: it is linked statically, or to another")
        })?;
        let file = first.open(target.alive).with_context(|| {
            format!("{} was replaced since process {pid} began: start it anew", first.name)
        })?;
        let object = Object::read(file).with_context(|| first.name.clone())?;
        let lowest = object.segments.first().map_or(0, |part| part.pages().0);
        Ok(Mapped { object, base: first.start - lowest })
    }

    /// Address of something that another object may use.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.object.symbols.get(name).map(|symbol| self.base + symbol.address)
    }
}

/// What is put into a process, and how it comes out again.
pub struct Image<'a> {
    thread: &'a mut Thread,
    pub library: Mapped,
    stack: u64,
    /// Nobody calls it yet.
    is_idle: bool,
}

impl Image<'_> {
    /// Maps the file, which the process finds under the same path.
    pub fn map<'a>(thread: &'a mut Thread, path: &Path) -> Result<Image<'a>> {
        let object = Object::read(File::open(path)?)?;
        let stack = map(thread, (0, STACK), libc::PROT_READ | libc::PROT_WRITE, None)?;
        let library = Mapped { object, base: 0 };
        let mut image = Image { thread, library, stack, is_idle: true };
        let span = image.library.object.span();
        image.library.base = map(image.thread, (0, span), libc::PROT_NONE, None)?;
        let file = image.open(path)?;
        let segments = image.library.object.segments.clone();
        let mapped = segments.iter().try_for_each(|part| image.map_segment(part, file));
        image.thread.call(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
        mapped.map(|()| image)
    }

    /// By the thread, so that it is a file of its process.
    fn open(&mut self, path: &Path) -> Result<u64> {
        let mut text = path.as_os_str().as_encoded_bytes().to_vec();
        text.push(0);
        memory::write(self.thread.tid, self.stack, &text)?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let folder = libc::AT_FDCWD as u64;
        let opened = self.thread.call(libc::SYS_openat, [folder, self.stack, flags, 0, 0, 0]);
        opened.with_context(|| format!("{} in the process", path.display()))
    }

    fn map_segment(&mut self, part: &Segment, file: u64) -> Result<()> {
        let base = self.library.base;
        let (start, end) = part.pages();
        let skew = part.address - start;
        let in_file = (skew + part.in_file).next_multiple_of(PAGE);
        let place = (base + start, in_file);
        map(self.thread, place, part.prot, Some((file, part.offset - skew)))?;
        if start + in_file < end {
            map(self.thread, (base + start + in_file, end - start - in_file), part.prot, None)?;
        }
        let behind = part.address + part.in_file;
        let rest = (start + in_file).saturating_sub(behind).min(part.in_memory - part.in_file);
        if part.is_writable() && rest > 0 {
            memory::write(self.thread.tid, base + behind, &vec![0; rest as usize])?;
        }
        Ok(())
    }

    /// Writes the addresses; what only the process can tell goes to the order.
    pub fn fill_in(&mut self, libc: &Mapped, order: &mut Adoption) -> Result<()> {
        let (base, pid) = (self.library.base, self.thread.tid);
        let mut choices = order.choices.iter_mut();
        let mut choose = |at: u64, resolver: u64| -> Result<()> {
            let many = "too many functions of the C library are chosen by the processor";
            *choices.next().context(many)? = Choice { slot: base + at, resolver };
            Ok(())
        };
        for (at, target) in &self.library.object.places {
            let address = match target {
                Place::Own(address) => base + address,
                Place::Chosen(resolver) => {
                    choose(*at, base + resolver)?;
                    continue;
                }
                Place::Named(name) => {
                    let own = self.library.object.symbols.get(name).map(|one| (base, one));
                    let found = own.or_else(|| Some((libc.base, libc.object.symbols.get(name)?)));
                    let (from, symbol) = found.with_context(|| {
                        format!("glibc of process {pid} has no {name}: it needs glibc 2.34")
                    })?;
                    if symbol.is_choice {
                        choose(*at, from + symbol.address)?;
                        continue;
                    }
                    from + symbol.address
                }
            };
            memory::write(pid, base + at, &address.to_ne_bytes())?;
        }
        let data = self.library.object.data(base).chain(libc.object.data(libc.base));
        let data: Vec<_> = data.collect();
        if data.len() > order.data.len() {
            bail!("the C library of process {pid} has too many parts");
        }
        order.data[..data.len()].copy_from_slice(&data);
        let function = |name: &str| {
            libc.address_of(name).with_context(|| format!("glibc of process {pid} has no {name}"))
        };
        (order.prctl, order.fork) = (function("prctl")?, function("fork")?);
        order.plain_fork = function("_Fork")?;
        Ok(())
    }

    /// Runs the library's entry. An error: it could not, or has answered so.
    pub fn run(&mut self, order: &Adoption) -> Result<()> {
        let entry = self.library.address_of(ENTRY).context("the library is of another version")?;
        let at = (self.stack + STACK - size_of::<Adoption>() as u64) & !0xfff;
        // SAFETY: a structure of numbers without gaps that matter; its bytes are only copied.
        let bytes = unsafe {
            let order = std::ptr::from_ref(order).cast::<u8>();
            std::slice::from_raw_parts(order, size_of::<Adoption>())
        };
        memory::write(self.thread.tid, at, bytes)?;
        let done = self.thread.run(entry, at, at, ADOPTED_CALL as u64);
        let mut answer = Adoption::none();
        // SAFETY: any bytes are such a structure.
        let bytes = unsafe {
            let answer = std::ptr::from_mut(&mut answer).cast::<u8>();
            std::slice::from_raw_parts_mut(answer, size_of::<Adoption>())
        };
        // If it cannot be read, the process is gone.
        self.is_idle = false;
        memory::read(self.thread.tid, at, bytes)?;
        self.is_idle = answer.is_kept == 0;
        if answer.is_kept != 0 && answer.error == 0 {
            return done.context("it is, but its thread did not come back in time");
        }
        done?;
        if answer.error == 0 {
            return Ok(());
        }
        let what = &answer.what[..(answer.len as usize).min(answer.what.len())];
        let error = std::io::Error::from_raw_os_error(answer.error);
        bail!("{} ({error})", String::from_utf8_lossy(what));
    }
}

impl Drop for Image<'_> {
    /// The stack goes in any case, and a library that nobody may call.
    fn drop(&mut self) {
        let mut unmap = |at: u64, len: u64| {
            if at != 0 {
                let _ = self.thread.call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]);
            }
        };
        unmap(self.stack, STACK);
        if self.is_idle {
            unmap(self.library.base, self.library.object.span());
        }
    }
}

/// Private memory of the process, at this place if it is not 0; of a file from this offset on.
fn map(
    thread: &mut Thread,
    (at, len): (u64, u64),
    prot: i32,
    file: Option<(u64, u64)>,
) -> Result<u64> {
    let place = if at == 0 { 0 } else { libc::MAP_FIXED };
    let kind = if file.is_some() { 0 } else { libc::MAP_ANONYMOUS | libc::MAP_NORESERVE };
    let flags = (libc::MAP_PRIVATE | place | kind) as u64;
    let (file, offset) = file.unwrap_or((u64::MAX, 0));
    thread.call(libc::SYS_mmap, [at, len, prot as u64, flags, file, offset]).context("mmap there")
}
