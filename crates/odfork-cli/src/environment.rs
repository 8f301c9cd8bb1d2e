//! The environment as it was inherited, byte for byte, and the block that is handed to the program.
//!
//! `std::env` would lose entries without `=` and hide duplicates, and the program must see exactly
//! what it would have seen, plus what the launcher adds; so this file reads the C array itself. It
//! also names ODFORK_* variables that no setting knows, and values that no setting accepts. It
//! decides nothing about what to set.

use std::ffi::{c_char, CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::options::{self, nearest, PREFIX, SETTINGS};

/// Of the variables that the pager hands to its programs.
const PAGER_PREFIX: &str = "ODFORK_PAGE_";

extern "C" {
    static environ: *const *const c_char;
}

/// An ordered list of entries, most of them `NAME=value`.
#[derive(Clone)]
pub struct Environment {
    entries: Vec<CString>,
}

impl Environment {
    /// What this process inherited.
    pub fn inherited() -> Environment {
        let mut entries = Vec::new();
        // SAFETY: `environ` is the C library's array: null, or pointers to C strings up to a null
        // pointer. Nothing in this process changes it (no set_var, no second thread before this is
        // read).
        unsafe {
            let mut cursor = environ;
            while !cursor.is_null() && !(*cursor).is_null() {
                entries.push(CStr::from_ptr(*cursor).to_owned());
                cursor = cursor.add(1);
            }
        }
        Environment { entries }
    }

    #[cfg(test)]
    pub fn empty() -> Environment {
        Environment { entries: Vec::new() }
    }

    /// The value of a variable; of the first one, as getenv(3) does, when a name stands twice.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.entries.iter().find_map(|entry| value_of(entry, name)).map(OsStr::from_bytes)
    }

    /// Puts a variable where it stood, or at the end, and leaves it there once.
    pub fn set(&mut self, name: &str, value: &OsStr) {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        // A value never holds a zero byte: it came from an argument, a variable, a path that exists
        // or a number.
        let Ok(entry) = CString::new(bytes) else {
            return;
        };
        match self.entries.iter().position(|old| value_of(old, name).is_some()) {
            Some(place) => {
                self.entries[place] = entry;
                let mut index = 0;
                self.entries.retain(|old| {
                    index += 1;
                    index - 1 <= place || value_of(old, name).is_none()
                });
            }
            None => self.entries.push(entry),
        }
    }

    /// The entries for execve.
    pub fn entries(&self) -> &[CString] {
        &self.entries
    }

    /// One line for each ODFORK_* variable with a name or a value that means nothing. Variables in
    /// `overridden` are set by a flag, so their inherited value does not matter.
    pub fn slips(&self, overridden: &[&str]) -> Vec<String> {
        self.entries.iter().filter_map(|entry| slip(entry, overridden)).collect()
    }
}

fn value_of<'a>(entry: &'a CStr, name: &str) -> Option<&'a [u8]> {
    entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn slip(entry: &CStr, overridden: &[&str]) -> Option<String> {
    let text = entry.to_string_lossy();
    let (name, value) = text.split_once('=')?;
    if !name.starts_with(PREFIX) || overridden.contains(&name) {
        return None;
    }
    // A program below `odfork page run` inherits the pager's own.
    if options::OF_OTHER_COMMANDS.contains(&name) || name.starts_with(PAGER_PREFIX) {
        return None;
    }
    let Some(setting) = options::by_variable(name) else {
        let known = nearest(name, SETTINGS.iter().map(|setting| setting.variable));
        let hint = match known {
            Some(known) => format!("did you mean {known}?"),
            None => "'odfork run --help' lists the ones that do".to_owned(),
        };
        return Some(format!("the environment variable {name} has no meaning here; {hint}"));
    };
    if value.is_empty() || setting.accepts(value) {
        return None;
    }
    let hint = match setting.nearest_value(value) {
        Some(close) => format!("; did you mean {close}?"),
        None => String::new(),
    };
    Some(format!("{name} is '{value}' and should be {}{hint}", setting.accepted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Environment {
        Environment { entries: entries.iter().map(|entry| CString::new(*entry).unwrap()).collect() }
    }

    fn texts(environment: &Environment) -> Vec<&str> {
        environment.entries().iter().map(|entry| entry.to_str().unwrap()).collect()
    }

    #[test]
    fn a_variable_is_replaced_where_it_stood_and_stays_single() {
        let mut block = environment(&["A=1", "odd", "B=2", "A=3", "AB=4"]);
        block.set("A", OsStr::new("x y"));
        assert_eq!(texts(&block), ["A=x y", "odd", "B=2", "AB=4"]);
        block.set("C", OsStr::new(""));
        assert_eq!(texts(&block), ["A=x y", "odd", "B=2", "AB=4", "C="]);
    }

    #[test]
    fn the_first_of_two_counts_and_prefixes_do_not() {
        let block = environment(&["AB=0", "A=1", "A=2"]);
        assert_eq!(block.get("A"), Some(OsStr::new("1")));
        assert_eq!(block.get("B"), None);
    }

    #[test]
    fn slips_name_the_nearest_variable_or_value() {
        let block = environment(&[
            "ODFORK_FREZE=eager",
            "ODFORK_IMAGE=hug",
            "ODFORK_FREEZE=auto",
            "ODFORK_STATS=",
            "ODFORK_KERNEL_TREE=kernel",
            "ODFORK_PAGE_SOCKET=3",
            "FREZE=1",
        ]);
        let slips = block.slips(&[]);
        assert_eq!(slips.len(), 2, "{slips:?}");
        assert!(
            slips[0].contains("ODFORK_FREZE") && slips[0].contains("did you mean ODFORK_FREEZE?"),
            "{}",
            slips[0]
        );
        assert!(
            slips[1].contains("auto, huge or small") && slips[1].contains("did you mean huge?"),
            "{}",
            slips[1]
        );
    }

    #[test]
    fn a_flag_silences_the_bad_value_it_replaces() {
        assert!(environment(&["ODFORK_IMAGE=hug"]).slips(&["ODFORK_IMAGE"]).is_empty());
    }
}
