//! `odfork page adopt`: a program that is running already gets the pager of `--memory any`.
//!
//! | file | owns |
//! | --- | --- |
//! | target | which processes it may be |
//! | waiting | which of their threads may be interrupted without a trace |
//! | thread | that thread: led through calls of ours, and put back |
//! | image | the library, mapped without the process' loader |
//! | wrappers | calls of the process that come to the library from then on |
//! | object | what ELF files say |

#[cfg(target_arch = "x86_64")]
mod image;
#[cfg(target_arch = "x86_64")]
mod object;
#[cfg(target_arch = "x86_64")]
mod target;
#[cfg(target_arch = "x86_64")]
mod thread;
#[cfg(target_arch = "x86_64")]
mod waiting;
#[cfg(target_arch = "x86_64")]
mod wrappers;

use clap::{Arg, ArgAction, Command};

use super::{any, daemon};

const HELP: &str = "\
Examples:
  odfork page adopt 4711 --limit 1G
  odfork page adopt 4711 --limit 1G --store memory --compress lz4

From then on all private anonymous memory of the process is kept under the
limit, as with 'page run --memory any', and that of children that it forks.
What it executes has no limit. There is no way back.

Exit status: 0 when the process is paged, 2 when it is as it was.";

pub fn command() -> Command {
    let shared = daemon::arguments().into_iter().chain(any::arguments());
    let wanted = ["limit", "store", "compress", "pool", "group"];
    let shared = shared.filter(|one| wanted.contains(&one.get_id().as_str()));
    Command::new("adopt")
        .about("Page a program that is running already, all of its memory (a trial; root)")
        .override_usage("odfork page adopt PID --limit SIZE [OPTIONS]")
        .after_help(HELP)
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .help("The process")
                .value_parser(clap::value_parser!(i32).range(1..))
                .required(true),
        )
        .args(shared.map(|one| match one.get_id().as_str() {
            "limit" => one.required(true).help("Memory that it may have, as 512M or 2G"),
            "store" => one.help("Where pages are while they are out: a folder, or 'memory'"),
            "compress" => one.help("Compress pages in a store in memory: none, lz4"),
            "pool" => {
                one.help(
                    "So much of its store is compressed in memory, what is older in the folder",
                )
            }
            _ => one.help("One limit with all programs that name the same group"),
        }))
        .arg(
            Arg::new("allow-pinning")
                .long("allow-pinning")
                .help("It reads nothing from a mounted file system of type 9p")
                .action(ArgAction::SetTrue),
        )
}

#[cfg(not(target_arch = "x86_64"))]
pub fn run(_: &clap::ArgMatches) -> anyhow::Result<u8> {
    anyhow::bail!("it is written for x86-64 only")
}

#[cfg(target_arch = "x86_64")]
pub use x86::run;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::ffi::OsStr;
    use std::fs;
    use std::path::Path;

    use anyhow::{bail, Context, Result};
    use clap::ArgMatches;
    use odfork_pager_protocol::adoption::{Adoption, PATH};
    use odfork_proc::interrupt;

    use super::image::{Image, Mapped};
    use super::target::Target;
    use super::thread::Thread;
    use super::wrappers;
    use crate::page::any::{self, Order};
    use crate::page::run::find_library;

    /// Where the counts go at the end.
    const REPORT: &str = "ODFORK_PAGE_REPORT";

    pub fn run(given: &ArgMatches) -> Result<u8> {
        let pid = given.get_one::<i32>("pid").copied().unwrap_or(0);
        interrupt::listen();
        let library = fs::canonicalize(find_library()?)?;
        let lock = Target::look(pid)?.lock()?;
        // Now that nobody else changes it.
        let target = Target::look(pid)?;
        let libc = Mapped::c_library(&target)?;
        target.must_find(&library)?;
        let order = any::order(given, &target.alive.to_string())?;
        let adopted = adopt(&target, &libc, &library, &order);
        if adopted.is_err() && !given.contains_id("group") {
            // Of nobody.
            let _ = fs::remove_file(&order.group);
        }
        adopted?;
        drop(lock);
        let private = target.maps.iter().filter(|one| one.is_writable() && !one.shared);
        let mapped: u64 = private.map(|one| one.bytes()).sum();
        println!("{pid}: paged, limit {} MB, {} MB mapped", order.limit >> 20, mapped >> 20);
        Ok(0)
    }

    fn adopt(target: &Target, libc: &Mapped, library: &Path, order: &Order) -> Result<()> {
        let report = std::env::var_os(REPORT).filter(|path| !path.is_empty());
        let report = report.map(std::path::absolute).transpose()?;
        let is_folder = order.store.as_encoded_bytes().starts_with(b"/");
        if is_folder {
            target.must_find(Path::new(&order.store))?;
        }
        target.must_find(&order.group)?;
        let report = report.as_deref().map_or(OsStr::new(""), Path::as_os_str);
        let mut adoption = Adoption { limit: order.limit, pool: order.pool, ..Adoption::none() };
        let paths = [order.store.as_os_str(), report, order.group.as_os_str()];
        for (room, path) in adoption.paths.iter_mut().zip(paths) {
            let path = path.as_encoded_bytes();
            if path.len() >= PATH {
                bail!("{} is too long a path", String::from_utf8_lossy(path));
            }
            room[..path.len()].copy_from_slice(path);
        }
        let locked = target.locked();
        let mut thread = Thread::borrow(target)?;
        let mut image = Image::map(&mut thread, library)?;
        if target.locked() > locked {
            bail!("process {} locks all memory that it maps (mlockall)", target.pid);
        }
        image.fill_in(libc, &mut adoption)?;
        image.run(&adoption).with_context(|| format!("process {} is not paged", target.pid))?;
        if let Err(error) = wrappers::redirect(target, libc, &image.library) {
            eprintln!("odfork page adopt: calls of process {} go past: {error:#}", target.pid);
        }
        Ok(())
    }
}
