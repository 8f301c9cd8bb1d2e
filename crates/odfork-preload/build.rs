//! Linker settings of libodfork.so. No code is generated here; the header is made by `make header`.
//!
//! The library is loaded by every program executed below `odfork run`, most of which are small and
//! end soon. Each segment is a call of mmap and a mapping, each page the loader writes is a fault:
//! the settings keep both few, and
//! `tests/programs/proc_exec_cost.c` and `tests/linking.rs` count them.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // A program linked with -lodfork and started with the library preloaded must get one copy:
        // the loader compares this name. No version in it while the interface may still change
        // (0.x).
        "-Wl,-soname,libodfork.so",
        // Frozen memory outlives dlclose(): the code that knows about it has to stay.
        "-Wl,-z,nodelete",
        // No code of the C compiler's: it looks up four symbols, runs two constructors, and its one
        // variable would be a page to be zeroed.
        "-nostartfiles",
        // One segment to read and execute, headers and constants included.
        "-Wl,-z,noseparate-code",
        "-Wl,--hash-style=gnu",
        // The crate libc does not ask for the library where another crate of the build wants its
        // feature `std`.
        "-lc",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    // GNU ld makes two segments where lld, the default since Rust 1.90, makes four.
    if Command::new("ld.bfd").arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("cargo:rerun-if-changed=first.ld");
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{}/first.ld", env!("CARGO_MANIFEST_DIR"));
    }
}
