//! Threads of the program while they are held by ptrace: the table of them.
//!
//! Owns the data, which lies in the scratch memory; `hold` does the holding. All zeros is valid.

/// Threads at most; with more, fork stays plain.
pub const MOST: usize = 1024;

/// How other threads may be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holding {
    /// By userfaultfd, else by ptrace.
    #[default]
    Auto,
    /// By userfaultfd, or not at all.
    Userfaultfd,
    /// By ptrace, or not at all.
    Ptrace,
}

/// How far the hold of a thread has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Stage {
    #[default]
    None,
    Traced,
    Asked,
    Stands,
    Gone,
}

/// A thread of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    pub tid: i32,
    pub stage: Stage,
    /// A signal that was about to be delivered.
    pub signal: i32,
}

/// All of them.
pub struct Table {
    pub all: [Held; MOST],
    count: usize,
    pub pipe: Pipe,
    pub process: Process,
}

/// The process, to copy descriptors from.
#[derive(Clone, Copy)]
pub struct Process {
    pub pid: i32,
    /// A descriptor of it; -1 where copying is forbidden.
    pub descriptor: i32,
}

/// What the program's memory is read and written through: the system calls that do that directly
/// are forbidden in some containers, and an address of the program may lead nowhere.
#[derive(Clone, Copy)]
pub struct Pipe {
    pub out: i32,
    pub into: i32,
}

impl Table {
    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub fn len(&self) -> usize {
        self.count.min(MOST)
    }

    /// The place of a thread, known or new; `None` when there is no room.
    pub fn place(&mut self, tid: i32) -> Option<usize> {
        let count = self.len();
        if let Some(at) = self.all[..count].iter().position(|held| held.tid == tid) {
            return Some(at);
        }
        *self.all.get_mut(count)? = Held { tid, ..Held::default() };
        self.count = count + 1;
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_one_place() {
        // SAFETY: all zeros is valid, as in the mapping.
        let mut table = unsafe { Box::<Table>::new_zeroed().assume_init() };
        assert_eq!([7, 8, 7].map(|tid| table.place(tid)), [Some(0), Some(1), Some(0)]);
        assert!((100..100 + MOST as i32 - 2).all(|tid| table.place(tid).is_some()));
        assert_eq!((table.place(1), table.place(7)), (None, Some(0)));
        table.clear();
        assert_eq!(table.place(9), Some(0));
    }
}
