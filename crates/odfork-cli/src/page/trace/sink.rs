//! Where a trace is written: plain, gzip or zstd, by the file's name.

use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::write::GzEncoder;
use flate2::Compression;
use zstd::stream::write::Encoder;

enum Form {
    Plain(File),
    Gzip(GzEncoder<File>),
    Zstd(Encoder<'static, File>),
}

impl Write for Form {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Form::Plain(to) => to.write(bytes),
            Form::Gzip(to) => to.write(bytes),
            Form::Zstd(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Remembers the first error; [`Sink::check`] and [`Sink::finish`] tell it.
pub struct Sink {
    to: BufWriter<Form>,
    name: String,
    failed: Option<io::Error>,
}

impl Sink {
    pub fn create(path: &Path) -> Result<Sink> {
        let name = path.display().to_string();
        let file = File::create(path)
            .with_context(|| format!("cannot create {name}; name another file with --out"))?;
        let form = match path.extension().and_then(|ext| ext.to_str()) {
            Some("gz") => Form::Gzip(GzEncoder::new(file, Compression::fast())),
            Some("zst" | "zstd") => Form::Zstd(Encoder::new(file, 3)?),
            _ => Form::Plain(file),
        };
        Ok(Sink { to: BufWriter::with_capacity(1 << 16, form), name, failed: None })
    }

    pub fn line(&mut self, text: Arguments) {
        if let Err(error) = self.to.write_fmt(text) {
            self.failed.get_or_insert(error);
        }
    }

    pub fn check(&mut self) -> Result<()> {
        match self.failed.take() {
            Some(error) => Err(error).with_context(|| format!("cannot write {}", self.name)),
            None => Ok(()),
        }
    }

    /// Ends the packed form; returns the size of the file in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.failed.take().map_or(Ok(()), Err)?;
        let file = match self.to.into_inner().map_err(io::IntoInnerError::into_error)? {
            Form::Plain(file) => file,
            Form::Gzip(encoder) => encoder.finish()?,
            Form::Zstd(encoder) => encoder.finish()?,
        };
        Ok(file.metadata()?.len())
    }
}
