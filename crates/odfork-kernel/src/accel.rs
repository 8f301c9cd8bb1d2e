//! Chooses the accelerator: KVM where a guest really boots under it, else emulation (TCG), or
//! emulation that counts.
//!
//! /dev/kvm that opens proves little: inside another virtual machine it may exist and guests hang
//! in it. So it is tried once, with the kernel that is to run, and the answer is kept in the work
//! folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::guest::GuestSpec;
use crate::options::{GuestOptions, MachineOptions};
use crate::places::Places;
use crate::qemu::Accel;
use crate::session::{self, End};

/// Under KVM a guest is up in 2 s.
const TRIAL: Duration = Duration::from_secs(20);

/// Chooses for a kernel, by trying when it was not tried before.
pub fn choose(kernel: &Path, machine: &MachineOptions, places: &Places) -> Result<Accel> {
    match machine.guest.accel.as_deref() {
        Some("kvm") => return Ok(Accel::Kvm),
        Some("count") => return Ok(Accel::Counting),
        Some(_) => return Ok(Accel::Tcg),
        None => {}
    }
    if fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accel::Tcg);
    }
    let memory = places.work.join("kvm-trials");
    let key = key(kernel);
    let known = fs::read_to_string(&memory).unwrap_or_default();
    if let Some(answer) = recall(&known, &key) {
        return Ok(answer);
    }
    eprintln!(
        "kernel: trying a guest under KVM (once for this kernel, {} s at most)",
        TRIAL.as_secs()
    );
    let answer = attempt(kernel, machine, places)?;
    let word = if answer == Accel::Kvm { "yes" } else { "no" };
    let _ = fs::write(&memory, format!("{known}{key} {word}\n"));
    eprintln!(
        "kernel: {}",
        match answer {
            Accel::Kvm => "it came up; guests run under KVM",
            _ => "it did not come up; guests are emulated (TCG)",
        }
    );
    Ok(answer)
}

fn attempt(kernel: &Path, machine: &MachineOptions, places: &Places) -> Result<Accel> {
    let mut spec = GuestSpec::new(kernel, machine, &["/bin/true"]);
    spec.machine = MachineOptions {
        append: machine.append.clone(),
        ..MachineOptions::plain(&GuestOptions { memory: 512 << 20, ..machine.guest.clone() })
    };
    spec.timeout = Some(TRIAL);
    let outcome = session::run(&spec, Accel::Kvm, places, &mut |_, _| {})?;
    Ok(if outcome.end == End::Exited(0) { Accel::Kvm } else { Accel::Tcg })
}

/// The kernel's file and the running host's kernel: another of either may behave otherwise.
fn key(kernel: &Path) -> String {
    let facts = fs::metadata(kernel).ok();
    let time = facts.as_ref().and_then(|facts| facts.modified().ok());
    let time = time.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let place = kernel.to_string_lossy().replace(char::is_whitespace, "_");
    format!(
        "{place}:{}:{}:{}",
        facts.map_or(0, |facts| facts.len()),
        time.map_or(0, |at| at.as_millis()),
        host.trim()
    )
}

fn recall(known: &str, key: &str) -> Option<Accel> {
    let mut answers = known.lines().filter_map(|line| line.split_once(' '));
    let answer = answers.rfind(|(name, _)| *name == key)?.1;
    Some(if answer == "yes" { Accel::Kvm } else { Accel::Tcg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_for_a_kernel_counts() {
        let known = "/a:1:2:6.1 no\n/b:1:2:6.1 yes\n/a:1:2:6.1 yes\n";
        assert_eq!(recall(known, "/a:1:2:6.1"), Some(Accel::Kvm));
        assert_eq!(recall(known, "/a:1:3:6.1"), None);
        assert_eq!(recall("/a no\n", "/a"), Some(Accel::Tcg));
    }
}
