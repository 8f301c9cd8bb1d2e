//! Where the lines of a run go: all to its file, the samples and notes also to the text at its end.
//!
//! Owns what is printed and in which order. Does not own how tables look (`screen`) or what is compared (`odfork-report`).

use anyhow::Result;

use super::catalogue::Entry;
use super::matrix::matrix;
use super::runner::Sink;
use super::screen;
use odfork_samples::samples::{Line, Sample, Writer};
use odfork_samples::spawn_timings::ratios_of_starts;

/// Writes every line, and keeps the samples for the table.
pub struct Keeper {
    writer: Writer,
    samples: Vec<Sample>,
    notes: Vec<String>,
}

impl Sink for Keeper {
    fn put(&mut self, line: Line) {
        self.writer.put(&line);
        match line {
            Line::Sample(sample) => self.samples.push(sample),
            // What is so for every group is said once.
            Line::Note { text } if !self.notes.contains(&text) => self.notes.push(text),
            Line::End(end) => {
                self.notes.extend(end.wrongs.iter().map(|what| format!("WRONG: {what}")))
            }
            Line::Note { .. } | Line::Skip(_) | Line::Run(_) | Line::Engine { .. } => {}
        }
    }
}

impl Keeper {
    pub fn new(writer: Writer) -> Keeper {
        Keeper { writer, samples: Vec::new(), notes: Vec::new() }
    }

    pub fn count(&self) -> u64 {
        self.samples.len() as u64
    }

    /// The tables, the ratios, what the harness costs, the notes, and where the file is.
    pub fn print(self, entry: &Entry) -> Result<()> {
        print!("{}", screen::table(entry, &self.samples));
        if entry.name == "exec" {
            print!("{}", matrix(&self.samples));
            print!("{}", screen::ratios(&ratios_of_starts(&self.samples)));
        }
        if let Some(line) = screen::harness(entry, &self.samples) {
            println!("{line}");
        }
        for note in &self.notes {
            println!("note: {note}");
        }
        let count = self.samples.len();
        let path = self.writer.finish()?;
        println!("{count} samples in {}", path.display());
        Ok(())
    }
}
