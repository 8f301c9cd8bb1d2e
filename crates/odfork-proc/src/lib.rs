//! What every tool of odfork needs from the machine: processes read through `/proc`, Ctrl-C, sizes and times as text.
//!
//! Owns: the one place where a tool asks the kernel about a process. Does not own: measuring, the runtime.

pub mod command;
pub mod cow_fork;
pub mod interrupt;
pub mod table;
pub mod text;
