//! libodfzygote.so: the crate odfork-zygote for C.
//!
//! The interface is in `api`; the header `include/odfzygote.h` is generated from it.

mod api;
