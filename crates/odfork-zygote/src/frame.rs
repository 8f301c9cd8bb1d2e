//! Frames of the protocol, as bytes: docs/zygote.md.

use crate::{Error, Result};

const MAGIC: &[u8; 2] = b"OZ";
const VERSION: u8 = 1;
pub const HEADER: usize = 12;
const FIELD: usize = 8;
/// Larger fields travel in a file.
pub const INLINE: usize = 64 << 10;
pub const LARGEST: u64 = 1 << 30;
/// Flag: the fields are in the frame's first descriptor.
pub const IN_FILE: u32 = 1;

pub mod kind {
    pub const SPAWN: u8 = 1;
    pub const STOP: u8 = 3;
    pub const STARTED: u8 = 64;
    pub const EXITED: u8 = 65;
    pub const FAILED: u8 = 66;
    pub const STATE: u8 = 67;
    pub const READY: u8 = 68;
}

pub mod tag {
    pub const SCRIPT: u16 = 2;
    pub const MODULE: u16 = 3;
    pub const COMMAND: u16 = 4;
    pub const ARGUMENT: u16 = 6;
    pub const ENVIRONMENT: u16 = 7;
    pub const DIRECTORY: u16 = 8;
    pub const TARGETS: u16 = 9;
    pub const LIMIT: u16 = 10;
    pub const MASK: u16 = 11;
    pub const DEADLINE: u16 = 12;
    pub const DETACHED: u16 = 13;
    pub const GROUP: u16 = 14;
    pub const SESSION: u16 = 15;
    pub const IMPORT: u16 = 19;
    pub const SETUP: u16 = 20;
    pub const PATH: u16 = 21;
    pub const PROCESS: u16 = 64;
    pub const STATUS: u16 = 65;
    pub const USAGE: u16 = 66;
    pub const MESSAGE: u16 = 67;
    pub const THREADS: u16 = 68;
    pub const CHILDREN: u16 = 69;
    pub const FROZEN: u16 = 70;
    pub const REASON: u16 = 71;
}

/// A frame without its descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub request: u32,
    pub fields: Vec<(u16, Vec<u8>)>,
}

impl Frame {
    pub fn new(kind: u8, request: u32) -> Frame {
        Frame { kind, request, fields: Vec::new() }
    }

    pub fn add(&mut self, tag: u16, value: impl Into<Vec<u8>>) -> &mut Frame {
        self.fields.push((tag, value.into()));
        self
    }

    pub fn get(&self, tag: u16) -> Option<&[u8]> {
        self.fields.iter().find(|(t, _)| *t == tag).map(|(_, value)| &value[..])
    }

    /// A number of up to eight bytes; 0 when the field is missing.
    pub fn number(&self, tag: u16) -> u64 {
        let value = self.get(tag).unwrap_or_default();
        value.iter().take(8).rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    }

    pub fn text(&self, tag: u16) -> String {
        String::from_utf8_lossy(self.get(tag).unwrap_or_default()).into_owned()
    }

    /// The fields as bytes.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (tag, value) in &self.fields {
            body.extend(tag.to_le_bytes());
            body.extend([0, 0]);
            body.extend((value.len() as u32).to_le_bytes());
            body.extend(value);
        }
        body
    }

    pub fn header(&self, flags: u32) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend([VERSION, self.kind]);
        header.extend(self.request.to_le_bytes());
        header.extend(flags.to_le_bytes());
        header
    }

    /// Kind, request and flags of a frame; the fields follow by `parse`.
    pub fn head(data: &[u8]) -> Result<(Frame, u32)> {
        if data.len() < HEADER {
            return Err(Error::Protocol("a frame is shorter than its header"));
        }
        if &data[..2] != MAGIC || data[2] != VERSION {
            return Err(Error::Protocol("the other side speaks another version"));
        }
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| data[at + i]));
        Ok((Frame::new(data[3], number(4)), number(8)))
    }

    /// Takes the fields from a frame's body.
    pub fn parse(&mut self, mut body: &[u8]) -> Result<()> {
        while !body.is_empty() {
            if body.len() < FIELD {
                return Err(Error::Protocol("a field is cut off"));
            }
            let (head, rest) = body.split_at(FIELD);
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            if length > rest.len() {
                return Err(Error::Protocol("a field is longer than its frame"));
            }
            self.fields.push((u16::from_le_bytes([head[0], head[1]]), rest[..length].to_vec()));
            body = &rest[length..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_was() {
        let mut frame = Frame::new(kind::SPAWN, 7);
        frame.add(tag::ARGUMENT, "").add(tag::SCRIPT, "a.py").add(tag::MASK, [0o27, 0, 0, 0]);
        let (mut back, flags) = Frame::head(&frame.header(IN_FILE)).unwrap();
        back.parse(&frame.body()).unwrap();
        assert_eq!((&back, flags), (&frame, IN_FILE));
        assert_eq!(back.number(tag::MASK), 0o27);
        assert_eq!(back.number(tag::STATUS), 0);
        assert_eq!(back.text(tag::SCRIPT), "a.py");
    }

    #[test]
    fn no_bytes_make_the_parser_fail_otherwise_than_by_an_error() {
        assert!(Frame::head(b"OZ\x01\x01").is_err());
        assert!(Frame::head(b"OZ\x02\x01\0\0\0\0\0\0\0\0").is_err());
        for body in [&b"abc"[..], b"\x01\0\0\0\xff\xff\xff\xff", b"\x01\0\0\0\x02\0\0\0a"] {
            assert!(Frame::default().parse(body).is_err(), "{body:?}");
        }
    }
}
