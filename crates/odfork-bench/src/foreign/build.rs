//! Files made by other programs: what was made stays, beside a text of all that went into it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::last_lines;

/// Writes a source; an error names it.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs the command, unless the same words and sources made the same output before.
pub fn build(mut command: Command, output: &Path, sources: &[&str]) -> Result<()> {
    let stamp = output.with_extension("stamp");
    let text = format!("{command:?}\n{}", sources.join("\n"));
    if output.exists() && fs::read_to_string(&stamp).is_ok_and(|old| old == text) {
        return Ok(());
    }
    println!("making {}", output.display());
    let _ = fs::remove_file(&stamp);
    let name = Path::new(command.get_program()).display().to_string();
    let done = command.output().with_context(|| format!("cannot start {name}"))?;
    if !done.status.success() || !output.exists() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("{name} did not make {}: {}", output.display(), last_lines(&said));
    }
    write(&stamp, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_made_once_and_a_failure_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("made");
        let script = |text: &str| {
            let mut command = Command::new("sh");
            command.current_dir(folder.path()).args(["-c", text]);
            command
        };
        for _ in 0..2 {
            build(script("echo x >> made"), &output, &["source"]).unwrap();
        }
        assert_eq!(fs::read_to_string(&output).unwrap(), "x\n");
        build(script("echo x >> made"), &output, &["other"]).unwrap();
        assert_eq!(fs::read_to_string(&output).unwrap(), "x\nx\n");
        let fails = script("echo no >&2; echo room >&2; exit 3");
        let why = build(fails, &output, &[]).unwrap_err().to_string();
        assert!(why.ends_with("made: no / room"), "{why}");
        let nowhere = folder.path().join("gone/source");
        let why = format!("{:#}", write(&nowhere, "x").unwrap_err());
        assert!(why.starts_with(&format!("cannot write {}: ", nowhere.display())), "{why}");
    }
}
