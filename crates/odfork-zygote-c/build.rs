//! Linker settings of libodfzygote.so. No code is generated here; the header is made by
//! `make header`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // No version in it while the interface may still change (0.x).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libodfzygote.so");
}
