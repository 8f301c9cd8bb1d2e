//! The library inside a program: wrapped functions of the C library
//! ([`wrappers`]), constructor and report at exit ([`life`]), and which programs
//! are left alone ([`program`]). Compiled with the feature `interpose`.
//!
//! Rules: nothing here may panic (a panic would abort somebody's program), no
//! heap, no stdio; `errno` changes only where the wrapped function would change it.

mod life;
mod program;
mod wrappers;

pub use life::panicked;
pub use wrappers::fork;
