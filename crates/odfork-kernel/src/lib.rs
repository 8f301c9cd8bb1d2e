//! The VM lab of the kernel engine: builds Linux with the patches of `kernel/`, boots it in QEMU
//! over the host's files, and runs tests and measurements in it.
//!
//! Owns: `odfork kernel build|boot|test|bench|deb`. Does not own: the patches, configurations and
//! guest programs; those are files of `kernel/`, found by `places`.
//!
//! The way of a build: `needs` looks at the machine, `source` finds and unpacks Linux, `series`
//! lays the patches over it, `config` makes the configuration, `make` runs the compiler. The way of
//! a boot: `archive` packs the guest's first process and what it is to do, `accel` says what QEMU
//! may use, `qemu` makes the command line, `session` runs it and collects what it hands back,
//! `console` finds faults in what the kernel said. `package` fetches Debian's own kernels, whose
//! `modules` go into the archive. `suites` says what a test runs, `figures` what a
//! measurement means.

mod accel;
mod archive;
mod boot;
mod build;
mod config;
mod console;
mod deb;
mod figures;
mod guest;
mod make;
mod measure;
mod modules;
mod needs;
mod options;
mod package;
mod places;
mod qemu;
mod series;
mod session;
mod source;
mod suites;
mod test;
mod tool;

use clap::ArgMatches;
use odfork_proc::command::Subcommand;

use options::Request;

/// As `odfork` takes it.
pub const SUBCOMMAND: Subcommand = Subcommand { name: "kernel", command: options::command, run };

/// Carries out one request; returns the exit status.
pub fn run(matches: &ArgMatches) -> u8 {
    let (name, done) = match options::request(matches) {
        Request::Build(wanted) => ("kernel build", build::run(&wanted)),
        Request::Boot(wanted) => ("kernel boot", boot::run(&wanted)),
        Request::Test(wanted) => ("kernel test", test::run(&wanted)),
        Request::Bench(wanted) => ("kernel bench", measure::run(&wanted)),
        Request::Deb(wanted) => ("kernel deb", deb::run(&wanted)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("odfork {name}: {error:#}");
        boot::COULD_NOT
    })
}
