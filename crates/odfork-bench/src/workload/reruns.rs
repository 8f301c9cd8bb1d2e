//! What a subject does to rerun published programs: the loops of Smith and Maguire 1988 (`grid`),
//! of Zhao, Gong and Fonseca 2021 (`touch`), of Tanaka 2019 (`rounds`) and of Zahariev 2009
//! (`exec`), and the service time of a page.
//!
//! As in `operations`, only what the command names is timed; memory is checked afterwards and is
//! then again what its pattern says.

use std::time::Instant;

use super::buffer::{Buffer, BLOCK_PAGES};
use super::children::{
    fork_and_wait, fork_untimed, is_harness_alone, nanoseconds, processor_time, Child, Failure,
    Gate, Slate,
};
use super::posix_spawn::Litter;
use super::program::Program;
use super::protocol::{Actions, Answer, Method, Via};
use super::subject::{Subject, Values};
use super::PAGE;
use crate::accounting::Usage;

/// What children write.
const MARK: u8 = 0xA5;
impl Subject {
    pub(super) fn grid(&mut self, forks: u32, permille: u32) -> Values {
        let pages = self.memory.portion(permille);
        let before = Usage::with_children();
        let start = Instant::now();
        for _ in 0..forks {
            fork_untimed(|| {
                self.memory.mark(pages, MARK);
                true
            })?;
        }
        let real = nanoseconds(start.elapsed());
        let used = Usage::with_children().since(before);
        self.require_intact("grid")?;
        let (user, system) = (used.user_ns as f64, used.system_ns as f64);
        Ok(values([("real", real), ("user", user), ("sys", system)]))
    }

    pub(super) fn service(&mut self) -> Values {
        let slate = Slate::new()?;
        fork_and_wait(|| {
            let start = Instant::now();
            self.memory.mark(self.memory.pages(), MARK);
            slate.write(start.elapsed().as_nanos() as u64);
            true
        })?;
        self.require_intact("service")?;
        Ok(Answer::value("service", slate.read() as f64))
    }

    /// The child must see what was there at the fork, the parent what it wrote.
    pub(super) fn touch(&mut self, read_permille: u32, share_permille: u32) -> Values {
        let mix = Mix { pages: self.memory.portion(share_permille), read_permille };
        let buffer = self.take_buffer()?;
        let gate = Gate::shut()?;
        let child = Child::fork(|| {
            gate.wait();
            self.memory.first_wrong_page().is_none()
        })?;
        mix.access(self, &buffer);
        let total = nanoseconds(child.started.elapsed());
        gate.open();
        let fork = child.reap()?.call;
        if let Some(page) = mix.restore(self, &buffer) {
            return Err(Failure::Wrong(format!("touch: page {page} lost what was copied to it")));
        }
        self.require_intact("touch")?;
        self.buffer = Some(buffer);
        Ok(values([("total", total), ("fork", fork)]))
    }

    /// The buffer of `touch`, kept from one to the next: what its first faults make an engine do is
    /// not of any sample.
    fn take_buffer(&mut self) -> Result<Buffer, Failure> {
        let buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => {
                let buffer = Buffer::mapped(self.memory.bytes())?;
                buffer.blank();
                let _ = self.engine.refreeze();
                buffer
            }
        };
        buffer.blank();
        Ok(buffer)
    }

    pub(super) fn rounds(&mut self, via: Via, rounds: u32) -> Values {
        let mut times = Vec::with_capacity(2 * rounds as usize);
        if rounds > 0 {
            // What an earlier fork left to be copied is not of these rounds.
            self.memory.mark(self.memory.pages(), 0);
        }
        self.write_rounds(rounds, &mut times);
        let mut kept = None;
        match via {
            Via::Fork => fork_and_wait(|| true).map(drop)?,
            // It must see what was there at the fork.
            Via::Kept => {
                let gate = Gate::shut()?;
                let child = Child::fork(|| {
                    gate.wait();
                    rounds == 0 || self.memory.unmark(rounds as u8).is_none()
                })?;
                kept = Some((gate, child));
            }
            Via::Vfork => Program::make()?.run(Method::VforkExec, Actions::Plain)?,
            Via::Spawn => Program::make()?.run(Method::PosixSpawn, Actions::Plain)?,
        }
        self.write_rounds(rounds, &mut times);
        if let Some((gate, child)) = kept {
            gate.open();
            child.reap()?;
        }
        if rounds > 0 {
            if let Some(page) = self.memory.unmark(times.len() as u8) {
                return Err(Failure::Wrong(format!("rounds: page {page} lost what was written")));
            }
        }
        self.require_intact("rounds")?;
        let phases = ["before", "after"].into_iter();
        let labels = phases.flat_map(|phase| (1..=rounds).map(move |n| format!("{phase}-{n}")));
        Ok(Answer::Values(labels.zip(times).collect()))
    }

    /// Processor time of the thread, as the published program took it: other work does not count.
    fn write_rounds(&self, rounds: u32, times: &mut Vec<f64>) {
        for _ in 0..rounds {
            // Another byte each time; the last one is the number of rounds so far.
            let byte = (times.len() + 1) as u8;
            let start = processor_time();
            self.memory.mark(self.memory.pages(), byte);
            times.push(processor_time() - start);
        }
    }

    pub(super) fn exec(&mut self, method: Method, actions: Actions, count: u32) -> Values {
        let program = Program::make()?;
        let _litter = Litter::spread(actions.litter().unwrap_or(0))?;
        let before = Usage::with_children();
        let start = Instant::now();
        for _ in 0..count {
            program.run(method, actions)?;
        }
        let real = nanoseconds(start.elapsed());
        let used = Usage::with_children().since(before);
        self.require_intact("exec")?;
        let times = [("each", real), ("user", used.user_ns as f64), ("sys", used.system_ns as f64)];
        Ok(values(times.map(|(label, time)| (label, time / f64::from(count.max(1))))))
    }
}

fn values<const N: usize>(numbers: [(&str, f64); N]) -> Answer {
    Answer::Values(numbers.map(|(label, number)| (label.to_string(), number)).into())
}

/// Which blocks of the first `pages` pages are read and which are written.
struct Mix {
    pages: usize,
    read_permille: u32,
}

impl Mix {
    /// Reads are spread evenly: block n is one when the count of reads due grows there.
    fn reads(&self, index: usize) -> bool {
        let due = |block: usize| block * self.read_permille as usize / 1000;
        let block = index / BLOCK_PAGES;
        due(block + 1) > due(block)
    }

    fn access(&self, subject: &Subject, buffer: &Buffer) {
        let alone = is_harness_alone();
        subject.memory.each_block(self.pages, |index, block, pages| {
            // SAFETY: a block begins at a multiple of its largest size, of which the buffer is one
            // too, so the piece lies in the buffer.
            let piece = unsafe { buffer.start().add(buffer.page_for(index) * PAGE) };
            let (from, to) = if self.reads(index) { (block, piece) } else { (piece, block) };
            if alone {
                std::hint::black_box((from, to));
                return;
            }
            // SAFETY: both are `pages` pages of ours, of different mappings.
            unsafe { std::ptr::copy_nonoverlapping(from, to, pages * PAGE) };
        });
    }

    /// Puts the pattern back where blocks were written. Which words were copied there follows from
    /// the pieces of the buffer: what was read into them last. Returns the first page whose first
    /// word is another.
    fn restore(&self, subject: &Subject, buffer: &Buffer) -> Option<usize> {
        if is_harness_alone() {
            return None;
        }
        let memory = &subject.memory;
        let mut heads = vec![!0u64; buffer.pages()];
        let mut wrong = None;
        memory.each_block(self.pages, |index, block, pages| {
            for page in 0..pages {
                let head = &mut heads[buffer.page_for(index) + page];
                // SAFETY: a page of this block.
                let first = unsafe { block.add(page * PAGE) }.cast::<u64>();
                if self.reads(index) {
                    *head = memory.head(index + page);
                    continue;
                }
                // SAFETY: the first word of a page of ours.
                if unsafe { first.read_volatile() } != *head && wrong.is_none() {
                    wrong = Some(index + page);
                }
                memory.restore(index + page, first);
            }
        });
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_have_their_share_and_are_spread() {
        let reads = |read_permille| {
            let mix = Mix { pages: 0, read_permille };
            (0..1000).filter(|block| mix.reads(block * BLOCK_PAGES)).count()
        };
        assert_eq!([0, 250, 500, 750, 1000].map(reads), [0, 250, 500, 750, 1000]);
        let half = Mix { pages: 0, read_permille: 500 };
        let first: Vec<bool> = (0..4).map(|block| half.reads(block * BLOCK_PAGES)).collect();
        assert_eq!(first, [false, true, false, true]);
    }
}
