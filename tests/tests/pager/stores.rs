//! Cases of the store: huge pages, no room, damage.

use std::fs;
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use odfork_tests::host::SharedMemory;
use odfork_tests::machine;

use super::content;
use super::world::*;

/// Shared memory comes in huge pages, which bring zeros for all they cover.
pub fn huge_pages(stage: &Stage) -> Outcome {
    if !machine::is_root() {
        println!("SKIPPED: needs root to set shmem_enabled");
        return Ok(());
    }
    let _always = SharedMemory::set("always")?;
    content(stage, &["--compress", "none"])
}

/// A store without room: the program waits, says nothing wrong, and others go on once it is gone.
pub fn full(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&["--store", "memory", "--store-size", "8M"]), &[])?;
    let mut waits = world.start("content", &["64", "2", "30", "51", "90"])?;
    let deadline = Instant::now() + PATIENCE;
    while world.status()?["store_full_now"] != true {
        if let Some(status) = waits.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("it ended ({status}) instead of waiting"));
        }
        if Instant::now() > deadline {
            return Err(format!("the store is never full: {}", world.status()?));
        }
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(500));
    if waits.try_wait().map_err(|e| e.to_string())?.is_some() {
        return Err("it ended instead of waiting".into());
    }
    waits.kill().map_err(|e| e.to_string())?;
    let _ = waits.wait();
    world.is_clean()?;
    world.run("content", &["10", "2", "1", "52", "40"])
}

/// A store that returns other bytes: SIGBUS, never those bytes.
pub fn damaged(stage: &Stage, options: &[&str]) -> Outcome {
    let world = World::new(stage, &with(options), &[])?;
    let mut child = world.start("damage", &["32"])?;
    let mut line = [0; 7];
    let out = child.stdout.as_mut().ok_or("no output")?;
    out.read_exact(&mut line).map_err(|e| e.to_string())?;
    let pid = world.daemon().ok_or("no daemon")?;
    let mut hit = false;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).map_err(|e| e.to_string())?.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let name = target.to_string_lossy();
        if name.contains("odfork-page-store") || name.starts_with("/var/tmp/#") {
            let file = fs::OpenOptions::new().write(true).open(entry.path());
            let mut file = file.map_err(|e| e.to_string())?;
            use std::io::Seek;
            file.seek(std::io::SeekFrom::Start(5 << 20)).map_err(|e| e.to_string())?;
            file.write_all(&[0x5A; 1 << 16]).map_err(|e| e.to_string())?;
            file.sync_all().map_err(|e| e.to_string())?;
            hit = true;
            break;
        }
    }
    if !hit {
        let _ = child.kill();
        return Err("the store's file was not found".into());
    }
    child.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(|e| e.to_string())?;
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors: usize = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    // 16 pages, or more of them compressed, less those that were in memory.
    if !output.status.success() || !(1..=80).contains(&errors) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} {text} {said}", output.status));
    }
    Ok(())
}

/// Forks are refused when the store has no room for them.
pub fn no_room_to_fork(stage: &Stage) -> Outcome {
    let options = ["--limit", "24M", "--store", "memory", "--store-size", "6M"];
    let world = World::new(stage, &options, &[])?;
    let mut child = ready(&world, "orphan", &["full"])?;
    go(&mut child)?;
    finish(child)?;
    world.is_clean()
}

/// A tmpfs of a size, unmounted when dropped.
pub struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    pub fn new(size: &str) -> Option<Tmpfs> {
        let folder = tempfile::tempdir().ok()?;
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path());
        mount.status().is_ok_and(|done| done.success()).then(|| Tmpfs(folder))
    }

    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
