//! Outside of its repository, as `cargo install odfork-cli` builds it, the command carries the
//! libraries that it preloads: nobody else would bring them.
//!
//! Owns: building them by a cargo of its own, in a package that depends on their crates, and
//! telling `carried.rs` where they are. In the repository nothing is built here: the libraries lie
//! beside the command. The feature `carried` builds them there too, for `cargo install --git`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const LIBRARIES: [(&str, &str); 2] =
    [("odfork-preload", "libodfork.so"), ("odfork-pager-agent", "libodfork_pager.so")];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let sources = here.parent().filter(|crates| crates.join("odfork-preload").exists());
    let is_wanted = sources.is_none() || env::var_os("CARGO_FEATURE_CARRIED").is_some();
    // Documentation is built without a network.
    let built = match is_wanted && env::var_os("DOCS_RS").is_none() {
        true => libraries(&folder.join("libraries"), sources),
        false => Vec::new(),
    };
    let entries: String = built
        .iter()
        .map(|(name, path)| format!("({name:?}, include_bytes!({:?})),\n", path.display()))
        .collect();
    fs::write(
        folder.join("carried.rs"),
        format!("pub const LIBRARIES: &[(&str, &[u8])] = &[\n{entries}];\n"),
    )
    .expect("OUT_DIR is writable");
}

/// The libraries with their names; none before the first release, whose crates nobody can have yet.
fn libraries(folder: &Path, sources: Option<&Path>) -> Vec<(&'static str, PathBuf)> {
    fs::create_dir_all(folder).expect("OUT_DIR is writable");
    fs::write(folder.join("Cargo.toml"), manifest(sources)).expect("OUT_DIR is writable");
    fs::write(folder.join("lib.rs"), "").expect("OUT_DIR is writable");
    if !cargo(folder, &["generate-lockfile"]).0 {
        println!("cargo:warning=the crates of odfork's libraries cannot be had: left out");
        return Vec::new();
    }
    let target = env::var("TARGET").expect("cargo sets it");
    let words = ["build", "--release", "--message-format=json", "--target", &target];
    let (done, said) = cargo(folder, &words);
    assert!(done, "odfork's libraries cannot be built");
    // As a dependency's, their file names have a hash in them.
    let find = |(_, name): (&str, &'static str)| {
        let start = format!("/{}-", name.trim_end_matches(".so"));
        let is_it = |word: &&str| word.starts_with('/') && word.ends_with(".so");
        let found = said.split('"').filter(is_it).find(|word| word.contains(&start));
        (name, PathBuf::from(found.unwrap_or_else(|| panic!("no {name} was built: {said}"))))
    };
    LIBRARIES.map(find).into()
}

fn manifest(sources: Option<&Path>) -> String {
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let dependency = |(name, _): (&str, &str)| {
        let path = sources.map(|folder| format!(", path = {:?}", folder.join(name)));
        format!("{name} = {{ version = \"={version}\"{} }}\n", path.unwrap_or_default())
    };
    let dependencies: String = LIBRARIES.into_iter().map(dependency).collect();
    format!(
        "[package]\nname = \"libraries\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [lib]\npath = \"lib.rs\"\n[workspace]\n[dependencies]\n{dependencies}\
         [profile.release]\npanic = \"abort\"\nstrip = true\n"
    )
}

/// Without what the outer cargo says of its package. Whether it went well, and its output.
fn cargo(folder: &Path, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    let kept = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE"];
    for (name, _) in env::vars() {
        let is_ours = name.starts_with("CARGO") && !kept.iter().any(|one| name.starts_with(one));
        if is_ours || name == "RUSTFLAGS" {
            command.env_remove(name);
        }
    }
    command.arg("--color=never").args(words).arg("--manifest-path").arg(folder.join("Cargo.toml"));
    command.arg("--config").arg(format!("build.target-dir={:?}", folder.join("target")));
    let output = command.current_dir(folder).output().expect("cargo runs");
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}
