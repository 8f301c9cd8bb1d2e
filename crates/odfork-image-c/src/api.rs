//! Images of memory as C sees them.
//!
//! Owns the reading of what C says, errors as numbers and words, and which memory was mapped by
//! whom. Nothing here panics on bad input: it is EINVAL with words. The comments are the text of
//! odfimage.h.
//!
//! A cancelled thread would unwind from inside libc's functions through Rust's frames, which must
//! not be: no function is a cancellation point.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use odfork_image::{
    Codec, Delta, Error, Form, Image, MapOptions, Mapped, Place, Process, Read, Region, Result,
    SaveOptions,
};
use odfork_spawn::CancellationGuard;

/// Size of `text` of struct odfork_image_error, the closing zero byte included.
pub const ODFORK_IMAGE_TEXT: usize = 512;

/// Flags of odfork_image_map(). Map it anywhere: for memory without pointers into itself.
pub const ODFORK_IMAGE_ANYWHERE: c_int = 1 << 0;
/// Every page is checked before it is seen; anonymous memory, served by a thread (userfaultfd).
pub const ODFORK_IMAGE_CHECKED: c_int = 1 << 1;
/// Everything is read and checked before the call returns.
pub const ODFORK_IMAGE_READ_IN: c_int = 1 << 2;
/// Read single pages only: for few touches far apart.
pub const ODFORK_IMAGE_READ_PAGE: c_int = 1 << 3;
/// Begin to read everything in the background.
pub const ODFORK_IMAGE_READ_ALL: c_int = 1 << 4;
/// Where userfaultfd is forbidden, take one that fails system calls on memory that has not come yet
/// (EFAULT), in place of reading everything in.
pub const ODFORK_IMAGE_USER_FAULTS: c_int = 1 << 5;

const ALL_FLAGS: c_int = (1 << 6) - 1;

/// Values of `compress`.
pub const ODFORK_IMAGE_PLAIN: c_int = 0;
pub const ODFORK_IMAGE_LZ4: c_int = 1;
pub const ODFORK_IMAGE_ZSTD: c_int = 2;

/// Memory to be saved: whole pages.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odfork_image_region {
    /// NULL: none.
    pub name: *const c_char,
    pub address: *mut c_void,
    pub size: usize,
    /// PROT_READ and others, for when it is mapped again; 0: read and write.
    pub protection: c_int,
}

/// How an image is written. All zero but `size`: uncompressed, whole, and on the disk when the call
/// returns.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odfork_image_options {
    /// sizeof (struct odfork_image_options).
    pub size: usize,
    pub compress: c_int,
    /// Pages compressed and read together: 1, 2, 4 ... 64; 0: 16.
    pub cluster_pages: c_uint,
    /// Save only what differs from this image; NULL: everything.
    pub base: *const c_char,
    /// Other than 0: pages of equal checksum count as equal without being compared.
    pub trust_checksums: c_int,
    /// Other than 0: do not wait for the disk.
    pub no_sync: c_int,
}

/// What went wrong.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odfork_image_error {
    /// What the function returned; 0: nothing.
    pub errnum: c_int,
    /// What happened, what was needed, how to fix it; after odfork_image_map() that went well, why
    /// it is not in the best form, if so. Always ends with a zero byte, cut if it is too long.
    pub text: [c_char; ODFORK_IMAGE_TEXT],
}

/// What is mapped, with the address given to C.
static MAPPED: Mutex<Vec<(usize, Mapped)>> = Mutex::new(Vec::new());

fn report(error: *mut odfork_image_error, errnum: c_int, words: &str) {
    // SAFETY: NULL or writable, says the caller of every function here.
    let Some(error) = (unsafe { error.as_mut() }) else { return };
    error.errnum = errnum;
    error.text = [0; ODFORK_IMAGE_TEXT];
    for (to, &from) in error.text[..ODFORK_IMAGE_TEXT - 1].iter_mut().zip(words.as_bytes()) {
        *to = from as c_char;
    }
}

fn answer(result: Result<()>, error: *mut odfork_image_error) -> c_int {
    match result {
        Ok(()) => {
            report(error, 0, "");
            0
        }
        Err(why) => {
            report(error, why.errno(), &why.to_string());
            why.errno()
        }
    }
}

fn refused<T>(why: &str) -> Result<T> {
    Err(Error::Refused(why.to_owned()))
}

/// # Safety
/// NULL, or a string that outlives the answer.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a CStr> {
    // SAFETY: passed on.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
}

/// # Safety
/// As for [`text`].
unsafe fn path(string: *const c_char, what: &str) -> Result<PathBuf> {
    // SAFETY: passed on.
    match unsafe { text(string) } {
        Some(text) => Ok(Path::new(OsStr::from_bytes(text.to_bytes())).to_owned()),
        None => refused(&format!("{what} is NULL")),
    }
}

/// # Safety
/// `options` is NULL or readable, its strings are NULL or strings.
unsafe fn read_options(
    options: *const odfork_image_options,
) -> Result<(odfork_image_options, Codec, Option<Image>)> {
    let none = odfork_image_options {
        size: size_of::<odfork_image_options>(),
        compress: 0,
        cluster_pages: 0,
        base: core::ptr::null(),
        trust_checksums: 0,
        no_sync: 0,
    };
    // SAFETY: passed on.
    let mut options = unsafe { options.as_ref() }.copied().unwrap_or(none);
    if options.size != size_of::<odfork_image_options>() {
        return refused("size is not sizeof (struct odfork_image_options) of this library");
    }
    if options.cluster_pages == 0 {
        options.cluster_pages = 16;
    }
    let codec = match options.compress {
        ODFORK_IMAGE_PLAIN => Codec::None,
        ODFORK_IMAGE_LZ4 => Codec::Lz4,
        ODFORK_IMAGE_ZSTD => Codec::Zstd,
        _ => return refused("compress is none of ODFORK_IMAGE_PLAIN, _LZ4 and _ZSTD"),
    };
    // SAFETY: passed on.
    let base = match unsafe { text(options.base) } {
        Some(_) => Some(Image::open(unsafe { path(options.base, "base")? })?),
        None => None,
    };
    Ok((options, codec, base))
}

fn save_options<'a>(
    options: &odfork_image_options,
    codec: Codec,
    base: Option<&'a Image>,
) -> SaveOptions<'a> {
    SaveOptions {
        codec,
        cluster_pages: options.cluster_pages,
        delta: base.map(|base| Delta { base, trust_checksums: options.trust_checksums != 0 }),
        sync: options.no_sync == 0,
        progress: None,
    }
}

/// Saves `count` regions of the calling process to the file `path`, readable by its owner alone; an
/// older file of this name is replaced once the new one is whole. options NULL: the defaults.
/// Returns 0, or an errno and fills `error` (may be NULL). errno itself is not kept.
///
/// Nobody should write to the regions meanwhile: what is saved of a page that changes is the page
/// before, after or in between. A forked child may save while its parent goes on. No function here
/// is a cancellation point.
///
/// # Safety
/// The pointers point to what is said here.
#[no_mangle]
pub unsafe extern "C" fn odfork_image_save(
    path: *const c_char,
    regions: *const odfork_image_region,
    count: usize,
    options: *const odfork_image_options,
    error: *mut odfork_image_error,
) -> c_int {
    let _guard = CancellationGuard::enter();
    // SAFETY: passed on from the caller.
    let done = unsafe { save(path, regions, count, options) };
    answer(done, error)
}

/// # Safety
/// As for [`odfork_image_save`].
unsafe fn save(
    file: *const c_char,
    regions: *const odfork_image_region,
    count: usize,
    options: *const odfork_image_options,
) -> Result<()> {
    if regions.is_null() || count == 0 {
        return refused("no region to save");
    }
    // SAFETY: passed on from the caller.
    let (file, (options, codec, base), given) = unsafe {
        (path(file, "path")?, read_options(options)?, core::slice::from_raw_parts(regions, count))
    };
    let read_write = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    let regions: Vec<Region> = given
        .iter()
        .map(|region| Region {
            // SAFETY: passed on from the caller.
            name: unsafe { text(region.name) }
                .map_or(String::new(), |name| name.to_string_lossy().into_owned()),
            address: region.address as u64,
            bytes: region.size as u64,
            prot: if region.protection == 0 { read_write } else { region.protection as u32 },
        })
        .collect();
    odfork_image::save(
        &file,
        &mut Process::this()?,
        &regions,
        save_options(&options, codec, base.as_ref()),
    )
    .map(drop)
}

/// Puts the regions named `name` (NULL: all) of the image `path` into memory, at the addresses
/// where they were saved, and returns where the first one begins, and its size; NULL on failure.
/// path NULL: the file that `odfork image load` named (the variable ODFORK_IMAGE_FILE; never in a
/// program with more rights than its caller, set-user-ID for example). Pages are
/// read when they are touched; pages that are written to become the process's own. flags: 0, or
/// ODFORK_IMAGE_ANYWHERE and others, added. size and error may be NULL.
///
/// An uncompressed image is mapped (MAP_PRIVATE of the file). With ODFORK_IMAGE_CHECKED, and for
/// compressed images, a thread reads, checks and unpacks pages; a page that is damaged is a SIGBUS.
/// Where that is forbidden (userfaultfd) everything is read in before the call returns, and
/// `error->text` says so. fork() in a process with such memory first brings in what is missing.
///
/// # Safety
/// The pointers point to what is said here.
#[no_mangle]
pub unsafe extern "C" fn odfork_image_map(
    path: *const c_char,
    name: *const c_char,
    flags: c_int,
    size: *mut usize,
    error: *mut odfork_image_error,
) -> *mut c_void {
    let _guard = CancellationGuard::enter();
    // SAFETY: passed on from the caller.
    match unsafe { map(path, name, flags) } {
        Ok(mapped) => {
            let first = mapped.regions()[0].clone();
            report(error, 0, mapped.note().unwrap_or_default());
            // SAFETY: NULL or writable, says the caller.
            if let Some(size) = unsafe { size.as_mut() } {
                *size = first.bytes as usize;
            }
            MAPPED
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((first.address as usize, mapped));
            first.address as usize as *mut c_void
        }
        Err(why) => {
            report(error, why.errno(), &why.to_string());
            core::ptr::null_mut()
        }
    }
}

/// # Safety
/// As for [`odfork_image_map`].
unsafe fn map(file: *const c_char, name: *const c_char, flags: c_int) -> Result<Mapped> {
    if flags & !ALL_FLAGS != 0 {
        return refused("flags has bits that mean nothing");
    }
    let file = if file.is_null() {
        match odfork_image::given() {
            Some(file) => file,
            None => return refused(
                "no file is given, and ODFORK_IMAGE_FILE is not set (odfork image load), or not \
                     for a program with more rights than its caller",
            ),
        }
    } else {
        // SAFETY: passed on from the caller.
        unsafe { path(file, "path")? }
    };
    let has = |flag| flags & flag != 0;
    let options = MapOptions {
        form: match (has(ODFORK_IMAGE_READ_IN), has(ODFORK_IMAGE_CHECKED)) {
            (true, _) => Form::ReadIn,
            (_, true) => Form::Faulted,
            _ => Form::Auto,
        },
        place: if has(ODFORK_IMAGE_ANYWHERE) { Place::Anywhere } else { Place::Saved },
        read: match (has(ODFORK_IMAGE_READ_PAGE), has(ODFORK_IMAGE_READ_ALL)) {
            (_, true) => Read::All,
            (true, _) => Read::Page,
            _ => Read::Around,
        },
        user_faults: has(ODFORK_IMAGE_USER_FAULTS),
        ..MapOptions::default()
    };
    // SAFETY: passed on from the caller.
    let name = unsafe { text(name) }.map(|name| name.to_string_lossy().into_owned());
    Image::open(file)?.map(name.as_deref(), &options)
}

/// Gives back all that one call of odfork_image_map() has mapped; `address` is what it returned. 0,
/// or EINVAL.
#[no_mangle]
pub extern "C" fn odfork_image_unmap(address: *mut c_void) -> c_int {
    let _guard = CancellationGuard::enter();
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    match mapped.iter().position(|(at, _)| *at == address as usize) {
        Some(at) => {
            let gone = mapped.swap_remove(at);
            drop(mapped);
            drop(gone);
            0
        }
        None => libc::EINVAL,
    }
}

/// Brings in everything that has not come yet. 0, or EINVAL.
#[no_mangle]
pub extern "C" fn odfork_image_populate(address: *mut c_void) -> c_int {
    let _guard = CancellationGuard::enter();
    let mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    match mapped.iter().find(|(at, _)| *at == address as usize) {
        Some((_, mapped)) => {
            mapped.populate();
            0
        }
        None => libc::EINVAL,
    }
}

/// Memory of `size` bytes (rounded up to whole pages) to build in: at an address that will be free
/// in another run. A program that reserves the same sizes in the same order finds the same
/// addresses. NULL: none is to be had. It is the caller's, to be given back by munmap().
#[no_mangle]
pub extern "C" fn odfork_image_reserve(size: usize) -> *mut c_void {
    let _guard = CancellationGuard::enter();
    odfork_image::reserve(size).map_or(core::ptr::null_mut(), <*mut u8>::cast)
}

/// Writes what differs between two images as a delta; `base` of the options is not used. Returns as
/// odfork_image_save().
///
/// # Safety
/// The pointers point to what is said here.
#[no_mangle]
pub unsafe extern "C" fn odfork_image_delta(
    base: *const c_char,
    newer: *const c_char,
    path: *const c_char,
    options: *const odfork_image_options,
    error: *mut odfork_image_error,
) -> c_int {
    let _guard = CancellationGuard::enter();
    let act = || {
        // SAFETY: passed on from the caller.
        let (base, newer, file, (options, codec, _)) = unsafe {
            (
                self::path(base, "base")?,
                self::path(newer, "newer")?,
                self::path(path, "path")?,
                read_options(options)?,
            )
        };
        let (base, newer) = (Image::open(base)?, Image::open(newer)?);
        let delta = Delta { base: &base, trust_checksums: options.trust_checksums != 0 };
        newer.save_delta(&file, delta, save_options(&options, codec, None)).map(drop)
    };
    answer(act(), error)
}

/// Writes a delta and the images below it as one whole image. Returns as odfork_image_save().
///
/// # Safety
/// The pointers point to what is said here.
#[no_mangle]
pub unsafe extern "C" fn odfork_image_apply(
    delta: *const c_char,
    path: *const c_char,
    options: *const odfork_image_options,
    error: *mut odfork_image_error,
) -> c_int {
    let _guard = CancellationGuard::enter();
    let act = || {
        // SAFETY: passed on from the caller.
        let (delta, file, (options, codec, _)) = unsafe {
            (self::path(delta, "delta")?, self::path(path, "path")?, read_options(options)?)
        };
        Image::open(delta)?.save_whole(&file, save_options(&options, codec, None)).map(drop)
    };
    answer(act(), error)
}
