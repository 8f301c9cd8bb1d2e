//! The first line of a script: which interpreter the kernel starts for it, and which program env(1)
//! starts then.
//!
//! Pure text; it opens nothing and knows nothing about what the interpreter can do.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What runs instead of a file that is not a program for the processor.
#[derive(Debug, PartialEq, Eq)]
pub enum Interpreter {
    /// `#!/bin/sh -e`: this file.
    File(PathBuf),
    /// `#!/usr/bin/env python3`: env finds this name in PATH.
    ThroughEnv { env: PathBuf, name: OsString },
    /// env with options that decide at run time.
    Undecided(PathBuf),
}

/// The kernel reads this much of a file to find the interpreter (BINPRM_BUF_SIZE).
pub const HEAD_BYTES: usize = 256;

/// Reads a `#!` line out of the first bytes of a file; None when there is none or it names nothing.
pub fn interpreter(head: &[u8]) -> Option<Interpreter> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n' || *byte == 0).next()?;
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (path, argument) = (&line[..end], line[end..].trim_ascii());
    if path.is_empty() {
        return None;
    }
    let path = PathBuf::from(OsStr::from_bytes(path));
    if Path::new(&path).file_name() == Some(OsStr::new("env")) && !argument.is_empty() {
        return Some(through_env(path, argument));
    }
    Some(Interpreter::File(path))
}

/// The kernel hands env everything after the path as one argument; only -S makes env split it.
fn through_env(env: PathBuf, argument: &[u8]) -> Interpreter {
    if !argument.starts_with(b"-") {
        let name = OsStr::from_bytes(argument).to_owned();
        return Interpreter::ThroughEnv { env, name };
    }
    let split = argument.strip_prefix(b"-S").or_else(|| argument.strip_prefix(b"--split-string="));
    let name = split.and_then(|words| {
        words
            .split(|byte| byte.is_ascii_whitespace())
            .find(|word| !word.is_empty() && !is_assignment(word))
    });
    match name {
        // Quotes, escapes, ${VAR} and options are env's business: better no answer than a wrong
        // one.
        Some(word)
            if !word.starts_with(b"-") && !word.iter().any(|byte| b"'\"\\$".contains(byte)) =>
        {
            Interpreter::ThroughEnv { env, name: OsStr::from_bytes(word).to_owned() }
        }
        _ => Interpreter::Undecided(env),
    }
}

fn is_assignment(word: &[u8]) -> bool {
    word.contains(&b'=') && !word.starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Interpreter {
        Interpreter::ThroughEnv { env: PathBuf::from("/usr/bin/env"), name: OsString::from(name) }
    }

    #[test]
    fn plain_lines() {
        let file = |path: &str| Some(Interpreter::File(PathBuf::from(path)));
        assert_eq!(interpreter(b"#!/bin/sh\necho"), file("/bin/sh"));
        assert_eq!(interpreter(b"#! \t/bin/sh  -e -x \n"), file("/bin/sh"));
        assert_eq!(interpreter(b"#!relative/tool"), file("relative/tool"));
        assert_eq!(interpreter(b"#!/usr/bin/env\n"), file("/usr/bin/env"));
    }

    #[test]
    fn lines_that_name_nothing() {
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"#!   \n"), None);
        assert_eq!(interpreter(b"echo #!/bin/sh\n"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn env_lines() {
        assert_eq!(interpreter(b"#!/usr/bin/env python3\n"), Some(env("python3")));
        assert_eq!(interpreter(b"#!/usr/bin/env -S python3 -u\n"), Some(env("python3")));
        assert_eq!(interpreter(b"#!/usr/bin/env -SA=1 B=2 perl -w\n"), Some(env("perl")));
        assert_eq!(interpreter(b"#!/usr/bin/env --split-string=ruby -w\n"), Some(env("ruby")));
        // Without -S the whole rest is one name, blanks and all: env fails on it, and so do we.
        assert_eq!(interpreter(b"#!/usr/bin/env python3 -u\n"), Some(env("python3 -u")));
    }

    #[test]
    fn env_with_more_options_is_left_open() {
        for line in [
            &b"#!/usr/bin/env -i sh\n"[..],
            b"#!/usr/bin/env -S -i sh\n",
            b"#!/usr/bin/env -S ${X} sh\n",
        ] {
            assert_eq!(
                interpreter(line),
                Some(Interpreter::Undecided(PathBuf::from("/usr/bin/env")))
            );
        }
    }
}
