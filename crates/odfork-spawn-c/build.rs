//! Linker settings of libodfspawn.so. No code is generated here; the header is made by `make
//! header`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // No version in it while the interface may still change (0.x).
        "-Wl,-soname,libodfspawn.so",
        // Stacks for children are kept for the next spawn: whoever knows about them has to stay
        // after dlclose().
        "-Wl,-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
