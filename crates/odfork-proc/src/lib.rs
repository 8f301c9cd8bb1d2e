//! What every tool of odfork needs: processes read through `/proc` and stopped, sizes and times as
//! text, the folder of a user's sockets, where libraries lie.
//!
//! Owns: the one place where a tool asks the kernel about a process. Does not own: measuring, the
//! runtime (which reads its own map without a heap).

#[cfg(feature = "cli")]
pub mod command;
pub mod cow_fork;
pub mod environment;
pub mod folder;
pub mod interrupt;
pub mod libraries;
pub mod maps;
pub mod memory;
pub mod pagemap;
pub mod process;
pub mod ptrace;
pub mod smaps;
pub mod status;
#[cfg(feature = "cli")]
pub mod table;
pub mod text;
pub mod tracee;
