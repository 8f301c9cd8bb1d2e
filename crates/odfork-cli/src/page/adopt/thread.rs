//! A thread of another process that is borrowed: stopped anywhere, led through calls of ours, and
//! put back so that the process cannot tell.
//!
//! Owns the choice of the thread, its registers and its signals meanwhile. All other threads run
//! on, so what they hold they release. Nothing of the process' C library is called from here.
//!
//! ```text
//!   stopped     by PTRACE_INTERRUPT: in user code, or out of a system call that the kernel makes
//!               again (its answer stands in the registers)
//!   led         all signals blocked; each stop is at a system call, so no signal is needed for it
//!   given back  stopped once more, where the kernel looks for signals: with the old registers it
//!               makes the old call again
//! ```

use std::io::Error;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use odfork_proc::ptrace::{self, registers, Pid, Stop, Wake, CALL_STOP};
use odfork_proc::{interrupt, memory};

use super::target::Target;
use super::waiting::{self, Sleeps};

/// Until a thread is found that may be interrupted; what its process then is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_micros(30);
const LATER: Duration = Duration::from_millis(1);
/// The code segment of programs of 64 bits.
const USER64: u64 = 0x33;
/// The kernel's word for a call that is made again unless a handler runs: then it is EINTR.
const ERESTARTNOHAND: i64 = -514;
const TRAP_FLAG: u64 = 0x100;
const DIRECTION_FLAG: u64 = 0x400;

pub struct Thread {
    pid: Pid,
    pub tid: Pid,
    /// A `syscall` instruction that the process has.
    gate: u64,
    saved: libc::user_regs_struct,
    vectors: Vec<u8>,
    mask: u64,
    /// It is somewhere else now.
    is_led: bool,
    is_gone: bool,
    _patient: Patient,
}

impl Thread {
    /// Stops one of the process' threads.
    pub fn borrow(target: &Target) -> Result<Thread> {
        let (pid, gate) = (target.pid, gate(target)?);
        let (end, mut sleeps) = (Instant::now() + PATIENCE, Sleeps::new());
        loop {
            let (chosen, why) = waiting::choose(pid, &mut sleeps);
            if let Some(tid) = chosen {
                if let Some(thread) = Thread::seize(pid, tid, gate)? {
                    return Ok(thread);
                }
            }
            if interrupt::asked() {
                bail!("interrupted; nothing was changed");
            }
            if Instant::now() > end {
                bail!("process {pid} cannot be interrupted unnoticed: {why}; try again later");
            }
            std::thread::sleep(LATER);
        }
    }

    /// None: not now.
    fn seize(pid: Pid, tid: Pid, gate: u64) -> Result<Option<Thread>> {
        if let Err(error) = ptrace::seize(tid, libc::PTRACE_O_TRACESYSGOOD) {
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(None),
                _ => Err(anyhow!("process {pid} cannot be traced ({error}): gdb or strace may be")),
            };
        }
        let _patient = Patient::new();
        let _ = ptrace::interrupt(tid);
        if !settle(pid, tid)? {
            return Ok(None);
        }
        let saved = registers::get(tid)?;
        if saved.cs != USER64 || is_in_sequence(tid, saved.rip) {
            let _ = ptrace::detach(tid, 0);
            return match saved.cs {
                USER64 => Ok(None),
                _ => bail!("process {pid} runs code of 32 bits"),
            };
        }
        let vectors = registers::get_vectors(tid)?;
        let mask = ptrace::blocked_signals(tid)?;
        let saved = again(saved);
        let (is_led, is_gone) = (false, false);
        Ok(Some(Thread { pid, tid, gate, saved, vectors, mask, is_led, is_gone, _patient }))
    }

    /// Makes it carry out a system call.
    pub fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let (rip, rax) = (self.gate, number as u64);
        self.lead(libc::user_regs_struct { rip, rax, rdi, rsi, rdx, r10, r8, r9, ..self.saved })?;
        self.reach_call()?;
        self.reach_call()?;
        match registers::get(self.tid)?.rax as i64 {
            code @ -4095..=-1 => Err(Error::from_raw_os_error(-code as i32).into()),
            value => Ok(value as u64),
        }
    }

    /// Makes it run a function on this stack, until that makes the call `last`.
    pub fn run(&mut self, function: u64, argument: u64, stack: u64, last: u64) -> Result<()> {
        let (rip, rdi, rsp) = (function, argument, stack & !0xff);
        let eflags = self.saved.eflags & !(TRAP_FLAG | DIRECTION_FLAG);
        self.lead(libc::user_regs_struct { rip, rdi, rsp, rbp: 0, eflags, ..self.saved })?;
        loop {
            self.reach_call()?;
            let is_last = registers::get(self.tid)?.orig_rax == last;
            self.reach_call()?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Elsewhere, with all signals blocked. It is in no system call there that could be made again.
    fn lead(&mut self, registers: libc::user_regs_struct) -> Result<()> {
        if !self.is_led {
            ptrace::block_signals(self.tid, u64::MAX)?;
            self.is_led = true;
        }
        Ok(registers::set(self.tid, &libc::user_regs_struct { orig_rax: u64::MAX, ..registers })?)
    }

    /// To the beginning or the end of the next system call.
    fn reach_call(&mut self) -> Result<()> {
        let end = Instant::now() + CALL_TIMEOUT;
        ptrace::resume_to_call(self.tid)?;
        loop {
            match ptrace::next_of(self.tid) {
                Wake::Stopped(_, CALL_STOP) => return Ok(()),
                Wake::Stopped(_, stop) => self.pass(stop)?,
                Wake::Gone(..) | Wake::Alone => {
                    self.is_gone = true;
                    bail!("process {} ended meanwhile, or executes another program", self.pid);
                }
                Wake::Idle if Instant::now() > end => {
                    self.stop_again()?;
                    bail!("process {} waits for something of its own; try again", self.pid)
                }
                Wake::Idle => std::thread::sleep(POLL),
            }
        }
    }

    /// A stop that is not ours. Only what cannot be blocked comes.
    fn pass(&mut self, stop: Stop) -> Result<()> {
        match stop {
            // Perhaps it was let go on since, which nobody would tell.
            Stop::Signal(libc::SIGSTOP) => {}
            Stop::Signal(signal) => bail!("signal {signal} while process {} was led", self.pid),
            _ => {}
        }
        Ok(ptrace::resume_to_call(self.tid)?)
    }

    /// Puts it back to where it was, and lets it go.
    fn give_back(&mut self) -> Result<()> {
        if self.is_gone {
            return Ok(());
        }
        if self.is_led {
            self.stop_again()?;
            registers::set(self.tid, &self.saved)?;
            registers::set_vectors(self.tid, &mut self.vectors)?;
            ptrace::block_signals(self.tid, self.mask)?;
        }
        ptrace::detach(self.tid, 0)?;
        Ok(())
    }

    /// There the kernel looks for calls to be made again, which it does not at the end of a call.
    fn stop_again(&mut self) -> Result<()> {
        let end = Instant::now() + CALL_TIMEOUT;
        ptrace::interrupt(self.tid)?;
        // It is stopped, or it has not come to a stop in time: then this fails.
        let _ = ptrace::resume(self.tid, 0);
        loop {
            match ptrace::next_of(self.tid) {
                Wake::Stopped(_, Stop::Trap) => return Ok(()),
                // Whatever stops it takes the interruption with it.
                Wake::Stopped(..) => {
                    ptrace::interrupt(self.tid)?;
                    ptrace::resume(self.tid, 0)?;
                }
                Wake::Gone(..) | Wake::Alone => return Ok(()),
                Wake::Idle if Instant::now() > end => bail!("process {} hangs", self.pid),
                Wake::Idle => std::thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            let gone = !std::path::Path::new(&format!("/proc/{}", self.pid)).exists();
            if !gone {
                eprintln!("odfork page adopt: process {} is left stopped: {error}", self.pid);
            }
        }
    }
}

/// Waits for the stop that was asked for; false: the thread has ended. Signals that come first
/// reach it as ever.
fn settle(pid: Pid, tid: Pid) -> Result<bool> {
    let end = Instant::now() + CALL_TIMEOUT;
    loop {
        match ptrace::next_of(tid) {
            Wake::Stopped(_, Stop::Trap) => return Ok(true),
            Wake::Stopped(_, Stop::Group) => {
                let _ = ptrace::detach(tid, 0);
                bail!("process {pid} is stopped: let it go on first (kill -CONT {pid})");
            }
            Wake::Stopped(_, Stop::Signal(signal)) => ptrace::resume(tid, signal)?,
            Wake::Stopped(..) => ptrace::resume(tid, 0)?,
            Wake::Gone(..) | Wake::Alone => return Ok(false),
            Wake::Idle if Instant::now() > end => {
                bail!("thread {tid} of process {pid} does not stop: it waits in the kernel")
            }
            Wake::Idle => std::thread::sleep(POLL),
        }
    }
}

/// Calls that answer EINTR where the kernel could make them again: it is told to. If a signal with
/// a handler is pending, they are EINTR as ever.
fn again(registers: libc::user_regs_struct) -> libc::user_regs_struct {
    let is_broken_off = registers.rax as i64 == -i64::from(libc::EINTR);
    match is_broken_off && waiting::is_repeatable(registers.orig_rax as i64) {
        true => libc::user_regs_struct { rax: ERESTARTNOHAND as u64, ..registers },
        false => registers,
    }
}

/// Its instruction is inside a restartable sequence. Led elsewhere, it would not be restarted.
fn is_in_sequence(tid: Pid, rip: u64) -> bool {
    let Some(sequence) = ptrace::sequence(tid) else { return false };
    // Version and flags, start, length.
    let mut words = [0u8; 24];
    if memory::read(tid, sequence, &mut words).is_err() {
        return true;
    }
    let word = |at: usize| u64::from_ne_bytes(words[at..at + 8].try_into().unwrap_or_default());
    rip.wrapping_sub(word(8)) < word(16)
}

/// Address of a `syscall` instruction in the process' vdso.
fn gate(target: &Target) -> Result<u64> {
    let vdso = target.maps.iter().find(|mapping| mapping.name == "[vdso]");
    let vdso = vdso.with_context(|| format!("process {} has no vdso", target.pid))?;
    let mut code = vec![0; vdso.bytes() as usize];
    memory::read(target.alive, vdso.start, &mut code)?;
    let at = code.windows(2).position(|pair| pair == [0x0f, 0x05]);
    Ok(vdso.start + at.context("the vdso holds no syscall instruction")? as u64)
}

/// While this lives, nobody can end us by Ctrl-C: a thread would be left where it does not belong.
struct Patient(libc::sigset_t);

impl Patient {
    fn new() -> Patient {
        let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP];
        // SAFETY: plain calls on live signal sets.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut all);
            for signal in ends {
                libc::sigaddset(&mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Patient(before)
        }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        // SAFETY: the mask was filled by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
