//! libodfspawn.so: the crate odfork-spawn for C.
//!
//! Owns the C interface: what C says becomes a `Command`, what comes of it becomes numbers. A
//! library of its own, since libodfork.so is loaded by every program below `odfork run` and has no
//! standard library; neither needs the other. The header `include/odfspawn.h` is generated from the
//! files here.

mod guard;
mod options;
mod shell;
mod spawn;
mod steps;
mod system;
