//! Ready processes from a warm one: a client of zygotes.
//!
//! A template is a Python process that has imported and set up everything once; it forks ready
//! children. This crate starts templates under a name, asks them for children, and waits for those.
//!
//! ```no_run
//! use odfork_zygote::{Command, Recipe};
//!
//! let mut recipe = Recipe::new("python3");
//! recipe.import("pandas");
//! odfork_zygote::start("reports", &recipe)?;
//! let mut child = Command::script("report.py").arg("--daily").spawn("reports")?;
//! println!("{}", child.wait()?.status);
//! odfork_zygote::stop("reports")?;
//! # Ok::<(), odfork_zygote::Error>(())
//! ```
//!
//! Files: `frame` the protocol of docs/zygote.md, `link` one connection, `command` and `child` a
//! request and what came of it, `place` where templates listen, `template` starting and listing.

mod child;
mod command;
mod error;
mod frame;
mod link;
mod place;
mod template;

pub use child::{Child, Exit};
pub use command::Command;
pub use error::Error;
pub use place::directory;
pub use template::{info, list, start, stop, Recipe, State};

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;
