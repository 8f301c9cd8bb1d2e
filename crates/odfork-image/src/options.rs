//! What a caller asks for when saving and loading, and what a save says it did.
//!
//! Owns the options and their defaults; no code that acts.

use crate::codec::Codec;
use crate::format::Id;
use crate::image::Image;

/// What a delta leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The image that the delta is made against, and needs when it is opened.
    pub base: &'a Image,
    /// Pages of equal checksum (64 bits) count as equal without being compared. Faster; but memory
    /// that an enemy can fill may hold pages made to have equal checksums.
    pub trust_checksums: bool,
}

/// How an image is written.
pub struct SaveOptions<'a> {
    /// How clusters are packed.
    pub codec: Codec,
    /// Pages packed, read and checked together: a power of two up to 64.
    pub cluster_pages: u32,
    /// Only what differs from this image.
    pub delta: Option<Delta<'a>>,
    /// Waits until the disk has it. Without, a crash of the machine soon after may leave an image
    /// that is refused.
    pub sync: bool,
    /// Called now and then, and when the last page has been read, with pages done and pages in all;
    /// false stops.
    pub progress: Option<&'a mut dyn FnMut(u64, u64) -> bool>,
}

impl Default for SaveOptions<'_> {
    fn default() -> Self {
        SaveOptions {
            codec: Codec::None,
            cluster_pages: 16,
            delta: None,
            sync: true,
            progress: None,
        }
    }
}

impl std::fmt::Debug for SaveOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(out, "SaveOptions {{ {:?}, {} pages }}", self.codec, self.cluster_pages)
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// What it holds, bases included.
    pub id: Id,
    /// Pages of all regions.
    pub pages: u64,
    /// Of these, pages whose content was written.
    pub stored_pages: u64,
    /// Of these, pages of zeros.
    pub zero_pages: u64,
    /// Pages that are as in the base.
    pub base_pages: u64,
    /// Length of the file.
    pub file_bytes: u64,
}

/// How pages come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Mapped where the image allows it, else faulted where the kernel allows it, else read in.
    #[default]
    Auto,
    /// By the kernel from the file, unchecked. `MADV_DONTNEED` shows the image again.
    Mapped,
    /// On first touch by a thread of this library, checked and unpacked; memory is anonymous.
    Faulted,
    /// All before `map` returns, checked; memory is anonymous.
    ReadIn,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 4] = [Form::Auto, Form::Mapped, Form::Faulted, Form::ReadIn];

    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Auto => "auto",
            Form::Mapped => "mapped",
            Form::Faulted => "faulted",
            Form::ReadIn => "read-in",
        }
    }
}

/// Where regions go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Where they were saved; anything there is an error.
    #[default]
    Saved,
    /// Anywhere: for content without pointers into itself.
    Anywhere,
}

/// What the kernel reads around a touched page of the mapped form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Read {
    /// As much as the device's read-ahead says (`/sys/class/bdi/*/read_ahead_kb`).
    #[default]
    Around,
    /// The touched page only.
    Page,
    /// Forward, and pages behind may go again.
    Sequential,
    /// Begin to read everything at once, in the background.
    All,
}

/// How an image is put into memory.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    /// How its pages come.
    pub form: Form,
    /// At which addresses.
    pub place: Place,
    /// What the kernel reads ahead; mapped form only.
    pub read: Read,
    /// Pages brought in together by a fault of the faulted form: a power of two up to 256.
    pub prefetch: usize,
    /// Where userfaultfd is forbidden: take one that serves only what the program itself touches.
    /// System calls on memory that has not come yet then fail with EFAULT.
    pub user_faults: bool,
    /// Where userfaultfd is forbidden: read everything in instead (and say so in
    /// [`Mapped::note`](crate::Mapped::note)).
    pub fall_back: bool,
}

impl Default for MapOptions {
    fn default() -> Self {
        MapOptions {
            form: Form::Auto,
            place: Place::Saved,
            read: Read::Around,
            prefetch: 16,
            user_faults: false,
            fall_back: true,
        }
    }
}
