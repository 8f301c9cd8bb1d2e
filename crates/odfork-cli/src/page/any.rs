//! `odfork page run` of all memory, and what `page adopt` takes like it: no daemon; the library
//! pages the memory of its own process.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Error, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use odfork_pager::endpoint::SOCKET;
use odfork_proc::text::bytes;

use super::{daemon, group, probe};

const LEAST_POOL: u64 = 1 << 20;
/// Its tables take a part of the address space.
const LARGEST_LIMIT: u64 = 1 << 44;
/// Options that only a daemon knows.
const DAEMONS: [&str; 6] =
    ["socket", "store-size", "handlers", "threshold", "malloc", "allow-user-mode"];
/// What tells the library the rest.
const VARIABLES: [&str; 6] = [
    "ODFORK_PAGE_MEMORY",
    "ODFORK_PAGE_SIMULATED",
    "ODFORK_PAGE_LIMIT",
    "ODFORK_PAGE_STORE",
    "ODFORK_PAGE_GROUP",
    "ODFORK_PAGE_POOL",
];

/// Options that mean this way.
pub const ALONE: [&str; 3] = ["group", "pool", "reference-bits"];

/// What chooses this way, and goes with it alone.
pub fn arguments() -> [Arg; 4] {
    [
        Arg::new("memory")
            .long("memory")
            .value_name("WHICH")
            .value_parser(["auto", "any", "large"])
            .default_value("auto")
            .help(
                "any: all anonymous memory; large: large mappings and blocks, by a daemon; auto: \
                 any where it can be had, unless an option is the daemon's alone",
            )
            .hide_possible_values(true)
            .hide_default_value(true),
        Arg::new("pool").long("pool").value_name("SIZE").help(
            "With --memory any: so much of each process' store is compressed in memory, what is \
             older in the folder",
        ),
        Arg::new("reference-bits")
            .long("reference-bits")
            .value_name("HOW")
            .value_parser(["written", "simulated"])
            .help(
                "With --memory any: pages written lately stay longer, by the kernel's marks \
                 [default: written], or each page leaves in its turn: simulated",
            )
            .hide_possible_values(true),
        Arg::new("group")
            .long("group")
            .value_name("NAME")
            .help("With --memory any: one limit with all programs that name the same group"),
    ]
}

/// Whether all memory is to be paged. Without a limit, it is the running daemon's that holds.
pub fn is_meant(given: &ArgMatches) -> bool {
    let is_said = |name: &&str| is_said(given, name);
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    match text("memory") {
        Some("auto") if ALONE.iter().any(|name| given.contains_id(name)) => true,
        Some("auto") => {
            let (store, compress) = (text("store").unwrap_or_default(), text("compress"));
            let fits = match compress {
                Some("none") => store == "memory" || Path::new(store).is_dir(),
                Some("lz4") => store == "memory",
                _ => false,
            };
            let socket = std::env::var_os(SOCKET).filter(|path| !path.is_empty());
            let is_daemons = DAEMONS.iter().any(is_said) || socket.is_some();
            given.contains_id("limit") && fits && !is_daemons && probe::moves().is_ok()
        }
        which => which == Some("any"),
    }
}

fn is_said(given: &ArgMatches, name: &str) -> bool {
    given.value_source(name) == Some(ValueSource::CommandLine)
}

/// Those of a program that runs this one do not count.
pub fn forget_variables() {
    for name in VARIABLES {
        std::env::remove_var(name);
    }
}

/// What the library is told.
pub struct Order {
    pub limit: u64,
    /// A folder, or the library's word for a store in memory.
    pub store: OsString,
    pub pool: u64,
    /// The file of the limit.
    pub group: PathBuf,
}

/// Refuses what this way does not know; the variables that tell the library the rest.
pub fn variables(given: &ArgMatches) -> Result<Vec<(&'static str, OsString)>> {
    if let Some(name) = DAEMONS.iter().find(|name| is_said(given, name)) {
        bail!("--memory any has no daemon: --{name} does not go with it");
    }
    let order = order(given, "self")?;
    let bits = given.get_one::<String>("reference-bits");
    let is_simulated = u64::from(bits.is_some_and(|bits| bits == "simulated"));
    let numbers = [is_simulated, order.limit, order.pool];
    let [simulated, limit, pool] = numbers.map(|number| OsString::from(number.to_string()));
    let values: [OsString; 6] =
        ["any".into(), simulated, limit, order.store, order.group.into(), pool];
    Ok(VARIABLES.into_iter().zip(values).collect())
}

/// For a program that sees the file systems which this process does.
pub fn order(given: &ArgMatches, process: &str) -> Result<Order> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let limit = daemon::limit_of(given)?;
    if limit > LARGEST_LIMIT {
        bail!("--limit: at most {}T", LARGEST_LIMIT >> 40);
    }
    if text("compress") == Some("zstd") {
        bail!("--memory any compresses by lz4 alone");
    }
    let pool = pool_of(text("pool"), text("store"))?;
    let is_packed = text("compress") == Some("lz4");
    let store = place_of(text("store").unwrap_or("/var/tmp"), is_packed && pool == 0)?;
    if !given.get_flag("allow-pinning") {
        let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        if let Some(kind) = reference_holder(&mounts) {
            bail!(
                "reads of a mounted file system of type {kind} are lost when a page leaves \
                 meanwhile: --allow-pinning, if the program does not read from there"
            );
        }
    }
    // Last: what is refused leaves no file.
    Ok(Order { limit, store, pool, group: group::file(text("group"), limit)? })
}

/// Bytes of a store that are compressed in memory, before its folder.
fn pool_of(pool: Option<&str>, store: Option<&str>) -> Result<u64> {
    let Some(text) = pool else { return Ok(0) };
    if store == Some("memory") {
        bail!("--pool is for a store in a folder, which is behind it: --store FOLDER");
    }
    match bytes(text).map_err(Error::msg)? {
        bytes if bytes >= LEAST_POOL => Ok(bytes),
        _ => bail!("--pool {text} is below {}K", LEAST_POOL >> 10),
    }
}

/// The library's word for a store. A folder is tried: it fails where the program would go unpaged.
fn place_of(store: &str, compresses: bool) -> Result<OsString> {
    match (store, compresses) {
        ("memory", true) => return Ok("lz4".into()),
        ("memory", false) => return Ok("memory".into()),
        (_, true) => {
            bail!("with --memory any only a store in memory is compressed: --store memory")
        }
        (_, false) => {}
    }
    if !Path::new(store).is_dir() {
        bail!("the store cannot be made in {store}: with --memory any it is a folder, or memory");
    }
    drop(odfork_pager::store::create_on_disk(Path::new(store))?);
    Ok(std::path::absolute(store)?.into())
}

/// A file system whose plain reads write to pages by their frames, without a pin that the kernel
/// would refuse to move.
fn reference_holder(mounts: &str) -> Option<&str> {
    const TYPES: [&str; 1] = ["9p"];
    mounts.lines().find_map(|line| {
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        TYPES.contains(&kind).then_some(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::reference_holder;

    #[test]
    fn a_mount_is_told_by_its_type() {
        const ROOT: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/9p rw\n";
        assert_eq!(reference_holder(ROOT), None);
        let both = format!("{ROOT}40 22 0:33 / /mnt/a rw - 9p host rw,trans=virtio\n");
        assert_eq!(reference_holder(&both), Some("9p"));
    }
}
