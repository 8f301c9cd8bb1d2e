//! The words for how a subject makes processes: the ways, and what is asked of a start besides the program.
//!
//! Owns the choices and their words, which are those of the wire and of the sample files. Does not start anything
//! (`starts`, `reruns`).

/// How a process is created between two series of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Fork,
    Vfork,
    Spawn,
}

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ForkExec,
    VforkExec,
    PosixSpawn,
    /// odfork-spawn's Command.
    Spawn,
    /// std::process::Command.
    RustCommand,
    /// libc's popen: a shell, and a pipe to read from.
    Popen,
    /// Python's subprocess.run, in a parent that is Python.
    PythonSubprocess,
}

/// What is asked of a start besides the program and its standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actions {
    Plain,
    /// Another working directory.
    Chdir,
    /// All descriptors but the first three closed, the parent having 256 others open, not close-on-exec.
    Close256,
    /// The same with 10,000.
    Close10000,
    /// Standard input, output and error are pipes to the parent, which reads both outputs to their ends.
    Pipes,
}

impl Via {
    pub const ALL: [Via; 3] = [Via::Fork, Via::Vfork, Via::Spawn];

    pub fn word(self) -> &'static str {
        match self {
            Via::Fork => "fork",
            Via::Vfork => "vfork",
            Via::Spawn => "spawn",
        }
    }
}

impl Method {
    /// Those of a subject that is this program come first.
    pub const ALL: [Method; 7] = [
        Method::ForkExec,
        Method::VforkExec,
        Method::PosixSpawn,
        Method::Spawn,
        Method::RustCommand,
        Method::Popen,
        Method::PythonSubprocess,
    ];
    /// Without the one that needs a subject of its own.
    pub const NATIVE: [Method; 6] = [
        Method::ForkExec,
        Method::VforkExec,
        Method::PosixSpawn,
        Method::Spawn,
        Method::RustCommand,
        Method::Popen,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Method::ForkExec => "fork+exec",
            Method::VforkExec => "vfork+exec",
            Method::PosixSpawn => "posix_spawn",
            Method::Spawn => "spawn",
            Method::RustCommand => "rust-command",
            Method::Popen => "popen",
            Method::PythonSubprocess => "python-subprocess",
        }
    }

    /// Whether a start by this way can be asked for actions.
    pub fn acts(self) -> bool {
        matches!(self, Method::PosixSpawn | Method::Spawn)
    }
}

impl Actions {
    pub const ALL: [Actions; 5] =
        [Actions::Plain, Actions::Chdir, Actions::Close256, Actions::Close10000, Actions::Pipes];

    pub fn word(self) -> &'static str {
        match self {
            Actions::Plain => "plain",
            Actions::Chdir => "chdir",
            Actions::Close256 => "close-256",
            Actions::Close10000 => "close-10000",
            Actions::Pipes => "pipes",
        }
    }

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
