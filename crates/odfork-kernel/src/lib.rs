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

pub mod accel;
pub mod archive;
pub mod boot;
pub mod build;
pub mod config;
pub mod console;
pub mod deb;
pub mod figures;
pub mod guest;
pub mod make;
pub mod measure;
pub mod modules;
pub mod needs;
pub mod options;
pub mod package;
pub mod places;
pub mod qemu;
pub mod series;
pub mod session;
pub mod source;
pub mod suites;
pub mod test;
pub mod tool;

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
