//! The words for how a subject makes processes: spawn methods, and what is asked of a start besides
//! the program.
//!
//! Owns the choices and their words, which are those of the wire and of the sample files. Does not
//! start anything (`spawn`, `reruns`).

use crate::words::words;

words! {
    /// How a process is created between two series of rounds.
    Via: 4 {
        Fork = "fork",
        /// The child lives until the second series is over.
        Kept = "fork-kept",
        Vfork = "vfork",
        Spawn = "spawn",
    }
}

words! {
    /// How a program is started. Those of a subject that is this program come first.
    Method: 7 {
        ForkExec = "fork+exec",
        VforkExec = "vfork+exec",
        PosixSpawn = "posix_spawn",
        /// odfork-spawn's Command.
        Spawn = "spawn",
        /// std::process::Command.
        RustCommand = "rust-command",
        /// libc's popen: a shell, and a pipe to read from.
        Popen = "popen",
        /// Python's subprocess.run, in a parent that is Python.
        PythonSubprocess = "python-subprocess",
    }
}

words! {
    /// What is asked of a start besides the program and its standard output.
    Actions: 5 {
        Plain = "plain",
        /// Another working directory.
        Chdir = "chdir",
        /// All descriptors but the first three closed, the parent having 256 others open, not
        /// close-on-exec.
        Close256 = "close-256",
        /// The same with 10,000.
        Close10000 = "close-10000",
        /// Standard input, output and error are pipes to the parent, which reads both outputs to
        /// their ends.
        Pipes = "pipes",
    }
}

impl Method {
    /// Without the one that needs a subject of its own.
    pub const NATIVE: [Method; 6] = [
        Method::ForkExec,
        Method::VforkExec,
        Method::PosixSpawn,
        Method::Spawn,
        Method::RustCommand,
        Method::Popen,
    ];

    /// Whether a start by this way can be asked for actions.
    pub fn has_actions(self) -> bool {
        matches!(self, Method::PosixSpawn | Method::Spawn)
    }
}

impl Actions {
    /// How many descriptors the parent has open for the program to close; none: it is not asked to.
    pub fn litter(self) -> Option<usize> {
        match self {
            Actions::Close256 => Some(256),
            Actions::Close10000 => Some(10_000),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_one_way_and_only_python_is_not_native() {
        let mut words: Vec<&str> = Method::ALL.map(Method::word).into();
        words.extend(Actions::ALL.map(Actions::word));
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert_eq!(Method::ALL[..6], Method::NATIVE);
        assert_eq!(Actions::ALL.map(Actions::litter).iter().flatten().sum::<usize>(), 10_256);
    }
}
