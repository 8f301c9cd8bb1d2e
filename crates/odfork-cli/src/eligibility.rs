//! Can libodfork.so be preloaded into this program, and if not, why, and what can be done about it.
//!
//! Follows scripts to the program that will really run, reads that file, and words the answer. It
//! never runs anything. When a file cannot be read the answer is "unknown", and the launcher tries:
//! a loader that cannot preload only warns.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::elf::{self, Facts, Header};
use crate::environment::Environment;
use crate::lookup::{self, lookup, Lookup};
use crate::privilege::{self, Privilege};
use crate::script::{self, Interpreter};

/// The kernel follows this many scripts before it gives up with ELOOP (seen on 6.18).
const MAX_SCRIPTS: usize = 5;

/// Why a program that runs cannot be accelerated.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Static,
    Privileged(Privilege),
    Go,
    Foreign(Header),
    Loader { name: String, musl: bool },
    Sanitizer(&'static str),
}

/// Why a program will not even run.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    Missing,
    Directory,
    NotRegular,
    NotExecutable,
    /// A script whose interpreter, or a program whose loader, is not there.
    Needs {
        file: PathBuf,
        missing: PathBuf,
    },
    TooManyScripts,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    Unknown(String),
    No(Refusal),
    CannotRun(Obstacle),
}

#[derive(Debug)]
pub struct Eligibility {
    pub name: OsString,
    /// The files from the one named to the one that is loaded; empty when nothing was found.
    pub chain: Vec<PathBuf>,
    pub answer: Answer,
}

/// Looks at the program as execvp would find it.
pub fn inspect(name: &OsStr, environment: &Environment) -> Eligibility {
    let mut eligibility = Eligibility {
        name: name.to_owned(),
        chain: Vec::new(),
        answer: Answer::CannotRun(Obstacle::Missing),
    };
    match lookup(name, environment) {
        Lookup::Missing => {}
        Lookup::Barred(path) => {
            eligibility.answer = Answer::CannotRun(barred(&path));
            eligibility.chain.push(path);
        }
        Lookup::Found(path) => {
            eligibility.chain.push(path);
            eligibility.answer = follow(&mut eligibility.chain, environment);
        }
    }
    eligibility
}

fn barred(path: &Path) -> Obstacle {
    match path.metadata() {
        Ok(about) if about.is_dir() => Obstacle::Directory,
        Ok(about) if !about.is_file() => Obstacle::NotRegular,
        _ => Obstacle::NotExecutable,
    }
}

/// Walks from script to interpreter, adding each file to the chain, until a file that is loaded.
fn follow(chain: &mut Vec<PathBuf>, environment: &Environment) -> Answer {
    for _ in 0..=MAX_SCRIPTS {
        let Some(path) = chain.last().cloned() else {
            break;
        };
        let head = match head_of(&path) {
            Ok(head) => head,
            Err(error) => {
                return privileged(&path).unwrap_or_else(|| Answer::Unknown(unread(&path, &error)))
            }
        };
        if let Some(header) = elf::header(&head) {
            return judge(&path, header);
        }
        let missing =
            |missing: PathBuf| Answer::CannotRun(Obstacle::Needs { file: path.clone(), missing });
        let next = match script::interpreter(&head) {
            // Neither ELF nor `#!`: execvp hands the file to the shell.
            None => PathBuf::from("/bin/sh"),
            Some(Interpreter::Undecided(env)) => {
                chain.push(env);
                return Answer::Unknown(
                    "what env starts is decided by its options when it runs".to_owned(),
                );
            }
            Some(Interpreter::File(file)) => file,
            Some(Interpreter::ThroughEnv { env, name }) => match lookup(&name, environment) {
                Lookup::Found(file) if env.exists() => file,
                _ if !env.exists() => return missing(env),
                _ => return missing(PathBuf::from(name)),
            },
        };
        if !next.exists() {
            return missing(next);
        }
        chain.push(next);
    }
    Answer::CannotRun(Obstacle::TooManyScripts)
}

fn head_of(path: &Path) -> std::io::Result<Vec<u8>> {
    // A pipe would be waited for.
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut head = Vec::new();
    File::open(path)?.take(script::HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn unread(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{} cannot be looked into ({error})", path.display())
}

fn privileged(path: &Path) -> Option<Answer> {
    privilege::gained(path).map(|privilege| Answer::No(Refusal::Privileged(privilege)))
}

fn judge(path: &Path, header: Header) -> Answer {
    if header.bits != 64 || header.machine != elf::own_machine() {
        return Answer::No(Refusal::Foreign(header));
    }
    if let Some(answer) = privileged(path) {
        return answer;
    }
    match File::open(path).map(elf::facts) {
        Ok(Ok(facts)) => judge_facts(path, &facts),
        Ok(Err(error)) => Answer::Unknown(unread(path, &error)),
        Err(error) => Answer::Unknown(unread(path, &error)),
    }
}

fn judge_facts(path: &Path, facts: &Facts) -> Answer {
    if facts.go {
        return Answer::No(Refusal::Go);
    }
    let Some(loader) = &facts.loader else {
        // The loader called by hand (`ld-linux-x86-64.so.2 PROGRAM`) has no loader either, and
        // heeds LD_PRELOAD.
        let is_loader = facts.soname.as_deref().is_some_and(is_glibc_loader);
        return if is_loader { Answer::Yes } else { Answer::No(Refusal::Static) };
    };
    if !loader.exists() {
        return Answer::CannotRun(Obstacle::Needs {
            file: path.to_owned(),
            missing: loader.clone(),
        });
    }
    let name = loader.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !is_glibc_loader(&name) {
        let musl = name.starts_with("ld-musl");
        return Answer::No(Refusal::Loader { name: loader.display().to_string(), musl });
    }
    match facts.sanitizer {
        // The library looks at the rest.
        Some("AddressSanitizer") if keeps_memory() => Answer::Yes,
        Some(sanitizer) => Answer::No(Refusal::Sanitizer(sanitizer)),
        None => Answer::Yes,
    }
}

/// AddressSanitizer is told to leave freed memory with the process, without which none is frozen.
fn keeps_memory() -> bool {
    let options = std::env::var("ASAN_OPTIONS").unwrap_or_default();
    options.contains("allocator_release_to_os_interval_ms=-1")
}

fn is_glibc_loader(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld64.so") || name.starts_with("ld-2.")
}

impl Refusal {
    /// One word for JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Refusal::Static => "static",
            Refusal::Privileged(_) => "privileged",
            Refusal::Go => "go",
            Refusal::Foreign(_) => "machine",
            Refusal::Loader { musl: true, .. } => "musl",
            Refusal::Loader { musl: false, .. } => "loader",
            Refusal::Sanitizer(_) => "sanitizer",
        }
    }

    /// What the program is and why that keeps the library out; reads after the program's name.
    pub fn why(&self) -> String {
        match self {
            Refusal::Static => {
                "is statically linked, so no loader could preload libodfork.so".to_owned()
            }
            Refusal::Privileged(privilege) => {
                format!("{}, so the loader ignores LD_PRELOAD", privilege.words())
            }
            Refusal::Go => {
                "is a Go program, whose runtime calls the kernel without libc".to_owned()
            }
            Refusal::Foreign(header) => format!(
                "is a {}-bit program for {} and libodfork.so is 64-bit for {}",
                header.bits,
                elf::machine_name(header.machine),
                elf::machine_name(elf::own_machine())
            ),
            Refusal::Loader { musl: true, .. } => {
                "is built for musl libc and libodfork.so for glibc".to_owned()
            }
            Refusal::Loader { name, .. } => {
                format!("asks for the loader {name} and libodfork.so needs glibc's")
            }
            Refusal::Sanitizer(name) => {
                format!("is built with {name}, which must be the first library and owns the memory")
            }
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Refusal::Static => "link it dynamically, or link libodfork.a and call odfork_fork()",
            Refusal::Privileged(_) => {
                "start it as the user it changes to, or use a copy without the privilege"
            }
            Refusal::Go => {
                "start it without odfork, or put odfork in front of the programs it starts"
            }
            Refusal::Foreign(_) => "use a build of the program for this machine",
            Refusal::Loader { .. } => "use a build of the program for glibc",
            Refusal::Sanitizer("AddressSanitizer") => {
                "set ASAN_OPTIONS=allocator_release_to_os_interval_ms=-1, if clang built it"
            }
            Refusal::Sanitizer(_) => "use a build without the sanitizer",
        }
    }
}

impl Privilege {
    pub fn words(self) -> String {
        match self {
            Privilege::User(uid) => format!("is setuid to user {uid}"),
            Privilege::Group(gid) => format!("is setgid to group {gid}"),
            Privilege::Capabilities => "has file capabilities".to_owned(),
            Privilege::Inherited => {
                "runs with an effective user or group that is not the real one".to_owned()
            }
        }
    }
}

impl Obstacle {
    /// What is wrong and what to do, in one sentence; reads after "cannot run 'NAME': ".
    pub fn words(&self, name: &OsStr, environment: &Environment) -> String {
        match self {
            Obstacle::Missing => missing_words(name, environment),
            Obstacle::Directory => "it is a directory; name the program inside it".to_owned(),
            Obstacle::NotRegular => "it is not a regular file".to_owned(),
            Obstacle::NotExecutable => {
                "it may not be executed; allow it with chmod +x (or its mount is noexec)".to_owned()
            }
            Obstacle::Needs { file, missing } => {
                format!(
                    "{} needs {}, which is not there; install it or correct the name",
                    file.display(),
                    missing.display()
                )
            }
            Obstacle::TooManyScripts => format!(
                "more than {MAX_SCRIPTS} scripts interpret each other; name the program itself"
            ),
        }
    }
}

fn missing_words(name: &OsStr, environment: &Environment) -> String {
    let place = if name.to_string_lossy().contains('/') {
        "no such file"
    } else {
        "no such program in PATH"
    };
    match lookup::meant(name, environment) {
        Some(close) => format!("{place}; did you mean '{close}'?"),
        None => format!("{place}; check the name"),
    }
}
