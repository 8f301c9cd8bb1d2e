//! Advice to the pager from a Rust program that may run under `odfork page run`.

use std::ffi::c_int;
use std::sync::OnceLock;

/// What the program is about to do with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reference bits are simulated.
    Normal = 0,
    /// A garbage collection, or another walk over everything: no reference bits, no reclaims, pages
    /// leave in nearly random order (Babaoglu & Joy 1981, of LISP).
    Anomalous = 1,
}

/// Tells the pager. False: this program is not paged, or nothing of it yet.
pub fn advise(phase: Phase) -> bool {
    type Advise = extern "C" fn(c_int) -> c_int;
    static FOUND: OnceLock<Option<Advise>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // SAFETY: a valid name; the symbol is the agent's function of this type, or there is none.
        unsafe {
            let at = libc::dlsym(libc::RTLD_DEFAULT, c"odfork_page_advise".as_ptr());
            std::mem::transmute::<*mut libc::c_void, Option<Advise>>(at)
        }
    });
    found.is_some_and(|call| call(phase as c_int) == 0)
}

/// Advises for a scope: `Normal` again when dropped.
#[derive(Debug)]
pub struct Anomalous(());

impl Anomalous {
    /// The phase begins.
    pub fn begin() -> Anomalous {
        advise(Phase::Anomalous);
        Anomalous(())
    }
}

impl Drop for Anomalous {
    fn drop(&mut self) {
        advise(Phase::Normal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_agent_nothing_happens() {
        assert!(!advise(Phase::Anomalous));
        drop(Anomalous::begin());
    }
}
