//! Linker settings of libodfimage.so. No code is generated here; the header is made by
//! `make header`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // No version in it while the interface may still change (0.x).
        "-Wl,-soname,libodfimage.so",
        // Its threads and its handlers of fork stay: the code must, too.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
