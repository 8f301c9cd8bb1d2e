//! Making the touch of a page a SIGBUS before Linux 6.6: a mapping of an empty file over it.
//!
//! Owns the thread that maps it. Mapping over a page unmaps it, and the kernel lets who unmaps wait
//! until the session's thread has read of that: it cannot do it itself.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::{Builder, Thread};

use super::slots::PAGE64;
use crate::memory::{self, At, What};
use crate::PAGE;

/// The values of `at` that are no address.
const IDLE: u64 = 0;
const END: u64 = 1;

#[derive(Debug)]
pub struct Grave {
    at: Arc<AtomicU64>,
    thread: Thread,
}

impl Grave {
    /// In the session's thread: the new one shares its table of descriptors.
    pub fn dig(empty: File) -> std::io::Result<Grave> {
        let at = Arc::new(AtomicU64::new(IDLE));
        let theirs = at.clone();
        let thread = Builder::new().name("odfork-image".to_owned()).spawn(move || loop {
            match theirs.load(SeqCst) {
                IDLE => std::thread::park(),
                END => return,
                page => {
                    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u32;
                    // Without memory for it: the toucher tries again, and so do we.
                    // SAFETY: a page of a region of ours that has no content yet.
                    let _ = unsafe {
                        memory::map(At::Over(page), PAGE, prot, What::Private(&empty, 0))
                    };
                    theirs.store(IDLE, SeqCst);
                }
            }
        })?;
        Ok(Grave { at, thread: thread.thread().clone() })
    }

    pub fn is_busy(&self) -> bool {
        self.at.load(SeqCst) != IDLE
    }

    /// Begins with a page; not while it is busy.
    pub fn bury(&self, page: u64) {
        debug_assert_eq!(page % PAGE64, 0);
        self.at.store(page, SeqCst);
        self.thread.unpark();
    }
}

impl Drop for Grave {
    fn drop(&mut self) {
        self.at.store(END, SeqCst);
        self.thread.unpark();
    }
}
