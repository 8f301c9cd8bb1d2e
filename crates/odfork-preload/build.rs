//! Linker settings of libodfork.so. No code is generated here; the header is made by `make header`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // A program linked with -lodfork and started with the library preloaded must get one copy: the loader
        // compares this name. No version in it while the interface may still change (0.x).
        "-Wl,-soname,libodfork.so",
        // Frozen memory outlives dlclose(): the code that knows about it has to stay.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
