//! libodfork.so: the runtime as a library to preload, and its C API.
//!
//! Owns the symbols: the C library's functions that are wrapped
//! ([`wrappers`]), the C API ([`api`]), the constructor and the report at exit
//! ([`life`]). It decides nothing; that is the runtime's.
//!
//! Rules: nothing here may panic (a panic would abort somebody's program), no
//! heap, no stdio; `errno` changes only where the wrapped function would change it.

pub mod api;
mod life;
mod program;
mod wrappers;
