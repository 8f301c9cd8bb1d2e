//! Runs another program to its end.

use std::process::{Command, Output, Stdio};

use anyhow::{bail, Context, Result};

/// On failure the last line it said is the reason.
pub fn run(command: &mut Command) -> Result<()> {
    finish(command.stdout(Stdio::null())).map(|_| ())
}

/// What it writes to standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    Ok(finish(command.stdout(Stdio::piped()))?.stdout)
}

fn finish(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    bail!("{name} failed: {last}")
}
