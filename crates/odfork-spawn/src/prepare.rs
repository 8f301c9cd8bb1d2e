//! From a request to the child's arguments: everything the child needs is laid out before it
//! exists.
//!
//! Owns the strings and arrays behind the arguments, the opening of pipes and `/dev/null`, and the
//! text of an error. It does not create the child (`launch`).

use std::ffi::{c_char, CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::cancellation::CancellationGuard;
use crate::child_arguments::{Attributes, ChildArguments};
use crate::descriptors::{self, FdOp, Move, Refusal};
use crate::error::{Cause, Error, Step};
use crate::launch::{self, Failure};
use crate::process::Child;
use crate::request::Request;
use crate::search;
use crate::stdio::Source;

/// Starts the program; `standard` is for descriptors the request says nothing of. No point where a
/// cancelled thread would end: it would take descriptors with it, and the only knowledge of a
/// child.
pub fn start(request: &Request, standard: [&Source; 3]) -> Result<Child, Error> {
    let _guard = CancellationGuard::enter();
    lay_out_and_launch(request, standard)
}

fn lay_out_and_launch(request: &Request, standard: [&Source; 3]) -> Result<Child, Error> {
    let failure =
        |t: PrepareError| Error::new(t.step, Cause::Errno(t.errno), &request.program, t.detail);
    require_identity(request).map_err(failure)?;
    let strings = Strings::of(request).map_err(failure)?;
    let mut ends = Ends::open(request, standard).map_err(failure)?;
    let plan = Plan::of(request, &ends).map_err(failure)?;
    let whole = request.environment.whole.as_ref();
    let envp = whole.map_or_else(|| strings.envp.pointers(), |entries| pointers(entries));
    let argv = pointers(&strings.argv);
    let programs: Vec<*const c_char> = strings.programs.iter().map(|p| p.as_ptr()).collect();
    let mut attributes = request.attributes;
    attributes.cgroup = plan.cgroup.as_ref().map(AsRawFd::as_raw_fd);
    let arguments = ChildArguments {
        programs: &programs,
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        fd_ops: &plan.fd_ops,
        closings: &plan.closings,
        unneeded: plan.unneeded,
        limits: &request.limits,
        groups: plan.groups.as_deref(),
        directory: strings.directory.as_ref().map_or(std::ptr::null(), |d| d.as_ptr()),
        attributes,
        reset_handlers: false,
        join_cgroup: false,
        mask: 0,
        parent: odfork_sys::getpid(),
    };
    // SAFETY: everything the arguments point to lives in this frame and is not changed.
    let launched = unsafe { launch::launch(&arguments, request.want_pidfd) }
        .map_err(|failure| describe(request, &strings, failure))?;
    Ok(Child::new(launched, ends.parents(), request.kill_on_drop))
}

/// What went wrong in the parent before there was a child.
struct PrepareError {
    step: Step,
    errno: i32,
    detail: String,
}

fn invalid(detail: String) -> PrepareError {
    PrepareError { step: Step::Request, errno: libc::EINVAL, detail }
}

fn failed(step: Step, detail: &str) -> impl Fn(std::io::Error) -> PrepareError + '_ {
    move |e| PrepareError {
        step,
        errno: e.raw_os_error().unwrap_or(libc::EIO),
        detail: detail.into(),
    }
}

/// To the kernel -1 means "leave as it is": whoever asks for it would keep rights he means to give
/// up.
fn require_identity(request: &Request) -> Result<(), PrepareError> {
    let wanted = &request.attributes;
    for (step, id) in [(Step::Gid, wanted.gid), (Step::Uid, wanted.uid)] {
        if id == Some(u32::MAX) {
            return Err(PrepareError { step, errno: libc::EINVAL, detail: u32::MAX.to_string() });
        }
    }
    Ok(())
}

struct Strings {
    programs: Vec<CString>,
    argv: Vec<CString>,
    envp: EnvironmentBlock,
    directory: Option<CString>,
}

impl Strings {
    fn of(request: &Request) -> Result<Strings, PrepareError> {
        let zero = |what: &str| invalid(format!("a zero byte in {what}"));
        let text = |s: &OsStr, what| CString::new(s.as_bytes()).map_err(|_| zero(what));
        let name = request.name.as_ref().unwrap_or(&request.program);
        let all = std::iter::once(name).chain(&request.arguments);
        let argv = all.map(|a| text(a, "an argument")).collect::<Result<_, _>>()?;
        let directory = request.directory.as_ref().map(|d| text(d.as_os_str(), "the directory"));
        Ok(Strings {
            programs: programs(request).ok_or_else(|| zero("the program's name or PATH"))?,
            argv,
            envp: environment(request).ok_or_else(|| zero("the environment"))?,
            directory: directory.transpose()?,
        })
    }
}

fn programs(request: &Request) -> Option<Vec<CString>> {
    match request.search_path {
        true => search::candidates(&request.program, || path(request)),
        false => Some(vec![CString::new(request.program.as_bytes()).ok()?]),
    }
}

/// The PATH to search: the program's own if the request says anything of it.
fn path(request: &Request) -> Option<OsString> {
    match request.environment.changes.get(OsStr::new("PATH")) {
        Some(own) => own.clone(),
        None if request.environment.cleared => None,
        None => std::env::var_os("PATH"),
    }
}

/// A copy, unless the whole was given: other threads may change the environment while the child
/// reads it. `None` for a zero byte.
fn environment(request: &Request) -> Option<EnvironmentBlock> {
    let environment = &request.environment;
    let mut lines = EnvironmentBlock::default();
    if environment.whole.is_some() {
        return Some(lines);
    }
    if !environment.cleared {
        for (key, value) in std::env::vars_os() {
            if !environment.changes.contains_key(&key) {
                lines.add(&key, &value)?;
            }
        }
    }
    for (key, value) in &environment.changes {
        if let Some(value) = value {
            lines.add(key, value)?;
        }
    }
    Some(lines)
}

/// Entries of an environment behind one another: a string of its own for each would be the dearest
/// part of a spawn that is not the kernel's.
#[derive(Default)]
struct EnvironmentBlock {
    text: Vec<u8>,
    starts: Vec<usize>,
}

impl EnvironmentBlock {
    fn add(&mut self, key: &OsStr, value: &OsStr) -> Option<()> {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        if key.contains(&0) || value.contains(&0) {
            return None;
        }
        self.starts.push(self.text.len());
        for part in [key, b"=", value, b"\0"] {
            self.text.extend_from_slice(part);
        }
        Some(())
    }

    /// Null behind the last.
    fn pointers(&self) -> Vec<*const c_char> {
        let entry = |&start: &usize| self.text[start..].as_ptr().cast();
        self.starts.iter().map(entry).chain(std::iter::once(std::ptr::null())).collect()
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

/// Both ends of what was opened for the three standard descriptors.
struct Ends {
    moves: Vec<Move>,
    /// Closed when the child is made.
    _childs: Vec<OwnedFd>,
    parents: [Option<OwnedFd>; 3],
}

impl Ends {
    fn open(request: &Request, standard: [&Source; 3]) -> Result<Ends, PrepareError> {
        let given = request.descriptors.iter().map(|(_, source)| source);
        require_open(request.standard.iter().flatten().chain(standard).chain(given))?;
        let mut ends = Ends { moves: Vec::new(), _childs: Vec::new(), parents: [None, None, None] };
        for (to, unsaid) in (0..3).zip(standard) {
            let source = request.standard[to as usize].as_ref().unwrap_or(unsaid);
            ends.add(to, source)?;
        }
        Ok(ends)
    }

    fn add(&mut self, to: i32, source: &Source) -> Result<(), PrepareError> {
        let from = match source {
            Source::Null => {
                let null = File::options().read(to == 0).write(to != 0).open("/dev/null");
                self.keep(null.map_err(failed(Step::Pipe, "/dev/null"))?.into())
            }
            Source::Pipe => {
                let (read, write) = pipe().map_err(failed(Step::Pipe, "a pipe"))?;
                let (childs, parents) = if to == 0 { (read, write) } else { (write, read) };
                self.parents[to as usize] = Some(parents);
                self.keep(childs)
            }
            open => match open.number() {
                Some(fd) => fd,
                None => return Ok(()),
            },
        };
        self.moves.push(Move { from, to });
        Ok(())
    }

    fn keep(&mut self, fd: OwnedFd) -> i32 {
        let number = fd.as_raw_fd();
        self._childs.push(fd);
        number
    }

    fn parents(&mut self) -> [Option<OwnedFd>; 3] {
        std::mem::take(&mut self.parents)
    }
}

/// Before anything is opened here: it would get the number, and be given to the program.
fn require_open<'a>(sources: impl Iterator<Item = &'a Source>) -> Result<(), PrepareError> {
    let numbers = sources.filter_map(Source::number).filter(|&fd| fd >= 0);
    for fd in numbers {
        // SAFETY: asks for flags.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            let detail = format!("descriptor {fd}");
            return Err(PrepareError { step: Step::Descriptors, errno: libc::EBADF, detail });
        }
    }
    Ok(())
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are ours when it succeeds.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Descriptors, groups and cgroup of the child's arguments.
struct Plan {
    fd_ops: Vec<FdOp>,
    closings: Vec<(u32, u32)>,
    unneeded: Unneeded,
    groups: Option<Vec<u32>>,
    cgroup: Option<File>,
}

impl Plan {
    fn of(request: &Request, ends: &Ends) -> Result<Plan, PrepareError> {
        let given = request.descriptors.iter();
        let given = given.filter_map(|(to, source)| Some(Move { from: source.number()?, to: *to }));
        let moves: Vec<Move> = ends.moves.iter().copied().chain(given).collect();
        let fd_ops = descriptors::plan(&moves).map_err(|refusal| match refusal {
            Refusal::Twice(fd) => invalid(format!("descriptor {fd} is given twice")),
            Refusal::Negative(fd) => invalid(format!("descriptor {fd}")),
        })?;
        let cgroup = request.cgroup.as_deref().map(open_cgroup).transpose()?;
        let (unneeded, closings) = match request.close_others {
            true => others(&moves, &request.attributes, cgroup.as_ref()),
            false => (None, Vec::new()),
        };
        Ok(Plan { fd_ops, closings, unneeded, groups: groups(request), cgroup })
    }
}

/// What is left out of the copy of the table: all above the highest descriptor that any step needs;
/// and what the program shall not find in the rest.
fn others(
    moves: &[Move],
    wanted: &Attributes,
    cgroup: Option<&File>,
) -> (Unneeded, Vec<(u32, u32)>) {
    let kept: Vec<i32> = [0, 1, 2].into_iter().chain(moves.iter().map(|m| m.to)).collect();
    let steps = [wanted.terminal, wanted.foreground, cgroup.map(AsRawFd::as_raw_fd)];
    let needed = kept.iter().copied().chain(moves.iter().map(|m| m.from));
    let highest = needed.chain(steps.into_iter().flatten()).max().unwrap_or(2);
    (Some((highest as u32 + 1, u32::MAX)), descriptors::gaps(&kept))
}

type Unneeded = Option<(u32, u32)>;

fn groups(request: &Request) -> Option<Vec<u32>> {
    let root_gives_up = || {
        request.attributes.uid.is_some() && {
            // SAFETY: no arguments, cannot fail.
            unsafe { libc::geteuid() == 0 }
        }
    };
    request.groups.clone().or_else(|| root_gives_up().then(Vec::new))
}

fn open_cgroup(folder: &Path) -> Result<File, PrepareError> {
    let flags = libc::O_DIRECTORY | libc::O_PATH;
    let opened = File::options().read(true).custom_flags(flags).open(folder);
    opened.map_err(failed(Step::Cgroup, &folder.to_string_lossy()))
}

fn describe(request: &Request, strings: &Strings, failure: Failure) -> Error {
    let Failure { step, cause, detail } = failure;
    let errno = match cause {
        Cause::Errno(errno) => errno,
        Cause::Killed(_) => 0,
    };
    if step == Step::Exec && matches!(errno, libc::ENOENT | libc::EACCES) {
        // Of a search that found nothing, any; of one that met a file without permission, that one.
        let tried = |index: usize| errno == libc::ENOENT || index == detail as usize;
        let mut programs = strings.programs.iter().enumerate().filter(|(index, _)| tried(*index));
        let from = strings.directory.as_deref();
        if let Some(interpreter) = programs.find_map(|(_, p)| search::missing_interpreter(p, from))
        {
            let text = interpreter.to_string_lossy().into_owned();
            return Error::new(Step::Interpreter, cause, &request.program, text);
        }
    }
    let text = match step {
        Step::Descriptors => format!("descriptor {detail}"),
        Step::Terminal => format!("descriptor {detail}"),
        Step::Limits => format!("resource {detail}"),
        Step::Gid | Step::Uid => format!("{}", detail as u32),
        Step::Signals => format!("signal {detail}"),
        Step::ProcessGroup => format!("group {detail}"),
        Step::Cgroup => lossy(request.cgroup.as_deref()),
        Step::Directory => lossy(request.directory.as_deref()),
        Step::Exec if strings.programs.len() > 1 && errno == libc::ENOENT => "not in PATH".into(),
        Step::Exec => strings
            .programs
            .get(usize::try_from(detail).unwrap_or(0))
            .map_or_else(String::new, |p| p.to_string_lossy().into_owned()),
        _ => String::new(),
    };
    Error::new(step, cause, &request.program, text)
}

fn lossy(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |p| p.to_string_lossy().into_owned())
}
