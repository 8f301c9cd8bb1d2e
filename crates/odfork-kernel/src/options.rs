//! The command line of `odfork kernel` and the request it becomes. Words only; nothing is carried
//! out here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueHint};
use odfork_proc::text;

const HELP: &str = "\
Examples:
  odfork kernel build                    Debian's Linux 6.12 with the patches
  odfork kernel boot -- uname -r         one command inside, on the host's files
  odfork kernel boot                     a shell inside
  odfork kernel test --quick             every suite of tests, shortened
  odfork kernel bench                    what fork costs with it and without

The guest sees the host's files read-only with memory laid over them: what it
writes is gone when it ends, but for the folder of --share (/mnt/share).";

const BOOT_HELP: &str = "\
Examples:
  odfork kernel boot -- sh -c 'echo 2 > /proc/self/use_odf; exec ./program'
  odfork kernel boot --debug --timeout 600 --log console.txt -- ./torture
  odfork kernel boot --memory 8G --swap 2G
  odfork kernel boot --kernel linux-image-amd64/bookworm -- uname -r

Exit status: that of COMMAND (128 and the number when a signal ended it), but
121 when the kernel reported a fault of its own (BUG, WARNING, KASAN, lockdep,
a stall ...), 122 when it panicked, 123 when the guest ended without an answer,
124 when the time was over, 125 when no guest could be started, 130 after
Ctrl-C.";

const BUILD_HELP: &str = "\
Examples:
  odfork kernel build
  odfork kernel build --debug --jobs 4
  odfork kernel build --source linux-source-6.12.tar.xz --unpatched
  odfork kernel build --source linux-source-6.1/bookworm --unpatched

Without --source: /usr/src/linux-source-6.12.tar.xz, or what `apt-get download`
brings. The first build takes 5 to 15 minutes on 2 processors, later ones only
what changed (ccache is used when installed).

Exit status: 0 when the kernel is built, 125 when not, 130 after Ctrl-C.";

const TEST_HELP: &str = "\
Suites:
  torture    the project's own cases (kernel/tests)
  kselftest  the test the series adds to Linux
  selftest   Linux' tests of the memory management, shared tables on; one that
             fails with them off too is skipped
  stress     stress-ng's stressors of fork and memory, shared tables for all

Each suite must also leave no complaint in the kernel's log: one test more.

Exit status: 0 when nothing failed, 1 when something did, 125 when no guest
could be started, 130 after Ctrl-C. Last line: N passed, N failed, N skipped.";

const BENCH_HELP: &str = "\
Needs `odfork kernel build`, and `odfork kernel build --unpatched` for the price
of the option when it is off (the two boot in turn).

Exit status: 0 also when a figure misses its goal, that of `odfork kernel boot`
when a guest ended badly, 125 when none could be started, 130 after Ctrl-C (the
table is made of what there is).";

const DEB_HELP: &str = "\
Examples:
  odfork kernel deb                                for a common machine
  odfork kernel deb --config /boot/config-$(uname -r)
  odfork kernel deb --guest                        small, for virtual machines

Without --config: Linux' defconfig and kvm_guest.config and what the guests of
this lab have. The version ends in -odfork. Prints the packages' paths.

Exit status: 0 when they are made, 125 when not, 130 after Ctrl-C.";

/// The suites of `odfork kernel test` in the order they run: the quick and telling ones first.
pub const SUITES: [&str; 4] = ["torture", "kselftest", "selftest", "stress"];

/// One command of `odfork kernel`.
#[derive(Debug)]
pub enum Request {
    Build(BuildOptions),
    Boot(BootOptions),
    Test(TestOptions),
    Bench(BenchOptions),
    Deb(DebOptions),
}

#[derive(Debug, Subcommand)]
#[command(subcommand_required = true)]
enum Commands {
    /// Build the kernel: fetch the source, apply the patches, compile
    #[command(after_help = BUILD_HELP)]
    Build(BuildOptions),
    /// Boot a built kernel in QEMU and run a command in it
    #[command(after_help = BOOT_HELP)]
    Boot(BootOptions),
    /// Run the test suites, each in a guest of its own
    #[command(after_help = TEST_HELP)]
    Test(TestOptions),
    /// Measure fork with shared page tables and without, in pairs
    #[command(after_help = BENCH_HELP)]
    Bench(BenchOptions),
    /// Make Debian packages of the patched kernel
    #[command(after_help = DEB_HELP)]
    Deb(DebOptions),
}

/// Where things are.
#[derive(Clone, Debug, Default, Args)]
pub struct PlaceOptions {
    /// The folder with patches, configurations and guest programs [default: kernel/ here or beside
    /// this program]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub tree: Option<PathBuf>,

    /// Sources and builds go here [default: ~/.cache/odfork/kernel]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

/// Which of the kernels.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct VariantOptions {
    /// The configuration with every check (KASAN, lockdep, page table checks)
    #[arg(long)]
    pub debug: bool,

    /// Linux as Debian has it
    #[arg(long, conflicts_with = "mutation")]
    pub unpatched: bool,

    /// The patches and one deliberately broken rule, by the name of its file in mutations/
    #[arg(long, value_name = "NAME")]
    pub mutation: Option<String>,

    /// Only the first so many patches, to see that each builds and boots by itself
    #[arg(long, value_name = "N", conflicts_with_all = ["unpatched", "mutation"])]
    pub patches: Option<usize>,
}

/// What is compiled, and how.
#[derive(Clone, Debug, Args)]
pub struct MakeOptions {
    /// The source of Linux: a tar file, a folder, or the name of Debian's package
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub source: Option<PathBuf>,

    /// Compilers at a time [default: processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
}

#[derive(Clone, Debug, Args)]
pub struct BuildOptions {
    #[command(flatten)]
    pub variant: VariantOptions,

    #[command(flatten)]
    pub make: MakeOptions,

    #[command(flatten)]
    pub places: PlaceOptions,
}

/// The part of a guest's machine that every command chooses. `odfork kernel test` has a default of
/// 2 GB (see `command`).
#[derive(Clone, Debug, Args)]
pub struct GuestOptions {
    /// Memory of the guest
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size)]
    pub memory: u64,

    /// Processors of the guest
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=8)
    )]
    pub cpus: u32,

    /// Take kvm or tcg without trying, or count: emulation whose nanosecond is one instruction
    /// [default: kvm where a guest comes up under it]
    #[arg(long, value_name = "NAME", value_parser = ["kvm", "tcg", "count"])]
    pub accel: Option<String>,
}

/// The machine a guest gets.
#[derive(Clone, Debug, Args)]
pub struct MachineOptions {
    #[command(flatten)]
    pub guest: GuestOptions,

    /// Swap on a disk of this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub swap: Option<u64>,

    /// Swap in compressed memory of this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub zram: Option<u64>,

    /// An empty disk of this size, /dev/scratch
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub scratch: Option<u64>,

    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub append: Option<String>,
}

impl MachineOptions {
    /// A machine without swap or disks.
    pub fn plain(guest: &GuestOptions) -> MachineOptions {
        let guest = guest.clone();
        MachineOptions { guest, swap: None, zram: None, scratch: None, append: None }
    }
}

#[derive(Clone, Debug, Args)]
pub struct BootOptions {
    #[command(flatten)]
    pub variant: VariantOptions,

    /// Boot this bzImage, or Debian's kernel by the name of its package: PACKAGE[/SUITE], as
    /// linux-image-amd64/trixie, fetched once
    #[arg(
        long,
        value_name = "KERNEL",
        conflicts_with_all = ["debug", "unpatched", "mutation", "patches"],
        value_hint = ValueHint::FilePath
    )]
    pub kernel: Option<PathBuf>,

    #[command(flatten)]
    pub machine: MachineOptions,

    /// End the guest after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// Write all the kernel said (its console) here
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// A folder the guest may write to, as /mnt/share
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub share: Option<PathBuf>,

    /// Set a variable for COMMAND; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<OsString>,

    #[command(flatten)]
    pub places: PlaceOptions,

    /// The command and its arguments, taken as they are [default: a shell on this terminal]
    #[arg(
        value_name = "COMMAND",
        last = true,
        num_args = 1..,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub struct TestOptions {
    #[command(flatten)]
    pub variant: VariantOptions,

    /// Fewer seeds, shorter stress
    #[arg(long)]
    pub quick: bool,

    /// Only this suite; may be repeated
    #[arg(long, value_name = "NAME", value_parser = SUITES)]
    pub suite: Vec<String>,

    /// Of the torture program only the cases whose name matches; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,

    #[command(flatten)]
    pub guest: GuestOptions,

    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub append: Option<String>,

    #[command(flatten)]
    pub places: PlaceOptions,
}

#[derive(Clone, Debug, Args)]
pub struct BenchOptions {
    /// Few rounds, nothing above 1 GB, one boot for the price when off
    #[arg(long)]
    pub quick: bool,

    /// Samples of each figure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,

    /// Write raw samples as JSON Lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    #[command(flatten)]
    pub guest: GuestOptions,

    #[command(flatten)]
    pub places: PlaceOptions,
}

#[derive(Clone, Debug, Args)]
pub struct DebOptions {
    /// This configuration, as /boot/config-VERSION or /proc/config.gz
    #[arg(long, value_name = "FILE", conflicts_with = "guest", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// The configuration of the lab's guests
    #[arg(long)]
    pub guest: bool,

    #[command(flatten)]
    pub make: MakeOptions,

    #[command(flatten)]
    pub places: PlaceOptions,
}

/// `odfork kernel`.
pub fn command() -> Command {
    Commands::augment_subcommands(Command::new("kernel"))
        .term_width(80)
        .mut_subcommands(|inner| inner.args_override_self(true).term_width(80))
        .mut_subcommand("test", |test| test.mut_arg("memory", |size| size.default_value("2G")))
        .about("Build, boot, test and measure Linux with copy-on-write page tables")
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .after_help(HELP)
}

/// What was asked for. The command line was checked against `command` before.
pub fn request(matches: &ArgMatches) -> Request {
    match Commands::from_arg_matches(matches) {
        Ok(Commands::Build(wanted)) => Request::Build(wanted),
        Ok(Commands::Boot(wanted)) => Request::Boot(wanted),
        Ok(Commands::Test(wanted)) => Request::Test(wanted),
        Ok(Commands::Bench(wanted)) => Request::Bench(wanted),
        Ok(Commands::Deb(wanted)) => Request::Deb(wanted),
        Err(error) => error.exit(),
    }
}

/// A size above 0, for clap.
pub fn size(word: &str) -> Result<u64, String> {
    let is_some = |bytes: &u64| *bytes > 0;
    let bytes = text::bytes(word).ok().filter(is_some);
    bytes.ok_or_else(|| format!("{word} is no size; write 512M or 4G"))
}

fn seconds(word: &str) -> Result<Duration, String> {
    let number: f64 = word.parse().map_err(|_| format!("{word} is no number of seconds"))?;
    match Duration::try_from_secs_f64(number) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(format!("{word} is no number of seconds above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_definition() {
        command().debug_assert();
    }

    #[test]
    fn sizes_have_letters() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("4G"), Ok(4 << 30));
        for wrong in ["", "G", "4X", "4.5G", "-1", "0", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tests_get_two_gigabytes_unless_said() {
        let memory = |line: &[&str]| {
            let matches = command().get_matches_from(["kernel", "test"].iter().chain(line));
            let Request::Test(test) = request(&matches) else { panic!("a test") };
            test.guest.memory
        };
        assert_eq!((memory(&[]), memory(&["--memory", "3G"])), (2 << 30, 3 << 30));
    }

    #[test]
    fn the_command_keeps_its_own_dashes() {
        let line = ["kernel", "boot", "--memory", "1G", "--", "ls", "-l", "--", "--debug"];
        let matches = command().get_matches_from(line);
        let Request::Boot(boot) = request(&matches) else { panic!("a boot") };
        assert_eq!(boot.command, ["ls", "-l", "--", "--debug"]);
        assert_eq!((boot.machine.guest.memory, boot.variant.debug), (1 << 30, false));
    }
}
