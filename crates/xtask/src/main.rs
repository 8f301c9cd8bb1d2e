//! Development tasks that need Rust: the C header.
//!
//! Owns: when and from what `crates/odfork-preload/include/odfork.h` is made. Does not own its text: that is the
//! comments in `crates/odfork-preload/src/api.rs` and the settings in `cbindgen.toml` beside it. Only api.rs is
//! read: the wrappers of libc's functions export symbols too, and have no place in a header.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo run --manifest-path crates/xtask/Cargo.toml -- header [--check]
  header            write crates/odfork-preload/include/odfork.h from src/api.rs
  header --check    compare only; exit status 1 when the header is out of date";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["header"] => write_header(),
        ["header", "--check"] => check_header(),
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

fn preload() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../odfork-preload")
}

fn header_path() -> PathBuf {
    preload().join("include/odfork.h")
}

/// The header as it should be.
fn generate() -> Result<String, String> {
    let settings = preload().join("cbindgen.toml");
    let config = cbindgen::Config::from_file(&settings)?;
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(preload().join("src/api.rs"))
        .generate()
        .map_err(|e| format!("api.rs cannot be turned into a header: {e}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|e| e.to_string())
}

fn write_header() -> Result<String, String> {
    let path = header_path();
    let text = generate()?;
    std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok("header: include/odfork.h written".into())
}

fn check_header() -> Result<String, String> {
    let path = header_path();
    let found = std::fs::read_to_string(&path)
        .map_err(|e| format!("cannot read {}: {e}; run `make header`", path.display()))?;
    if found == generate()? {
        Ok("header: include/odfork.h is up to date".into())
    } else {
        Err("include/odfork.h is not what api.rs says; run `make header` and commit the result"
            .into())
    }
}
