//! The process that is to be paged: what it must be, before anything is changed.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{bail, Context, Result};
use odfork_proc::maps::{self, Mapping};
use odfork_proc::process::{self, Pid};
use odfork_proc::status::{value_of, Status};
use rustix::fs::FlockOperation;

use crate::elf;
use crate::library::PAGER;

/// Parts of a program lie as far from each other as in its file, and some pages more.
const LARGEST_GAP: u64 = 4 << 20;
/// Of 'odfork run'.
const RUNTIME: &str = "libodfork.so";

#[derive(Debug)]
pub struct Target {
    pub pid: Pid,
    /// A thread of it that has not ended: the first one may have.
    pub alive: Pid,
    pub maps: Vec<Mapping>,
}

impl Target {
    /// An error says what is in the way, and what helps.
    pub fn look(pid: Pid) -> Result<Target> {
        let status = Status::of_process(pid).with_context(|| format!("no process {pid}"))?;
        if status.process != pid {
            bail!("{pid} is a thread of process {}: name that", status.process);
        }
        let has_memory = |tid: &Pid| Status::of_process(*tid).is_some_and(|one| one.has_memory);
        let Some(alive) = process::threads(pid).into_iter().find(has_memory) else {
            bail!("process {pid} has no memory: it has ended, or is one of the kernel's");
        };
        let maps = maps::of_process(alive)
            .with_context(|| format!("process {pid} may not be looked at: be root"))?;
        let target = Target { pid, alive, maps };
        target.refuse_ours(&status)?;
        target.refuse_state()?;
        target.refuse_program()?;
        target.refuse_watched()?;
        target.refuse_elsewhere()?;
        target.refuse_shared()?;
        Ok(target)
    }

    /// The loader has put a program or a library there: its code follows. Who only reads a file may
    /// have mapped it elsewhere.
    pub fn is_loaded_at(&self, first: &Mapping) -> bool {
        let is_code = |one: &Mapping| {
            one.name == first.name
                && one.prot & libc::PROT_EXEC as u32 != 0
                && one.start.wrapping_sub(first.start) <= one.offset + LARGEST_GAP
                && one.start >= first.start
        };
        first.offset == 0 && first.is_of_file() && !first.shared && self.maps.iter().any(is_code)
    }

    /// Another process that has this very memory would read zeros.
    fn refuse_shared(&self) -> Result<()> {
        const KCMP_VM: i32 = 1;
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
        for other in pids.filter(|&other| other != self.pid) {
            // SAFETY: numbers only.
            let is_same =
                unsafe { libc::syscall(libc::SYS_kcmp, self.alive, other, KCMP_VM, 0, 0) } == 0;
            if is_same {
                bail!("process {} has its memory together with process {other}", self.pid);
            }
        }
        Ok(())
    }

    /// Nobody else adopts it meanwhile: the lock is on its folder.
    pub fn lock(&self) -> Result<File> {
        let folder = File::open(format!("/proc/{}", self.pid))?;
        let how = FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&folder, how).map_err(|error| {
            anyhow::anyhow!("process {} is being adopted by somebody else: {error}", self.pid)
        })?;
        Ok(folder)
    }

    fn has(&self, name: &str) -> bool {
        let is_it = |mapping: &Mapping| {
            Path::new(&mapping.name).file_name().is_some_and(|found| found == name)
        };
        self.maps.iter().any(is_it)
    }

    fn refuse_ours(&self, status: &Status) -> Result<()> {
        let pid = self.pid;
        let program = |of: &str| fs::metadata(format!("/proc/{of}/exe")).ok();
        let is_same = |one: fs::Metadata, other: fs::Metadata| {
            (one.dev(), one.ino()) == (other.dev(), other.ino())
        };
        let own = program("self").zip(program(&self.alive.to_string()));
        let is_task = ["odfork-page", "odfork-hold"].contains(&status.name.as_str());
        if is_task || own.is_some_and(|(own, other)| is_same(own, other)) {
            bail!("process {pid} is one of odfork's own: name the program that it serves");
        }
        if self.has(PAGER) {
            bail!("process {pid} has the pager already: 'odfork page status' lists what is paged");
        }
        if self.has(RUNTIME) {
            bail!("process {pid} runs under 'odfork run': not both; start it without that");
        }
        Ok(())
    }

    /// As it is now: what of it, or around it, would see or forbid what is done.
    fn refuse_state(&self) -> Result<()> {
        let pid = self.pid;
        for tid in process::threads(pid) {
            let text = fs::read(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let status = Status::parse(&text);
            if status.tracer != 0 {
                bail!("process {pid} is traced by process {}: end that first", status.tracer);
            }
            if status.state.starts_with('T') {
                bail!("process {pid} is stopped: let it go on first (kill -CONT {pid})");
            }
            if value_of(&text, "Seccomp").is_some_and(|mode| mode != "0") {
                bail!("process {pid} filters its system calls (seccomp), which could kill it");
            }
            if status.has_memory && !status.may_userfaultfd {
                bail!("process {pid} has no CAP_SYS_PTRACE, which its userfaultfd needs (root)");
            }
        }
        Ok(())
    }

    fn refuse_program(&self) -> Result<()> {
        let pid = self.pid;
        let open = || File::open(format!("/proc/{}/exe", self.alive));
        let mut head = Vec::new();
        open()
            .and_then(|file| file.take(64).read_to_end(&mut head))
            .with_context(|| format!("the program of process {pid} cannot be read"))?;
        let header = elf::header(&head).filter(|header| header.bits == 64);
        if header.is_none_or(|header| header.machine != elf::own_machine()) {
            bail!("process {pid} runs a program for another machine");
        }
        let facts = elf::facts(open()?)?;
        if facts.loader.is_none() {
            bail!("process {pid} is statically linked, or has no loader: it has no glibc to use");
        }
        if facts.go {
            bail!("process {pid} is a Go program, whose runtime asks the kernel itself");
        }
        if let Some(name) = facts.sanitizer {
            bail!("process {pid} is built with {name}, which owns its memory");
        }
        Ok(())
    }

    /// Only one can watch memory.
    fn refuse_watched(&self) -> Result<()> {
        let mut files = fs::read_dir(format!("/proc/{}/fd", self.alive))?.flatten();
        let is_one = |file: fs::DirEntry| {
            fs::read_link(file.path())
                .is_ok_and(|link| link.to_string_lossy().contains("[userfaultfd]"))
        };
        if files.any(is_one) {
            bail!("process {} has a userfaultfd of its own: it pages by itself", self.pid);
        }
        Ok(())
    }

    /// Its tasks are numbered as they are here.
    fn refuse_elsewhere(&self) -> Result<()> {
        let space = |of: &str| fs::read_link(format!("/proc/{of}/ns/pid"));
        if space("self")? != space(&self.alive.to_string())? {
            bail!("process {} is in another container: run odfork in that one", self.pid);
        }
        Ok(())
    }

    /// The process finds this very file or folder under the same path.
    pub fn must_find(&self, path: &Path) -> Result<()> {
        let there = format!("/proc/{}/root{}", self.alive, path.display());
        let same = fs::metadata(path).ok().zip(fs::metadata(there).ok());
        match same.is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino()))
        {
            true => Ok(()),
            false => bail!("process {} does not see {}", self.pid, path.display()),
        }
    }

    /// Bytes that it has locked into memory.
    pub fn locked(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.alive)).unwrap_or_default();
        odfork_proc::status::bytes_of(&text, "VmLck")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_process() {
        let own = std::process::id() as Pid;
        for pid in [i32::MAX - 1, own] {
            let error = Target::look(pid).unwrap_err().to_string();
            assert!(error.contains(&pid.to_string()) && !error.contains('\n'), "{error}");
        }
    }
}
