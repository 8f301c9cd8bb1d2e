//! Settings of this machine that tests need, for as long as somebody needs them.
//!
//! Owns setting `shmem_enabled`, whether shared memory comes in huge pages, and setting it back
//! when the last one leaves. Processes agree by locks of a file, which keeps what was set before:
//! who is killed leaves the setting changed, and the next one still knows what to set back.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const BEFORE: &str = "/run/odfork-tests-shmem_enabled";
/// Others may need another value for as long as their tests run.
const PATIENCE: Duration = Duration::from_secs(600);

/// `shmem_enabled` has one value while one of these lives.
pub struct SharedMemory {
    before: File,
}

impl SharedMemory {
    /// Waits while others need another value. Needs root.
    pub fn set(value: &str) -> Result<SharedMemory, String> {
        let told = |file: &str, error| format!("{file}: {error}");
        fs::create_dir_all("/run").map_err(|error| told("/run", error))?;
        let mut options = File::options();
        let before = options.read(true).write(true).create(true).truncate(false).open(BEFORE);
        let mut there = SharedMemory { before: before.map_err(|error| told(BEFORE, error))? };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if there.lock(libc::LOCK_SH).map_err(|error| told(BEFORE, error))?
                && chosen().map_err(|error| told(SETTING, error))? == value
                && there.is_noted().map_err(|error| told(BEFORE, error))?
            {
                return Ok(there);
            }
            // Alone: the value may change. A lock is not turned into another one in one step, so
            // what was set is looked at again under the one that is kept.
            if there.lock(libc::LOCK_EX).map_err(|error| told(BEFORE, error))? {
                there.change(value).map_err(|error| told(SETTING, error))?;
            } else {
                there.unlock();
                sleep(Duration::from_millis(50));
            }
        }
        Err(format!("{SETTING}: others needed another value for {} s", PATIENCE.as_secs()))
    }

    /// False when somebody holds a lock beside which this one cannot be.
    fn lock(&self, kind: libc::c_int) -> io::Result<bool> {
        // SAFETY: no pointers.
        if unsafe { libc::flock(self.before.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    fn unlock(&self) {
        // SAFETY: no pointers.
        unsafe { libc::flock(self.before.as_raw_fd(), libc::LOCK_UN) };
    }

    fn is_noted(&self) -> io::Result<bool> {
        Ok(self.before.metadata()?.len() > 0)
    }

    fn change(&mut self, value: &str) -> io::Result<()> {
        if !self.is_noted()? {
            self.before.write_all(chosen()?.as_bytes())?;
        }
        fs::write(SETTING, value)
    }

    fn set_back(&mut self) -> io::Result<()> {
        let mut value = String::new();
        self.before.rewind()?;
        self.before.read_to_string(&mut value)?;
        if !value.is_empty() {
            fs::write(SETTING, value)?;
        }
        self.before.set_len(0)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if matches!(self.lock(libc::LOCK_EX), Ok(true)) {
            let _ = self.set_back();
        }
    }
}

fn chosen() -> io::Result<String> {
    let text = fs::read_to_string(SETTING)?;
    Ok(text.split(['[', ']']).nth(1).unwrap_or("never").to_owned())
}
