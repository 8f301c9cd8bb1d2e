//! Development tasks that need Rust: the C headers.
//!
//! Owns: when and from what `odfork.h` and `odfspawn.h` are made. Does not own their text: that is
//! the comments in the sources named below and the settings in `cbindgen.toml` beside them. Only
//! these sources are read: the wrappers of libc's functions export symbols too, and have no place
//! in a header.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A header: the crate that has it, its name, and what it is made of, in its order.
struct Header {
    krate: &'static str,
    name: &'static str,
    sources: &'static [&'static str],
}

const HEADERS: [Header; 4] = [
    Header { krate: "odfork-preload", name: "odfork.h", sources: &["api.rs"] },
    Header {
        krate: "odfork-spawn-c",
        name: "odfspawn.h",
        sources: &["steps.rs", "options.rs", "spawn.rs", "shell.rs", "system.rs"],
    },
    Header { krate: "odfork-image-c", name: "odfimage.h", sources: &["api.rs"] },
    Header { krate: "odfork-zygote-c", name: "odfzygote.h", sources: &["api.rs"] },
];

const USAGE: &str = "\
usage: cargo run --manifest-path crates/xtask/Cargo.toml -- header [--check]
  header            write the C headers below crates/ from their sources
  header --check    compare only; exit status 1 when one is out of date";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["header"] => HEADERS.iter().try_for_each(Header::write).map(|()| "header: written"),
        ["header", "--check"] => {
            HEADERS.iter().try_for_each(Header::check).map(|()| "header: up to date")
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(line) => {
            eprintln!("xtask: {line}");
            ExitCode::FAILURE
        }
    }
}

impl Header {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(self.krate)
    }

    fn path(&self) -> PathBuf {
        self.folder().join("include").join(self.name)
    }

    /// The header as it should be.
    fn generate(&self) -> Result<String, String> {
        let config = cbindgen::Config::from_file(self.folder().join("cbindgen.toml"))?;
        let builder = cbindgen::Builder::new().with_config(config);
        let source = |name: &&str| self.folder().join("src").join(name);
        let bindings = self
            .sources
            .iter()
            .fold(builder, |builder, name| builder.with_src(source(name)))
            .generate()
            .map_err(|e| format!("{:?} cannot be turned into {}: {e}", self.sources, self.name))?;
        let mut text = Vec::new();
        bindings.write(&mut text);
        String::from_utf8(text).map_err(|e| e.to_string())
    }

    fn write(&self) -> Result<(), String> {
        let path = self.path();
        let text = self.generate()?;
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    fn check(&self) -> Result<(), String> {
        let path = self.path();
        let found = std::fs::read_to_string(&path)
            .map_err(|e| format!("cannot read {}: {e}; run `make header`", path.display()))?;
        match found == self.generate()? {
            true => Ok(()),
            false => Err(format!(
                "{} is not what {:?} say; run `make header` and commit the result",
                self.name, self.sources
            )),
        }
    }
}
