//! Linker settings of libodfork_pager.so; as those of libodfork.so, and for the same reasons.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        "-Wl,-soname,libodfork_pager.so",
        // Paged memory outlives dlclose(): the code that knows about it has to stay.
        "-Wl,-z,nodelete",
        "-nostartfiles",
        "-Wl,--hash-style=gnu",
        "-lc",
        "-lpthread",
        "-ldl",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
