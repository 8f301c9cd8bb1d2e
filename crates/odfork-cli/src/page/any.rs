//! `odfork page run --memory any`: no daemon; the library pages all memory of its own process.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{bail, Result};
use clap::ArgMatches;

use super::daemon;

/// Refuses what this way does not know; the variables that tell the library the rest.
pub fn variables(given: &ArgMatches) -> Result<[(&'static str, OsString); 3]> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let limit = daemon::limit_of(given)?;
    let store = text("store").unwrap_or("/var/tmp");
    if store == "memory" || text("compress") != Some("none") || text("store-size").is_some() {
        bail!("--memory any has its store in a folder, without compression or a size");
    }
    if given.contains_id("socket") || given.get_flag("allow-user-mode") {
        bail!("--memory any has no daemon: --socket and --allow-user-mode do not go with it");
    }
    if !Path::new(store).is_dir() {
        bail!("the store cannot be made in {store}: with --memory any it is a folder");
    }
    // A trial of what the store needs: this fails where the program would go unpaged.
    drop(odfork_pager::store::create_on_disk(Path::new(store))?);
    Ok([
        ("ODFORK_PAGE_MEMORY", "any".into()),
        ("ODFORK_PAGE_LIMIT", limit.to_string().into()),
        ("ODFORK_PAGE_STORE", std::path::absolute(store)?.into()),
    ])
}
