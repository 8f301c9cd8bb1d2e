//! libodfimage.so: the crate odfork-image for C.
//!
//! The interface is in `api`; the header `include/odfimage.h` is generated from it.

mod api;
