//! Tells whether shmem allocates huge pages, so that writing one page would populate 511 zero
//! pages.
//!
//! Presence in the backing memfd is authoritative (`table`), so a huge page made by writing one
//! page would turn its neighbours into zeros. Only writes without an address allocate them
//! (`pagein`, step 3), and only when the administrator has set `shmem_enabled` to always,
//! within_size or force; then nothing is read ahead. Faults always fill single pages, and the
//! kernel does not collapse ranges registered for missing faults.

use std::fs::File;
use std::os::unix::fs::FileExt;

const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The setting, opened before the jail closes.
#[derive(Debug)]
pub struct ShmemHugePages(Option<File>);

impl ShmemHugePages {
    pub fn open() -> ShmemHugePages {
        ShmemHugePages(File::open(SETTING).ok())
    }

    /// At this moment. A kernel without the setting has no huge pages of that kind; one that does
    /// not answer may.
    pub fn are_off(&self) -> bool {
        let Some(file) = &self.0 else { return true };
        let mut text = [0; 128];
        file.read_at(&mut text, 0).is_ok_and(|got| are_small(&text[..got]))
    }
}

/// "always within_size advise [never] deny force": the word in brackets.
fn are_small(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.is_some_and(|(word, _)| matches!(word, "never" | "deny" | "advise"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_small_is() {
        for small in ["never", "deny", "advise"] {
            assert!(are_small(format!("always [{small}] force\n").as_bytes()), "{small}");
        }
        for other in ["[always] never", "never [within_size]", "never [force]", "never", ""] {
            assert!(!are_small(other.as_bytes()), "{other}");
        }
        assert!(ShmemHugePages(None).are_off());
    }
}
