//! Memory images: regions of memory saved to a file, and opened by another run without reading it
//! in.
//!
//! The way of a save: [`Process`] (this one or another) or an opened image is the source, [`save`]
//! writes it, whole or as a delta against a base. The way of a load: [`Image::open`] reads the head
//! of the file (and of its bases), [`Image::map`] puts the regions into memory; their pages come
//! when they are touched. Three forms: *mapped* (the file itself, mapped privately), *faulted*
//! (anonymous memory served by a userfaultfd thread, which checks and unpacks), *read in* (all at
//! once). The file: docs/image-format.md; what each form is good for: docs/images.md.

mod codec;
mod error;
mod faults;
mod format;
mod given;
mod image;
mod image_source;
mod index;
mod map;
mod memory;
mod options;
mod overlay;
mod process;
mod reserve;
mod save;
mod selection;
mod source;
mod temporary;
mod write;

pub use codec::Codec;
pub use error::{Error, Result};
pub use faults::Status;
pub use format::{Id, Region};
pub use given::given;
pub use image::{Fate, Image, Lost, Room, Summary};
pub use image_source::ImageSource;
pub use map::Mapped;
pub use options::{Delta, Form, MapOptions, Place, Read, SaveOptions, Saved};
pub use process::Process;
pub use reserve::reserve;
pub use save::save;
pub use selection::RegionWish;
pub use source::{Known, Source};

/// Bytes of a page; images know only this size.
pub const PAGE: usize = 4096;
