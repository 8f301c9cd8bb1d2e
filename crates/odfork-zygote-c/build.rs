//! Linker settings of libodfzygote.so. No code is generated here; the header is made by
//! `make header`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // No version in it while the interface may still change (0.x).
        "-Wl,-soname,libodfzygote.so",
        // Words of errors are freed when a thread ends: the code must be there then.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
