//! The methods to start the tiny program and wait for its end, each as its users write it.
//!
//! Owns one start by one way, checked: status 0, and the text where it comes back through a pipe.
//! Does not own the program (`program`), posix_spawn and its actions (`posix_spawn`), Python
//! (`python`), nor timing (`reruns`). fork, posix_spawn and popen are libc's symbols, which a
//! preloaded library may replace; vfork is the system call itself, as nothing replaces that.

use std::ffi::{c_char, CStr, OsStr};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout};

use odfork_spawn::{Command, Stdio};

use super::children::{await_success, fork_and_wait, is_harness_alone, judge, Failure};
use super::program::{refused, Program, TEXT};
use super::protocol::{Actions, Method};
use super::vfork::{vfork_and_exec, NOT_STARTED};

/// The working directory of a start that is to have another one.
pub(super) const ELSEWHERE: &CStr = c"/";

extern "C" {
    pub(super) static environ: *const *mut c_char;
}

impl Program {
    /// Starts it and waits for its end.
    pub fn run(&self, method: Method, actions: Actions) -> Result<(), Failure> {
        if is_harness_alone() {
            std::hint::black_box(self);
            return Ok(());
        }
        match (method, actions) {
            (Method::PosixSpawn, Actions::Pipes) => self.posix_spawn_and_listen(),
            (Method::PosixSpawn, _) => await_success(self.posix_spawn(actions)?),
            (Method::Spawn, _) => self.spawn(actions),
            (_, Actions::Plain) => self.run_plain(method),
            _ => Err(Failure::Unavailable(format!(
                "{} is measured without actions, not with {}",
                method.word(),
                actions.word()
            ))),
        }
    }

    fn run_plain(&self, method: Method) -> Result<(), Failure> {
        match method {
            Method::ForkExec => fork_and_wait(|| self.become_it()).map(drop),
            Method::VforkExec => await_success(self.vfork()?),
            Method::RustCommand => self.rust_command(),
            Method::Popen => self.popen(),
            Method::PosixSpawn | Method::Spawn => self.run(method, Actions::Plain),
            Method::PythonSubprocess => Err(Failure::Unavailable(
                "this subject is not Python; start one as the laboratory does".into(),
            )),
        }
    }

    pub(super) fn arguments(&self) -> [*mut c_char; 2] {
        [self.path.as_ptr().cast_mut(), std::ptr::null_mut()]
    }

    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.path.to_bytes())
    }

    /// CHILD: two system calls; does not come back.
    fn become_it(&self) -> bool {
        let arguments = self.arguments();
        // SAFETY: a descriptor and strings of ours, arrays that end with null.
        unsafe {
            libc::dup2(self.output.as_raw_fd(), libc::STDOUT_FILENO);
            libc::execve(
                self.path.as_ptr(),
                arguments.as_ptr().cast(),
                environ.cast::<*const c_char>(),
            );
            libc::_exit(NOT_STARTED)
        }
    }

    /// vfork and exec. Signals are not blocked: a subject handles none.
    fn vfork(&self) -> Result<libc::pid_t, Failure> {
        let arguments = self.arguments();
        let output = i64::from(self.output.as_raw_fd());
        // SAFETY: see above. All pointers outlive the call; the parent continues when the child has
        // its own memory or is gone.
        let pid =
            unsafe { vfork_and_exec(output, self.path.as_ptr(), arguments.as_ptr(), environ) };
        if pid < 0 {
            return Err(refused("vfork", &std::io::Error::from_raw_os_error(-pid as i32)));
        }
        Ok(pid as libc::pid_t)
    }

    fn posix_spawn_and_listen(&self) -> Result<(), Failure> {
        let (pid, ends) = self.posix_spawn_piped()?;
        drop(ends.stdin);
        let said = listen(ends.stdout.into(), ends.stderr.into());
        await_success(pid)?;
        require_text(&said?)
    }

    /// As a user writes it: one Command for one start.
    fn spawn(&self, actions: Actions) -> Result<(), Failure> {
        let mut command = Command::new(self.name());
        match actions {
            Actions::Plain => {}
            Actions::Chdir => {
                command.current_dir(OsStr::from_bytes(ELSEWHERE.to_bytes()));
            }
            Actions::Close256 | Actions::Close10000 => {
                command.close_other_fds(true);
            }
            Actions::Pipes => return spawn_and_listen(&mut command),
        }
        command.stdout(Stdio::number(self.output.as_raw_fd()));
        let status = command.status().map_err(|error| refused("spawn", &error))?;
        judge(status.into_raw())
    }

    fn rust_command(&self) -> Result<(), Failure> {
        let because = |error: std::io::Error| refused("std::process::Command", &error);
        let output = self.output.try_clone().map_err(because)?;
        let status = std::process::Command::new(self.name()).stdout(output).status();
        judge(status.map_err(because)?.into_raw())
    }

    /// The shell's standard output is a pipe; its one line is read.
    fn popen(&self) -> Result<(), Failure> {
        let mut line = [0u8; 64];
        // SAFETY: strings of ours; the line is as long as is told; the stream is closed once and
        // not used after.
        let status = unsafe {
            let stream = libc::popen(self.path.as_ptr(), c"r".as_ptr());
            if stream.is_null() {
                return Err(refused("popen", &std::io::Error::last_os_error()));
            }
            libc::fgets(line.as_mut_ptr().cast(), line.len() as libc::c_int, stream);
            libc::pclose(stream)
        };
        if status < 0 {
            return Err(refused("pclose", &std::io::Error::last_os_error()));
        }
        judge(status)?;
        let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
        require_text(&line[..end])
    }
}

fn spawn_and_listen(command: &mut Command) -> Result<(), Failure> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| refused("spawn", &error.into()))?;
    drop(child.stdin.take());
    let said = match (child.stdout.take(), child.stderr.take()) {
        (Some(stdout), Some(stderr)) => listen(stdout, stderr),
        _ => Err(Failure::Wrong("spawn gave no pipes".into())),
    };
    let status = child.wait().map_err(|error| refused("spawn", &error))?;
    judge(status.into_raw())?;
    require_text(&said?)
}

/// Reads both to their ends, one after the other: what comes fits into a pipe. The same reading for
/// every way.
fn listen(mut stdout: ChildStdout, mut stderr: ChildStderr) -> Result<Vec<u8>, Failure> {
    let mut said = Vec::new();
    for stream in [&mut stdout as &mut dyn Read, &mut stderr] {
        stream.read_to_end(&mut said).map_err(|error| refused("a pipe", &error))?;
    }
    Ok(said)
}

fn require_text(said: &[u8]) -> Result<(), Failure> {
    if said == TEXT {
        return Ok(());
    }
    let said = String::from_utf8_lossy(said);
    Err(Failure::Wrong(format!("the program started said {said:?}")))
}

#[cfg(test)]
mod tests {
    use super::super::posix_spawn::Litter;
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    /// What a program says to its output.
    fn heard(make: impl FnOnce(File) -> Program, start: impl FnOnce(&Program)) -> String {
        let (mut read, write) = UnixStream::pair().unwrap();
        let program = make(File::from(OwnedFd::from(write)));
        start(&program);
        drop(program);
        let mut said = String::new();
        read.read_to_string(&mut said).unwrap();
        said
    }

    fn tiny(output: File) -> Program {
        Program::with_output(output).unwrap()
    }

    #[test]
    fn every_method_runs_the_program_and_its_text_arrives() {
        for method in Method::NATIVE {
            let said = heard(tiny, |program| program.run(method, Actions::Plain).unwrap());
            // popen has read the text itself, and compared it.
            let expected = if method == Method::Popen { "" } else { "Hello world\n" };
            assert_eq!(said, expected, "{method:?}");
        }
    }

    #[test]
    fn a_program_that_cannot_start_is_an_error_of_every_method() {
        let mut program = Program::make().unwrap();
        program.path = c"/no/such/program".into();
        let plain = Method::NATIVE.map(|method| (method, Actions::Plain));
        let piped = [Method::PosixSpawn, Method::Spawn].map(|method| (method, Actions::Pipes));
        for (method, actions) in plain.into_iter().chain(piped) {
            let failure = program.run(method, actions).unwrap_err();
            let text = match &failure {
                Failure::Wrong(text) | Failure::Unavailable(text) => text,
            };
            assert!(text.contains("127") || text.contains("No such file"), "{method:?}: {text}");
        }
    }

    #[test]
    fn actions_are_those_of_the_two_ways_that_have_them() {
        let program = Program::make().unwrap();
        for method in Method::ALL {
            let outcome = program.run(method, Actions::Chdir);
            assert_eq!(outcome.is_ok(), method.has_actions(), "{method:?}: {outcome:?}");
        }
    }

    /// A program that tells where it is, what it has open, and what its input is.
    fn telling(folder: &std::path::Path) -> std::path::PathBuf {
        let path = folder.join("tell");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"#!/bin/sh\npwd\nset -- /proc/$$/fd/*\necho $#\n").unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn what_is_asked_for_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = telling(folder.path());
        let told = |method, actions: Actions| {
            let make = |output| {
                let mut program = tiny(output);
                program.path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
                program
            };
            let said = heard(make, |program| {
                let _litter = Litter::spread(300).unwrap();
                program.run(method, actions).unwrap();
            });
            let (directory, open) = said.trim().split_once('\n').unwrap();
            (directory.to_string(), open.parse::<usize>().unwrap())
        };
        for method in [Method::PosixSpawn, Method::Spawn] {
            let (here, all) = told(method, Actions::Plain);
            assert!(here != "/" && all > 300, "{method:?}: {here} {all}");
            let (there, all) = told(method, Actions::Chdir);
            assert!(there == "/" && all > 300, "{method:?}: {there} {all}");
            let (same, few) = told(method, Actions::Close256);
            assert!(same == here && few < 10, "{method:?}: {same} {few}");
        }
    }

    #[test]
    fn what_comes_through_the_pipes_is_compared() {
        let mut program = Program::make().unwrap();
        for method in [Method::PosixSpawn, Method::Spawn] {
            program.run(method, Actions::Pipes).unwrap();
        }
        // Ends well, and says something else.
        program.path = c"/bin/pwd".into();
        for (method, actions) in [
            (Method::PosixSpawn, Actions::Pipes),
            (Method::Spawn, Actions::Pipes),
            (Method::Popen, Actions::Plain),
        ] {
            let outcome = program.run(method, actions);
            assert!(matches!(&outcome, Err(Failure::Wrong(what)) if what.contains("said")));
        }
    }
}
