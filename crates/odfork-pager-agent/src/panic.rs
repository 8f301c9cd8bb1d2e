//! What a library without Rust's standard library must define itself: the panic handler, and a
//! personality function. As in odfork-preload, and for the same reasons.

/// A promise of this library turned out wrong: the program ends rather than going on with memory in
/// doubt.
#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    crate::messages::die(b"odfork page: bug in the agent, aborting\n")
}

// Named by the unwind tables of the compiled core library, never called.
#[cfg(not(test))]
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
