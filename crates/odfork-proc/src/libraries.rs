//! Where the libraries that programs are given lie, seen from the launcher.

use std::path::{Path, PathBuf};

/// Debian's folder for libraries of this architecture.
const MULTIARCH: &str =
    if cfg!(target_arch = "aarch64") { "lib/aarch64-linux-gnu" } else { "lib/x86_64-linux-gnu" };

/// The places to look at, in this order: beside the launcher, and below the folder above it. The
/// last is where RPM packages have libraries of 64 bits.
#[must_use]
pub fn places(launcher: &Path, file_name: &str) -> Vec<PathBuf> {
    let Some(folder) = launcher.parent() else {
        return Vec::new();
    };
    let above = folder.parent().unwrap_or(folder);
    let below = ["lib/odfork", "lib", MULTIARCH, "lib64"].map(|place| above.join(place));
    [folder.to_owned()].into_iter().chain(below).map(|place| place.join(file_name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_it_comes_first_and_nothing_is_looked_for_outside() {
        let found = places(Path::new("/usr/bin/odfork"), "a.so");
        assert_eq!(found[0], Path::new("/usr/bin/a.so"));
        assert_eq!(found[2], Path::new("/usr/lib/a.so"));
        assert_eq!(found[4], Path::new("/usr/lib64/a.so"));
        assert!(found.iter().all(|place| place.starts_with("/usr")));
        assert!(places(Path::new("/"), "a.so").is_empty());
    }
}
