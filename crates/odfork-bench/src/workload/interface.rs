//! The engine's C API as a subject finds it: through dlsym, because nothing is linked.
//!
//! Under stock fork every symbol is missing and every call answers "no engine is loaded"; the same
//! binary therefore serves all engines. Signatures follow odfork.h.

use std::ffi::{c_char, c_int, c_void, CStr};

type Call = unsafe extern "C" fn() -> c_int;
type Words = unsafe extern "C" fn() -> *const c_char;
type Json = unsafe extern "C" fn(*mut c_char, usize) -> c_int;

/// The symbols that were found.
#[derive(Clone, Copy)]
pub struct Interface {
    freeze: Option<Call>,
    refreeze: Option<Call>,
    thaw: Option<Call>,
    reason: Option<Words>,
    stats: Option<Json>,
}

/// The C function of a name, where something that is loaded has one.
///
/// # Safety
/// `F` is a pointer to a function of the type that is declared for the name.
pub(super) unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: name is NUL-terminated; RTLD_DEFAULT is always a valid handle.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: such a pointer is as large as any; the caller knows its type.
    (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol) })
}

impl Interface {
    pub fn find() -> Self {
        // SAFETY: symbols of these names have the types odfork.h declares for them.
        unsafe {
            Interface {
                freeze: function(c"odfork_freeze"),
                refreeze: function(c"odfork_refreeze"),
                thaw: function(c"odfork_thaw"),
                reason: function(c"odfork_reason"),
                stats: function(c"odfork_stats_json"),
            }
        }
    }

    /// Whether an engine can be told to fold (a subject under stock fork has none).
    pub fn can_fold(&self) -> bool {
        self.refreeze.is_some()
    }

    pub fn freeze(&self) -> Result<(), String> {
        self.call("odfork_freeze", self.freeze)
    }

    pub fn refreeze(&self) -> Result<(), String> {
        self.call("odfork_refreeze", self.refreeze)
    }

    pub fn thaw(&self) -> Result<(), String> {
        self.call("odfork_thaw", self.thaw)
    }

    fn call(&self, name: &str, function: Option<Call>) -> Result<(), String> {
        let function = function.ok_or("no engine is loaded")?;
        // SAFETY: the functions take no argument and may be called at any time.
        if unsafe { function() } == 0 {
            return Ok(());
        }
        let errno = std::io::Error::last_os_error();
        Err(format!("{name} failed: {errno}; {}", self.reason()))
    }

    fn reason(&self) -> String {
        let Some(reason) = self.reason else {
            return "no reason given".into();
        };
        // SAFETY: odfork_reason returns null or a NUL-terminated string that stays valid.
        unsafe {
            let words = reason();
            if words.is_null() {
                return "no reason given".into();
            }
            CStr::from_ptr(words).to_string_lossy().into_owned()
        }
    }

    /// The engine's statistics, one JSON object.
    pub fn stats(&self) -> Result<String, String> {
        let stats = self.stats.ok_or("no engine is loaded")?;
        let mut buffer = vec![0u8; 64 * 1024];
        // SAFETY: the buffer has the length given; the library writes a NUL-terminated text into
        // it.
        let needed = unsafe { stats(buffer.as_mut_ptr().cast(), buffer.len()) };
        if needed < 0 || needed as usize >= buffer.len() {
            return Err(format!("odfork_stats_json returned {needed}"));
        }
        let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
        Ok(String::from_utf8_lossy(&buffer[..end]).trim().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_engine_every_call_says_so() {
        let interface = Interface::find();
        assert!(!interface.can_fold());
        for answer in [
            interface.freeze(),
            interface.refreeze(),
            interface.thaw(),
            interface.stats().map(drop),
        ] {
            assert_eq!(answer, Err("no engine is loaded".to_string()));
        }
    }
}
