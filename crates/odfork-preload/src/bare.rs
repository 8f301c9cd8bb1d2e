//! What a library without Rust's standard library must bring itself: the end of a panic, and a
//! name.
//!
//! Owns: both, and nothing else. Why without: the standard library wants libgcc_s.so.1 in every
//! program, for stack traces that nobody sees; the loader would open, map and relocate it at each
//! exec of everything below `odfork run`. Rules: none of our code panics on purpose; if it does all
//! the same, the program ends as it did with `panic=abort`.

/// Says where, and aborts.
#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    odfork_runtime::interpose::panicked(info)
}

// The compiled core library names this function in its unwind tables. Nothing unwinds here
// (`panic=abort`), so it is never called. Hidden: an exported one would take the place of that of a
// preloading program's own libstd.so.
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality,@function",
    // ud2 of x86-64, udf of aarch64.
    "rust_eh_personality: .byte 0x0f, 0x0b, 0, 0",
    ".size rust_eh_personality, . - rust_eh_personality",
    ".popsection",
);
