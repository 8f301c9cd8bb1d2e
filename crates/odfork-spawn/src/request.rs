//! What is asked for: the program and how it shall differ from its parent.
//!
//! Plain data between the builder (`command`) and what carries it out (`prepare`).

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::child_arguments::{Attributes, Limit};
use crate::signals::SignalSet;
use crate::stdio::Source;

#[derive(Debug)]
pub(crate) struct Request {
    pub program: OsString,
    pub search_path: bool,
    pub name: Option<OsString>,
    pub arguments: Vec<OsString>,
    pub environment: Environment,
    pub directory: Option<PathBuf>,
    pub standard: [Option<Source>; 3],
    pub descriptors: Vec<(RawFd, Source)>,
    pub close_others: bool,
    pub limits: Vec<Limit>,
    pub groups: Option<Vec<u32>>,
    pub cgroup: Option<PathBuf>,
    pub attributes: Attributes,
    pub want_pidfd: bool,
    pub kill_on_drop: bool,
}

impl Request {
    pub fn new(program: &OsStr) -> Request {
        let attributes = Attributes {
            mask: Some(0),
            default_signals: SignalSet::empty().with(libc::SIGPIPE).bits(),
            ..Attributes::default()
        };
        Request {
            program: program.to_owned(),
            search_path: true,
            name: None,
            arguments: Vec::new(),
            environment: Environment::default(),
            directory: None,
            standard: [None, None, None],
            descriptors: Vec::new(),
            close_others: false,
            limits: Vec::new(),
            groups: None,
            cgroup: None,
            attributes,
            want_pidfd: false,
            kill_on_drop: false,
        }
    }
}

/// Changes to the parent's environment, or all of it.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// Instead of everything else.
    pub whole: Option<Vec<CString>>,
    pub cleared: bool,
    pub changes: BTreeMap<OsString, Option<OsString>>,
}
