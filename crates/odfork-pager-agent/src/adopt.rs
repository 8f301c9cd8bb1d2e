//! The entry of `page adopt`: the launcher has mapped this library into a program that runs, has
//! written all addresses that it can know, and makes one of the program's threads run this.
//!
//! Nobody returns from here: when the call number below is made, the launcher puts the thread back
//! to where it was.

use core::arch::naked_asm;

use odfork_pager_protocol::adoption::{Adoption, ADOPTED_CALL};

use crate::any::adopted;

/// Makes the program a paged one; the answer is in what was given.
///
/// # Safety
/// Called by the launcher alone, with an order that nobody else uses, on a stack of its own.
#[cfg(target_arch = "x86_64")]
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn odfork_page_adopt(adoption: *mut Adoption) {
    naked_asm!(
        "call {fill_in}",
        "mov eax, {done}",
        "syscall",
        // The launcher was killed: nobody knows where this thread belongs.
        "ud2",
        fill_in = sym fill_in,
        done = const ADOPTED_CALL,
    )
}

/// First of all what the C library chooses by the processor: `memcpy` is among it.
unsafe extern "C" fn fill_in(adoption: *mut Adoption) {
    // SAFETY: the launcher's order, in memory that this thread alone uses. Slots and resolvers are
    // of this library and of the C library.
    unsafe {
        let choices = &raw const (*adoption).choices;
        for at in 0..(*choices).len() {
            let choice = (*choices)[at];
            if choice.slot != 0 {
                let resolver = core::mem::transmute::<u64, extern "C" fn() -> u64>(choice.resolver);
                (choice.slot as *mut u64).write_volatile(resolver());
            }
        }
        answer(&mut *adoption);
    }
}

#[inline(never)]
fn answer(adoption: &mut Adoption) {
    if let Err((what, error)) = adopted::begin(adoption) {
        let len = what.len().min(adoption.what.len());
        adoption.what[..len].copy_from_slice(&what[..len]);
        adoption.len = len as u32;
        adoption.error = error.0.max(1);
    }
}
