//! Traces as streams of batches: files or standard input, plain or packed (told by their first
//! bytes, not by the name).

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};

use anyhow::{bail, ensure, Context, Result};
use flate2::read::MultiGzDecoder;
use odfork_policy::trace::{Batch, Parser, Summary};
use odfork_proc::interrupt;

const BUFFER: usize = 1 << 18;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A trace being read.
pub struct Source {
    pub name: String,
    bytes: Box<dyn Read>,
    parser: Parser,
    buffer: Vec<u8>,
    filled: usize,
    ended: bool,
    pub summary: Summary,
    pub interrupted: bool,
}

impl Source {
    /// Opens `name`; `-` is standard input.
    pub fn open(name: &str) -> Result<Source> {
        let raw: Box<dyn Read> = match name {
            "-" => Box::new(io::stdin()),
            _ => {
                Box::new(File::open(name).with_context(|| format!("cannot open the trace {name}"))?)
            }
        };
        Ok(Source {
            name: name.to_owned(),
            bytes: unpacked(raw).with_context(|| format!("cannot read the trace {name}"))?,
            parser: Parser::new(),
            buffer: vec![0; BUFFER],
            filled: 0,
            ended: false,
            summary: Summary::default(),
            interrupted: false,
        })
    }

    /// The next piece; `None` at the end, and after Ctrl-C.
    pub fn next(&mut self) -> Result<Option<Batch>> {
        let mut batch = Batch::default();
        while !self.ended && batch.references.is_empty() && batch.marks.is_empty() {
            self.interrupted = interrupt::asked();
            if self.interrupted {
                return Ok(None);
            }
            self.read(&mut batch)?;
        }
        if batch == Batch::default() {
            let empty = self.summary.references == 0;
            ensure!(
                !empty,
                "{}: the trace is empty; a page number per line is expected",
                self.name
            );
            return Ok(None);
        }
        self.summary.add(&batch);
        Ok(Some(batch))
    }

    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        let more = match self.bytes.read(&mut self.buffer[self.filled..]) {
            Ok(more) => more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => {
                bail!("{}: after line {}: {}", self.name, self.parser.lines(), why(&error))
            }
        };
        self.filled += more;
        self.ended = more == 0;
        let text = &self.buffer[..self.filled];
        let read = if self.ended {
            self.parser.finish(text, batch).map(|()| text.len())
        } else {
            self.parser.feed(text, batch)
        };
        let used = read.map_err(|wrong| anyhow::anyhow!("{}: {wrong}", self.name))?;
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(())
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the packed data end early: the file is truncated; record or copy it again".to_owned()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            format!("the packed data are damaged ({error}); record or copy the file again")
        }
        _ => format!("cannot read: {error}"),
    }
}

fn unpacked(mut raw: Box<dyn Read>) -> Result<Box<dyn Read>> {
    let mut first = Vec::new();
    raw.by_ref().take(4).read_to_end(&mut first)?;
    let whole = Cursor::new(first.clone()).chain(raw);
    Ok(if first.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole)))
    } else if first == ZSTD {
        Box::new(zstd::stream::read::Decoder::new(whole)?)
    } else {
        Box::new(whole)
    })
}
