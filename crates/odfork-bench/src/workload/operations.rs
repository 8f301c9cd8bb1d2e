//! What a subject does on command. Each operation times only what its name says; preparing and
//! checking stay outside.
//!
//! Every operation that lets a child write checks afterwards that the parent's memory is untouched,
//! and every child checks what it read: a fast fork that shows wrong bytes is worth nothing. Those
//! that rerun published programs are in `reruns`.

use std::time::Instant;

use super::children::{
    fork_and_wait, is_harness_alone, nanoseconds, Child, Failure, Gate, Slate, Timing,
};
use super::hugetlb;
use super::memory::{map_anonymous, Layout, SPARSE_STEP};
use super::protocol::{Answer, Command};
use super::subject::{Subject, Values};
use super::PAGE;
use odfork_samples::stats::median;

/// The sparse writer's pages: not the ones the parent dirties.
const SPARSE_FROM: usize = 5;
/// A child of a crowd looks at one page in 64.
const CROWD_STEP: usize = 64;
/// A growing block ends at this many times its first size, in steps of a quarter.
const GROWTH: usize = 4;

impl Subject {
    pub fn obey(&mut self, command: Command) -> Answer {
        if self.memory.layout() == Layout::Hugetlb && !is_harness_alone() {
            if let Some(lack) = hugetlb::lack(command, self.memory.pages()) {
                return Answer::Unavailable(lack);
            }
        }
        self.dispatch(command).unwrap_or_else(Answer::from)
    }

    fn dispatch(&mut self, command: Command) -> Values {
        match command {
            Command::Fork { calls } => self.fork(calls),
            Command::Read => self.read(),
            Command::Sparse => self.overwrite("sparse", SPARSE_FROM, SPARSE_STEP),
            Command::Full => self.overwrite("full", 0, 1),
            Command::Fault => self.fault(),
            Command::Crowd { children } => self.crowd(children),
            Command::Cycle { calls } => self.cycle(calls),
            Command::Freeze => self.freeze(),
            Command::Fold => {
                timed(|| self.engine.refreeze()).map(|time| Answer::value("fold", time))
            }
            Command::Thaw => self.thaw(),
            Command::FreezeThaw => self.freeze_thaw(),
            Command::CopyTouched => self.copy(true),
            Command::CopyFresh => self.copy(false),
            Command::Rewrite => self.rewrite(),
            Command::Realloc { bytes } => grow(bytes as usize),
            Command::Verify => self.verify(),
            Command::Stats => self.stats(),
            Command::Grid { forks, permille } => self.grid(forks, permille),
            Command::Touch { read_permille, share_permille } => {
                self.touch(read_permille, share_permille)
            }
            Command::Service => self.service(),
            Command::Rounds { via, rounds } => self.rounds(via, rounds),
            Command::Exec { method, actions, count } => self.exec(method, actions, count),
        }
    }

    fn fork(&mut self, calls: u32) -> Values {
        let timings = repeat(calls, || fork_and_wait(|| true))?;
        let label = |label: &str, part: fn(&Timing) -> f64| {
            (label.to_string(), middle(timings.iter().map(part)))
        };
        Ok(Answer::Values(vec![
            label("fork", |timing| timing.call),
            label("fork-cpu", |timing| timing.processor),
            label("total", |timing| timing.total),
        ]))
    }

    fn read(&mut self) -> Values {
        let expected = self.memory.expected_bytes();
        let timing = fork_and_wait(|| self.memory.sum_bytes() == expected)?;
        Ok(Answer::value("read", timing.total))
    }

    fn overwrite(&mut self, label: &str, from: usize, step: usize) -> Values {
        let expected = self.memory.expected_words(from, step);
        let timing = fork_and_wait(|| self.memory.overwrite(from, step) == expected)?;
        self.require_intact(label)?;
        Ok(Answer::value(label, timing.total))
    }

    /// The middle page: after a fork its tables have been used by nobody.
    fn fault(&mut self) -> Values {
        let Some(word) = self.memory.word_of(self.memory.pages() / 2) else {
            return Err(Failure::Unavailable("this subject holds no memory".into()));
        };
        let word = (!is_harness_alone()).then_some(word);
        let slate = Slate::new()?;
        fork_and_wait(|| {
            let start = Instant::now();
            if let Some(word) = word {
                // SAFETY: a word of a page of ours.
                unsafe { word.write_volatile(!0) };
            }
            slate.write(start.elapsed().as_nanos() as u64);
            true
        })?;
        self.require_intact("fault")?;
        Ok(Answer::value("fault", slate.read() as f64))
    }

    fn crowd(&mut self, count: u32) -> Values {
        let expected = self.memory.expected_words(0, CROWD_STEP);
        let gate = Gate::shut()?;
        let start = Instant::now();
        let children = repeat(count, || {
            Child::fork(|| {
                gate.wait();
                self.memory.sum_words(0, CROWD_STEP) == expected
            })
        });
        gate.open();
        let children = children?;
        let call = middle(children.iter().map(|child| child.call));
        for child in children {
            child.reap()?;
        }
        Ok(Answer::Values(vec![
            ("crowd".into(), call),
            ("total".into(), nanoseconds(start.elapsed())),
        ]))
    }

    fn cycle(&mut self, calls: u32) -> Values {
        self.memory.dirty_sparse();
        let mut values = vec![("unfolded".to_string(), self.checked_forks(calls)?)];
        if self.engine.can_fold() {
            values.push(("fold".into(), timed(|| self.engine.refreeze())?));
        }
        values.push(("folded".into(), self.checked_forks(calls)?));
        self.require_intact("cycle")?;
        Ok(Answer::Values(values))
    }

    /// Median time of the fork call; one more child, untimed, checks the bytes.
    fn checked_forks(&self, calls: u32) -> Result<f64, Failure> {
        let timings = repeat(calls, || fork_and_wait(|| true))?;
        let expected = self.memory.expected_words(0, SPARSE_STEP);
        fork_and_wait(|| self.memory.sum_words(0, SPARSE_STEP) == expected)?;
        Ok(middle(timings.iter().map(|timing| timing.call)))
    }

    fn freeze(&mut self) -> Values {
        let freeze = timed(|| self.engine.freeze())?;
        self.require_intact("freeze")?;
        Ok(Answer::value("freeze", freeze))
    }

    fn thaw(&mut self) -> Values {
        let thaw = timed(|| self.engine.thaw())?;
        self.require_intact("thaw")?;
        Ok(Answer::value("thaw", thaw))
    }

    fn freeze_thaw(&mut self) -> Values {
        let freeze = timed(|| self.engine.freeze())?;
        let thaw = timed(|| self.engine.thaw())?;
        self.require_intact("freeze-thaw")?;
        Ok(Answer::Values(vec![("freeze".into(), freeze), ("thaw".into(), thaw)]))
    }

    fn copy(&mut self, touched: bool) -> Values {
        let length = self.memory.bytes();
        let target =
            map_anonymous(length).map_err(|error| Failure::Unavailable(error.to_string()))?;
        if touched && !is_harness_alone() {
            for page in (0..length).step_by(PAGE) {
                // SAFETY: page < length, all of it just mapped.
                unsafe { target.add(page).write_volatile(1) };
            }
        }
        let start = Instant::now();
        // SAFETY: target has room for `length` bytes and is a new mapping.
        unsafe { self.memory.copy_to(target) };
        let copy = nanoseconds(start.elapsed());
        if is_harness_alone() {
            // SAFETY: the target is given back, used by nobody.
            unsafe { libc::munmap(target.cast(), length) };
            return Ok(Answer::value("copy", copy));
        }
        let last = length.saturating_sub(PAGE);
        // SAFETY: the first byte of the last page of the target; then the target is given back,
        // used by nobody.
        let (copied, original) = unsafe {
            let copied = target.add(last).cast::<u64>().read_volatile();
            libc::munmap(target.cast(), length);
            (copied, self.memory.word_of(last / PAGE).map(|word| *word))
        };
        if original != Some(copied) {
            return Err(Failure::Wrong("memcpy gave other bytes".into()));
        }
        Ok(Answer::value("copy", copy))
    }

    fn rewrite(&mut self) -> Values {
        let start = Instant::now();
        self.memory.rewrite();
        fork_and_wait(|| true)?;
        Ok(Answer::value("rewrite", nanoseconds(start.elapsed())))
    }

    /// 1. A child is forked and held.
    /// 2. The parent writes.
    /// 3. The child must see the bytes of step 1 (its copy of `memory` has the old generation).
    /// 4. The parent must see its own.
    /// 5. A second child overwrites those pages (not all: the largest subjects would not fit
    ///    twice).
    /// 6. The parent must not notice.
    fn verify(&mut self) -> Values {
        let start = Instant::now();
        let gate = Gate::shut()?;
        let held = Child::fork(|| {
            gate.wait();
            self.memory.first_wrong_page_fully().is_none()
        })?;
        self.memory.dirty_sparse();
        gate.open();
        held.reap()?;
        let expected = self.memory.expected_words(0, SPARSE_STEP);
        fork_and_wait(|| self.memory.overwrite(0, SPARSE_STEP) == expected)?;
        if let Some(page) = self.memory.first_wrong_page_fully() {
            let text = format!("verify: page {page} of the parent has wrong content");
            return Err(Failure::Wrong(text));
        }
        Ok(Answer::value("verify", nanoseconds(start.elapsed())))
    }

    fn stats(&mut self) -> Values {
        let text = self.engine.stats().map_err(Failure::Unavailable)?;
        Ok(Answer::Text(text))
    }
}

/// The time of a call of the engine.
fn timed(call: impl FnOnce() -> Result<(), String>) -> Result<f64, Failure> {
    let start = Instant::now();
    call().map_err(Failure::Unavailable)?;
    Ok(nanoseconds(start.elapsed()))
}

fn repeat<T>(count: u32, call: impl FnMut() -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    std::iter::repeat_with(call).take(count as usize).collect()
}

fn middle(numbers: impl Iterator<Item = f64>) -> f64 {
    median(&numbers.collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// A malloc'ed block that existed at a fork grows by realloc, a word written in every new page.
fn grow(first: usize) -> Values {
    let first = if is_harness_alone() { 0 } else { first };
    // SAFETY: malloc has no precondition; the result is checked by `stamp` before use.
    let mut block = unsafe { libc::malloc(first) }.cast::<u8>();
    stamp(block, 0, first)?;
    let _: Timing = fork_and_wait(|| true)?;
    let start = Instant::now();
    let mut size = first;
    while size < first * GROWTH {
        let next = size + size / 4;
        // SAFETY: block came from malloc or realloc and is replaced by the result.
        block = unsafe { libc::realloc(block.cast(), next) }.cast();
        stamp(block, size, next)?;
        size = next;
    }
    let growth = nanoseconds(start.elapsed());
    let good = (0..size / PAGE).all(|page| {
        // SAFETY: page * PAGE + 8 <= size; malloc'ed blocks are aligned for u64.
        unsafe { block.add(page * PAGE).cast::<u64>().read_volatile() == page as u64 }
    });
    // SAFETY: block came from realloc and is not used after.
    unsafe { libc::free(block.cast()) };
    if !good {
        return Err(Failure::Wrong("a block grown by realloc lost bytes".into()));
    }
    Ok(Answer::value("realloc", growth))
}

/// Writes its own number into each page from byte `from` up to byte `to` of a block.
fn stamp(block: *mut u8, from: usize, to: usize) -> Result<(), Failure> {
    if block.is_null() {
        return Err(Failure::Unavailable(format!("no {to} bytes of heap")));
    }
    for page in from / PAGE..to / PAGE {
        // SAFETY: page * PAGE + 8 <= to, the size of the block.
        unsafe { block.add(page * PAGE).cast::<u64>().write_volatile(page as u64) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::memory::Memory;
    use crate::workload::protocol::{Actions, Method, Via};
    use crate::workload::{prepare, Setup};

    fn subject() -> Subject {
        Subject::new(Memory::hold(4 << 20, Layout::Mapped).unwrap())
    }

    fn labels(answer: Answer) -> Vec<String> {
        match answer {
            Answer::Values(values) => values.into_iter().map(|(label, _)| label).collect(),
            other => panic!("{other}"),
        }
    }

    /// Every command a subject without an engine can obey, but for what each of them answers.
    fn stock_commands() -> Vec<Command> {
        let lines =
            "fork 2, read, sparse, full, fault, crowd 3, copy-touched, copy-fresh, rewrite, \
            realloc 1048576, verify, grid 3 300, grid 0 1000, service, touch 1000 1000, \
            touch 250 1000, touch 0 333, touch 500 0";
        let mut commands: Vec<Command> =
            lines.split(", ").map(|line| line.parse().unwrap()).collect();
        commands.extend(Via::ALL.map(|via| Command::Rounds { via, rounds: 1 }));
        let actions = Actions::Plain;
        commands.extend(Method::NATIVE.map(|method| Command::Exec { method, actions, count: 2 }));
        for method in [Method::PosixSpawn, Method::Spawn] {
            commands.extend(Actions::ALL.map(|actions| Command::Exec {
                method,
                actions,
                count: 2,
            }));
        }
        commands
    }

    #[test]
    fn every_stock_act_answers_with_its_labels() {
        let mut subject = subject();
        for command in stock_commands() {
            assert_eq!(labels(subject.obey(command)), command.labels(), "{command}");
        }
        assert_eq!(labels(subject.obey(Command::Cycle { calls: 1 })), ["unfolded", "folded"]);
        assert!(subject.is_intact());
        assert_eq!(subject.memory.first_wrong_page_fully(), None);
        let rounds = Command::Rounds { via: Via::Fork, rounds: 300 };
        assert_eq!(labels(subject.obey(rounds)).last().unwrap(), "after-300");
    }

    #[test]
    fn with_the_harness_alone_every_act_answers_and_touches_nothing() {
        // A thread of its own: the switch is never turned back.
        let alone = std::thread::spawn(|| {
            let setup = Setup { null: true, ..Setup::new(64 << 30, Layout::Mapped) };
            let mut subject = prepare(setup).unwrap();
            // 64 GB would not fit if they were touched.
            for command in stock_commands() {
                assert_eq!(labels(subject.obey(command)), command.labels(), "{command}");
            }
        });
        alone.join().unwrap();
    }

    #[test]
    fn acts_of_the_engine_are_unavailable_without_one() {
        let mut subject = subject();
        for command in [Command::Freeze, Command::Fold, Command::Thaw, Command::Stats] {
            let answer = subject.obey(command);
            assert!(matches!(answer, Answer::Unavailable(_)), "{answer}");
        }
    }

    #[test]
    fn damage_in_the_parent_is_a_wrong_answer() {
        let mut subject = subject();
        // SAFETY: a word of a page of the memory held above.
        unsafe { subject.memory.word_of(40).unwrap().write_volatile(7) };
        let answer = subject.obey(Command::Sparse);
        assert!(matches!(&answer, Answer::Wrong(what) if what.contains("page 40")));
        assert!(matches!(subject.obey(Command::Read), Answer::Wrong(_)));
        assert!(matches!(subject.obey(Command::Verify), Answer::Wrong(_)));
        for command in [
            Command::Grid { forks: 1, permille: 0 },
            Command::Touch { read_permille: 1000, share_permille: 1000 },
            Command::Service,
            Command::Rounds { via: Via::Fork, rounds: 0 },
            Command::Exec { method: Method::Spawn, actions: Actions::Pipes, count: 0 },
        ] {
            assert!(matches!(subject.obey(command), Answer::Wrong(_)), "{command}");
        }
    }

    #[test]
    fn a_subject_without_memory_forks_but_has_no_page_to_fault() {
        let mut empty = Subject::new(Memory::hold(0, Layout::Mapped).unwrap());
        assert_eq!(labels(empty.obey(Command::Fork { calls: 1 })), ["fork", "fork-cpu", "total"]);
        assert!(matches!(empty.obey(Command::Fault), Answer::Unavailable(_)));
        for command in [
            Command::Grid { forks: 1, permille: 1000 },
            Command::Touch { read_permille: 500, share_permille: 1000 },
            Command::Service,
            Command::Rounds { via: Via::Spawn, rounds: 1 },
        ] {
            assert_eq!(labels(empty.obey(command)), command.labels(), "{command}");
        }
    }
}
