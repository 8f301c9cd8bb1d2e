//! The child's arguments and its report: plain data that nobody changes while it runs.
//!
//! Owns the types shared between parent and child from clone to exec. The parent fills them in
//! (`prepare`); the child reads them (`child`), and writes nothing but its own stack and the
//! [`Report`].

use std::ffi::c_char;

use crate::descriptors::FdOp;

/// What shall differ from the parent in a program. Plain words; what needs memory is in
/// [`ChildArguments`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Attributes {
    /// Signals set to their default although they are ignored.
    pub default_signals: u64,
    /// The mask of the program; the parent's at the time of the call when `None`.
    pub mask: Option<u64>,
    pub session: bool,
    /// 0: a group of its own.
    pub group: Option<i32>,
    /// The program's descriptor that becomes the controlling terminal.
    pub terminal: Option<i32>,
    /// The program's descriptor of the terminal whose foreground group it shall be.
    pub foreground: Option<i32>,
    pub umask: Option<u32>,
    pub gid: Option<u32>,
    pub uid: Option<u32>,
    pub no_new_privileges: bool,
    pub parent_death: Option<i32>,
    /// Descriptor of a cgroup directory of the parent.
    pub cgroup: Option<i32>,
}

impl Attributes {
    /// The kernel marks memory undumpable when one of its users changes identity.
    pub fn change_identity(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// A resource and its soft and hard limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub resource: u32,
    pub soft_and_hard: [u64; 2],
}

/// Everything the child does, in words it can follow without deciding.
#[derive(Clone, Copy)]
pub struct ChildArguments<'a> {
    /// Paths to try; more than one when PATH is searched.
    pub programs: &'a [*const c_char],
    pub argv: *const *const c_char,
    pub envp: *const *const c_char,
    pub fd_ops: &'a [FdOp],
    /// Ranges of descriptors to close.
    pub closings: &'a [(u32, u32)],
    /// The end of the table of descriptors, from the first that no step needs: left out when the
    /// table is copied, which is then shared with the parent until the child's first step copies
    /// it.
    pub unneeded: Option<(u32, u32)>,
    pub limits: &'a [Limit],
    pub groups: Option<&'a [u32]>,
    /// Null: stays.
    pub directory: *const c_char,
    pub attributes: Attributes,
    /// Handlers must be reset one by one (the kernel did not do it).
    pub reset_handlers: bool,
    /// The cgroup must be joined by writing (the kernel did not do it).
    pub join_cgroup: bool,
    /// The mask to set before exec.
    pub mask: u64,
    /// Pid of the parent.
    pub parent: i32,
}

/// The child's answer. The step is set before each step; when the child is in the
/// program there is no failure, and when it was killed the step says where.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct Report {
    pub step: u32,
    /// 0, or one of the two below.
    pub failed: u32,
    pub errno: i32,
    /// Descriptor, resource or index of the path the step was working on.
    pub detail: i32,
}

impl Report {
    /// A step failed.
    pub const FAILED: u32 = 1;
    /// The child could not leave the parent's table of descriptors, and has done nothing: it needs
    /// a copy from the start.
    pub const SHARED: u32 = 2;
}

/// The words at the upper end of the child's stack.
#[repr(C)]
pub struct ChildFrame<'a> {
    pub arguments: ChildArguments<'a>,
    pub report: Report,
}

const _: () = assert!(size_of::<ChildFrame<'_>>() <= crate::stack::FRAME_BYTES);
