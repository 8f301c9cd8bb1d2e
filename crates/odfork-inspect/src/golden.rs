//! Comparing what is printed with a file in tests/golden. For tests only.

use std::fs;

pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// The text must be that of the file; UPDATE_GOLDEN=1 writes the file instead.
pub fn check(name: &str, text: &str) {
    let path = format!("{FOLDER}/{name}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert!(text == expected, "{name} is not as recorded; it is now:\n{text}");
}

#[test]
fn helps_are_as_recorded() {
    for one in crate::SUBCOMMANDS {
        let help = (one.command)().term_width(80).render_help().to_string();
        check(&format!("help-{}.txt", one.name), &help);
    }
}
