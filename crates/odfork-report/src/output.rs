//! The files of a report: its folder, its plots, and what is said when one cannot be written.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::blocks::{Block, Chapter, Figure};

/// Fails before the work when nothing could be written.
pub fn prepare(out: &Path) -> Result<()> {
    let plots = out.join("plots");
    fs::create_dir_all(&plots).with_context(|| {
        format!("cannot make {}; name a folder that can be written with --out", plots.display())
    })
}

pub fn write_plots(chapters: &[Chapter], out: &Path) -> Result<usize> {
    let blocks = chapters.iter().flat_map(|chapter| &chapter.content.blocks);
    let figures: Vec<&Figure> = blocks
        .filter_map(|block| if let Block::Figures(figures) = block { Some(figures) } else { None })
        .flatten()
        .collect();
    for figure in &figures {
        let base = out.join("plots").join(&figure.name);
        write(&base.with_extension("svg"), figure.drawing.file().as_bytes())?;
        write(&base.with_extension("png"), &figure.drawing.png()?)?;
    }
    Ok(figures.len())
}

pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes)
        .with_context(|| format!("cannot write {}; name another folder with --out", path.display()))
}
