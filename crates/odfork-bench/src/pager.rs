//! Our pager as a user reaches it: commands of `odfork page`, started in an environment that says
//! nothing of us.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A command without variables of ours but the place of the pager's library.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ODFORK_PAGE_") && name != "ODFORK_PAGE_LIB" {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD");
    command
}

/// What the daemon says of itself; None: no daemon answers there.
pub fn status(program: &Path, socket: &Path) -> Option<Value> {
    let mut command = plain(program);
    command.args(["page", "status", "--json", "--socket"]).arg(socket);
    let output = command.output().ok().filter(|output| output.status.success())?;
    serde_json::from_slice(&output.stdout).ok()
}

/// What the task says that pages all memory of this process; None: there is none.
pub fn status_of(program: &Path, process: u32) -> Option<Value> {
    let output = plain(program).args(["page", "status", "--json"]).output().ok()?;
    let mut all: Value = serde_json::from_slice(&output.stdout).ok()?;
    let programs = all["any"].as_array_mut()?;
    programs.iter_mut().find(|one| one["pid"] == process).map(Value::take)
}
