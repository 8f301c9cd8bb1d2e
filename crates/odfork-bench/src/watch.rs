//! The memory of a process while it does something: sampled by a thread.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use odfork_samples::environment;

/// How often memory is sampled.
const WATCH_STEP: Duration = Duration::from_millis(1);

/// Memory taken beyond what was there at the start, in bytes.
#[derive(Clone, Copy, Default)]
pub struct Peak {
    /// By the process and its backing file: see `memory_held`.
    pub held: u64,
    /// By everything on the machine: how far MemAvailable fell.
    pub system: u64,
}

/// Does it while a thread samples memory.
pub fn watched<T>(pid: u32, action: impl FnOnce() -> T) -> (T, Peak) {
    let (stop, stopped) = mpsc::channel::<()>();
    let held = environment::memory_held(pid).unwrap_or(u64::MAX);
    let available = environment::memory_available();
    let watcher = std::thread::spawn(move || {
        let mut peak = Peak::default();
        while stopped.recv_timeout(WATCH_STEP) == Err(RecvTimeoutError::Timeout) {
            let now = environment::memory_held(pid).unwrap_or(0);
            peak.held = peak.held.max(now.saturating_sub(held));
            let gone = available.saturating_sub(environment::memory_available());
            peak.system = peak.system.max(gone);
        }
        peak
    });
    let result = action();
    drop(stop);
    (result, watcher.join().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_sees_memory_that_is_held_for_a_while() {
        // Other tests of this process take and free memory meanwhile: the best of some tries.
        let best = (0..10).map(|_| {
            let (length, peak) = watched(std::process::id(), || {
                let block = std::hint::black_box(vec![1u8; 64 << 20]);
                std::thread::sleep(Duration::from_millis(50));
                std::hint::black_box(&block).len()
            });
            assert_eq!(length, 64 << 20);
            peak.held
        });
        let best = best.max().unwrap_or(0);
        assert!(best >= 60 << 20, "{best}");
    }
}
