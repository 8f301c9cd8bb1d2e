//! libodfork.so: the runtime as a library to preload, and its C API.
//!
//! Owns the C API ([`api`]); the wrapped functions, the constructor and the
//! report at exit are the runtime's module `interpose`. It decides nothing.

#![cfg_attr(not(test), no_std)]

mod api;
mod bare;
