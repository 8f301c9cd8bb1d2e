//! The image that `odfork image load` names for the program it starts.

use std::path::PathBuf;

use odfork_proc::environment;

/// The file of the variable ODFORK_IMAGE_FILE. None in a program with more rights than whoever runs
/// it: the content of an image, and what it points to, must not be the caller's choice.
pub fn given() -> Option<PathBuf> {
    environment::trusted("ODFORK_IMAGE_FILE").map(PathBuf::from)
}
