//! A request for a child.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::child::Child;
use crate::error::doing;
use crate::frame::{kind, tag, Frame};
use crate::{template, Result};

/// What a child runs, where and with what. What is not given is the template's.
#[derive(Debug)]
pub struct Command {
    frame: Frame,
    descriptors: Vec<(OwnedFd, u32)>,
}

impl Command {
    /// `python SCRIPT`
    pub fn script(path: impl AsRef<Path>) -> Command {
        Command::running(tag::SCRIPT, path.as_ref().as_os_str())
    }

    /// `python -m MODULE`
    pub fn module(name: &str) -> Command {
        Command::running(tag::MODULE, OsStr::new(name))
    }

    /// `python -c SOURCE`
    pub fn source(text: &str) -> Command {
        Command::running(tag::COMMAND, OsStr::new(text))
    }

    fn running(what: u16, text: &OsStr) -> Command {
        let mut frame = Frame::new(kind::SPAWN, 1);
        frame.add(what, text.as_bytes());
        Command { frame, descriptors: Vec::new() }
    }

    /// One more argument of the program.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Command {
        self.frame.add(tag::ARGUMENT, argument.as_ref().as_bytes());
        self
    }

    /// The whole environment; the template's own when this is never called.
    pub fn envs<K, V>(&mut self, variables: impl IntoIterator<Item = (K, V)>) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.frame.add(tag::ENVIRONMENT, []); // none at all is an environment as well
        for (name, value) in variables {
            let mut variable = OsString::from(name.as_ref());
            variable.push("=");
            variable.push(value.as_ref());
            self.frame.add(tag::ENVIRONMENT, variable.as_bytes());
        }
        self
    }

    /// Where the child runs.
    pub fn current_dir(&mut self, path: impl AsRef<Path>) -> &mut Command {
        self.frame.add(tag::DIRECTORY, path.as_ref().as_os_str().as_bytes());
        self
    }

    /// Gives the child a descriptor under this number; 0, 1 and 2 are its standard streams.
    pub fn descriptor(&mut self, ours: impl Into<OwnedFd>, theirs: u32) -> &mut Command {
        self.descriptors.push((ours.into(), theirs));
        self
    }

    /// Standard input, output and error as this process has them.
    pub fn inherit_streams(&mut self) -> Result<&mut Command> {
        let streams: [&dyn AsFd; 3] = [&std::io::stdin(), &std::io::stdout(), &std::io::stderr()];
        for (number, stream) in streams.iter().enumerate() {
            let copy = stream.as_fd().try_clone_to_owned();
            self.descriptor(copy.map_err(doing("copying a standard stream"))?, number as u32);
        }
        Ok(self)
    }

    /// A limit of setrlimit(2).
    pub fn limit(&mut self, resource: u32, soft: u64, hard: u64) -> &mut Command {
        let mut packed = resource.to_le_bytes().to_vec();
        packed.extend(soft.to_le_bytes());
        packed.extend(hard.to_le_bytes());
        self.frame.add(tag::LIMIT, packed);
        self
    }

    /// Its umask.
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.frame.add(tag::MASK, mask.to_le_bytes());
        self
    }

    /// The template kills the child when it runs for longer.
    pub fn deadline(&mut self, after: Duration) -> &mut Command {
        self.frame.add(tag::DEADLINE, (after.as_millis() as u64).to_le_bytes());
        self
    }

    /// The child outlives its handle and the template.
    pub fn detached(&mut self) -> &mut Command {
        self.frame.add(tag::DETACHED, []);
        self
    }

    /// The process group to join; 0 for one of its own.
    pub fn process_group(&mut self, group: u32) -> &mut Command {
        self.frame.add(tag::GROUP, group.to_le_bytes());
        self
    }

    /// A session of its own.
    pub fn new_session(&mut self) -> &mut Command {
        self.frame.add(tag::SESSION, []);
        self
    }

    /// Starts the child in the template of this name.
    pub fn spawn(&self, name: &str) -> Result<Child> {
        let link = template::connected(name)?;
        let mut frame = self.frame.clone();
        let targets: Vec<u8> =
            self.descriptors.iter().flat_map(|(_, theirs)| theirs.to_le_bytes()).collect();
        if !targets.is_empty() {
            frame.add(tag::TARGETS, targets);
        }
        let descriptors: Vec<BorrowedFd<'_>> =
            self.descriptors.iter().map(|(ours, _)| ours.as_fd()).collect();
        link.send(&frame, &descriptors)?;
        Child::of(link)
    }
}
