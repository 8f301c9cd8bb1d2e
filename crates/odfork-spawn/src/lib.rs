//! Start programs, and communicate with them, from a process of any size at vfork's price.
//!
//! fork copies the page tables of its caller, so a program of gigabytes pays
//! milliseconds to seconds to start `/bin/true`. vfork does not, but runs the
//! child in the parent's memory, where most of what one would do is forbidden.
//! Here the child is made by `clone3(CLONE_VM | CLONE_VFORK)`, on a stack of its
//! own, and makes nothing but raw system calls that were laid out before; what it
//! can be asked for is what std needs a closure (and fork) for.
//!
//! The way of one spawn: [`Command`] fills in a request, `prepare` lays out the child's arguments,
//! `launch` makes the child and reads its answer, `child` is what runs in it,
//! [`Child`] waits. `docs/spawn.md` says why each step is safe.

mod cancellation;
mod child;
mod child_arguments;
mod command;
mod communicate;
mod descriptors;
mod error;
mod identity;
mod launch;
#[cfg(test)]
mod memory_check;
mod prepare;
mod process;
mod request;
mod search;
mod signals;
mod stack;
mod stdio;

pub use cancellation::CancellationGuard;
pub use command::Command;
pub use communicate::exchange;
pub use error::{Cause, Error, Step};
pub use launch::CloneMethod;
pub use process::Child;
pub use signals::SignalSet;
pub use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
pub use stdio::Stdio;

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Tests that look at properties of the whole process run one after the other.
    pub fn one_at_a_time() -> MutexGuard<'static, ()> {
        static LOCK: Mutex<()> = Mutex::new(());
        LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
