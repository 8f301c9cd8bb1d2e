//! Zeros where a backing file shows: in the calling thread, without a helper task.
//!
//! Owns three ways, each for memory whose content the program has given up: a fresh anonymous
//! mapping, the kernel's zero page, and zeros written in place. Each is a plain function of the
//! range; which one is taken is decided in `give_up.rs`.

use crate::addresses::Addresses;
use crate::args;
use crate::kept;
use crate::sys::abi::userfaultfd as abi;
use crate::sys::userfaultfd::Userfaultfd;
use crate::sys::{self, Errno, Kernel, SysResult};

const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A fresh anonymous mapping over the range, with the properties that the memory had.
pub fn map(k: &Kernel, addresses: &Addresses, range: (usize, usize), access: i32) -> SysResult<()> {
    let (kept, until) = addresses.kept(range.0, range.1);
    kept::map(k, range, access, libc::MAP_FIXED, kept)?;
    if until < range.1 {
        kept::advise_again(addresses, (until, range.1));
    }
    Ok(())
}

/// No other task reaches this memory: the kernel lets nobody else "leave" shared memory.
pub fn is_alone(k: &Kernel) -> bool {
    // SAFETY: does nothing where it succeeds.
    unsafe { k.call(libc::SYS_unshare, args![libc::CLONE_VM]) }.is_ok()
}

/// The kernel's zero page in every place of the range, which takes no memory and leaves the
/// mapping as it is. A descriptor is needed for a moment: only where no other thread could see
/// it, and with signals blocked.
///
/// `mapping`: what is probably the whole mapping, which the kernel then need not split. Where that
/// was wrong, only the range is registered.
pub fn zero_pages(k: &Kernel, range: (usize, usize), mapping: (usize, usize)) -> SysResult<()> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | abi::USER_MODE_ONLY;
    // SAFETY: flags only.
    let uffd = unsafe { k.call(libc::SYS_userfaultfd, args![flags]) }?;
    let uffd = Userfaultfd(uffd as i32);
    let done = register(uffd, range, mapping).and_then(|()| fill(uffd, range));
    // SAFETY: the descriptor made above.
    unsafe { sys::raw(libc::SYS_close, args![uffd.0]) };
    done
}

fn register(uffd: Userfaultfd, range: (usize, usize), mapping: (usize, usize)) -> SysResult<()> {
    uffd.enable(0)?;
    let register = |(start, end): (usize, usize)| {
        uffd.register(start as u64, (end - start) as u64, abi::REGISTER_MODE_MISSING)
    };
    // A stack in it, of a coroutine, would wait for ever where it grows into a hole of the file.
    let stack = core::ptr::from_ref(&range) as usize;
    let is_safe = !(mapping.0..mapping.1).contains(&stack);
    if is_safe && register(mapping).is_ok() {
        return Ok(());
    }
    register(range)
}

fn fill(uffd: Userfaultfd, (start, end): (usize, usize)) -> SysResult<()> {
    let len = end - start;
    // SAFETY: the content was given up.
    unsafe { sys::call(libc::SYS_madvise, args![start, len, libc::MADV_DONTNEED]) }?;
    match uffd.zero(start as u64, len as u64) {
        (done, Ok(())) if done == len as u64 => Ok(()),
        (_, answer) => answer.and(Err(Errno(libc::EAGAIN))),
    }
}

/// Zeros in place: pages of the process's own. Memory that cannot be written is made writable
/// meanwhile.
pub fn write(k: &Kernel, (start, end): (usize, usize), access: i32) -> SysResult<()> {
    let protect = |access: i32| {
        let a = args![start, end - start, access];
        // SAFETY: memory of the program, whose content it gave up.
        unsafe { k.call(libc::SYS_mprotect, a) }.map(|_| ())
    };
    let writable = access & ACCESS == ACCESS;
    if !writable {
        protect(ACCESS)?;
    }
    // SAFETY: writable, and given up.
    unsafe { sys::zero(start, end - start) };
    if writable {
        Ok(())
    } else {
        protect(access)
    }
}

/// All of the range is mapped; supposed so where a filter forbids the question.
pub fn is_mapped(k: &Kernel, (start, end): (usize, usize)) -> bool {
    let a = args![start, end - start, libc::MS_ASYNC];
    // SAFETY: without effect on private memory.
    unsafe { k.call(libc::SYS_msync, a) != Err(Errno(libc::ENOMEM)) }
}

/// A part of the range is locked in memory.
pub fn is_locked((start, end): (usize, usize)) -> bool {
    // SAFETY: advice without effect on content; refused for locked memory.
    let a = args![start, end - start, libc::MADV_COLD];
    unsafe { sys::call(libc::SYS_madvise, a) == Err(Errno(libc::EINVAL)) }
}
