//! Runs the `odfork` binary as a user does: programs compiled for the occasion, a stub in the
//! library's place, and the same program without odfork as the judge.

mod check;
mod engine;
mod image;
mod inherit;
mod kernel;
mod lab;
mod launch;
mod page;
mod pages;
mod promises;
mod refuse;
mod stage;
mod stats;
mod zygote;
