//! The one way in which `odfork` itself speaks on standard error.

use std::io::Write;

/// One line, started with our name. Nobody can be told when that fails.
pub fn say(line: &str) {
    // A name may hold a line break; a line of ours does not.
    let _ = writeln!(std::io::stderr(), "odfork: {}", line.replace('\n', "\\n"));
}
