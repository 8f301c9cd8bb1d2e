//! An opened image as the source of a save.

use crate::error::{Error, Result};
use crate::image::{Fate, Image, Room};
use crate::source::{Known, Source};
use crate::PAGE;

/// An image with its bases as a source: for deltas of two images, and for making whole images of
/// deltas.
#[derive(Debug)]
pub struct ImageSource<'a> {
    image: &'a Image,
    room: Room,
    fates: Vec<Fate>,
}

impl ImageSource<'_> {
    /// # Errors
    /// No memory.
    pub fn new(image: &Image) -> Result<ImageSource<'_>> {
        Ok(ImageSource { image, room: Room::new()?, fates: Vec::new() })
    }
}

impl Source for ImageSource<'_> {
    fn known(&mut self, address: u64, out: &mut [Known]) -> Result<()> {
        self.image.known(address, out)
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<()> {
        self.fates.clear();
        self.fates.resize(out.len() / PAGE, Fate::Zero);
        self.image.read(address, out, &mut self.fates, &mut self.room);
        for (at, fate) in self.fates.iter().enumerate() {
            match fate {
                Fate::Content => {}
                Fate::Zero => out[at * PAGE..][..PAGE].fill(0),
                Fate::Lost(why) => {
                    let address = address + (at * PAGE) as u64;
                    let (path, why) = (self.image.path().to_owned(), why.words().to_owned());
                    return Err(Error::Lost { path, address, why });
                }
            }
        }
        Ok(())
    }
}
