//! The command line of `odfork image` and the request it becomes. Words only; nothing is carried
//! out here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum, ValueHint};
use odfork_image::{Codec, RegionWish, Result};

const HELP: &str = "\
Examples:
  odfork image save 4711 --heap state.img
  odfork image save 4711 --region pool=7f12a0000000-7f12e0000000 pool.img
  odfork image save 4711 --heap --base state.img later.img
  odfork image delta monday.img tuesday.img tuesday.delta
  odfork image apply tuesday.delta whole.img
  odfork image show --verify tuesday.delta
  odfork image load state.img -- ./server

A program opens an image with odfork_image_map() of <odfimage.h> or the Rust
crate odfork-image; its pages come when they are touched.

Exit status: 0 when it was done, 1 when not, 2 for a wrong option, 130 after
Ctrl-C; of load that of PROGRAM, 126 when it cannot be executed, 127 when it is
not found.";

const SAVE_HELP: &str = "\
REGION is START-END in hexadecimal, NAME=START-END, or a name as in
/proc/PID/maps ([heap], [anon:pool]). The process stands still meanwhile (by
ptrace, so that neither it nor its parent sees a signal), all its threads at one
moment. You need the right to trace it: its user, root or CAP_SYS_PTRACE. Memory
frozen by 'odfork run' is saved as what it holds. Memory paged by a userfaultfd
can only be saved from within.";

const LOAD_HELP: &str = "\
PROGRAM replaces odfork and finds FILE in ODFORK_IMAGE_FILE, which is where
odfork_image_map() looks when it is given no file. A program that does not ask
for an image does not get one.";

const DELTA_HELP: &str = "\
Pages of equal checksum are compared byte by byte unless --by-checksum is
given. FILE remembers the name and the id of BASE.";

/// One request.
#[derive(Debug)]
pub enum Request {
    Save {
        pid: i32,
        regions: Vec<RegionWish>,
        file: PathBuf,
        base: Option<PathBuf>,
        bases: Vec<PathBuf>,
        wish: Wish,
    },
    Load {
        file: PathBuf,
        bases: Vec<PathBuf>,
        words: Vec<OsString>,
    },
    Delta {
        base: PathBuf,
        new: PathBuf,
        file: PathBuf,
        bases: Vec<PathBuf>,
        wish: Wish,
    },
    Apply {
        delta: PathBuf,
        file: PathBuf,
        bases: Vec<PathBuf>,
        wish: Wish,
    },
    Show {
        files: Vec<PathBuf>,
        bases: Vec<PathBuf>,
        json: bool,
        verify: bool,
    },
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub codec: Codec,
    pub cluster_pages: u32,
    pub by_checksum: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compress {
    None,
    Lz4,
    Zstd,
}

#[derive(Debug, Args)]
struct Writing {
    /// Compress clusters; such an image is not mapped but served page by page
    #[arg(long, value_enum, value_name = "CODEC", default_value = "none")]
    compress: Compress,
    /// Pages compressed and read together: 1, 2, 4 ... 64
    #[arg(long, value_name = "PAGES", default_value_t = 16)]
    cluster: u32,
}

#[derive(Debug, Args)]
struct Bases {
    /// Where a base may be that is not beside its delta (may be repeated)
    #[arg(long = "base-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    bases: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Words {
    /// Save memory of a running process
    #[command(after_help = SAVE_HELP, override_usage = "odfork image save [OPTIONS] PID FILE")]
    Save {
        #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// This memory (may be repeated)
        #[arg(long = "region", value_name = "REGION")]
        regions: Vec<String>,
        /// The heap below the program break
        #[arg(long)]
        heap: bool,
        /// Every private mapping that can be written
        #[arg(long)]
        all: bool,
        /// Save only what differs from this image
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        base: Option<PathBuf>,
        /// Take pages of equal checksum for equal
        #[arg(long)]
        by_checksum: bool,
        #[command(flatten)]
        writing: Writing,
        #[command(flatten)]
        bases: Bases,
    },
    /// Check an image and run a program that asks for it
    #[command(after_help = LOAD_HELP, override_usage = "odfork image load FILE -- PROGRAM \
                                                        [ARGS]...")]
    Load {
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The program and its arguments
        #[arg(
            value_names = ["PROGRAM", "ARGS"],
            num_args = 1..,
            required = true,
            last = true,
            value_hint = ValueHint::CommandWithArguments
        )]
        words: Vec<OsString>,
    },
    /// Write what differs between two images
    #[command(after_help = DELTA_HELP)]
    Delta {
        #[arg(value_name = "BASE", value_hint = ValueHint::FilePath)]
        base: PathBuf,
        #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
        new: PathBuf,
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Take pages of equal checksum for equal
        #[arg(long)]
        by_checksum: bool,
        #[command(flatten)]
        writing: Writing,
        #[command(flatten)]
        bases: Bases,
    },
    /// Write a delta and its bases as one whole image (or an image in another form)
    Apply {
        #[arg(value_name = "DELTA", value_hint = ValueHint::FilePath)]
        delta: PathBuf,
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        writing: Writing,
        #[command(flatten)]
        bases: Bases,
    },
    /// Show what is in an image
    Show {
        #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        /// One JSON object a line, with a schema number
        #[arg(long)]
        json: bool,
        /// Read and check every page
        #[arg(long)]
        verify: bool,
        #[command(flatten)]
        bases: Bases,
    },
}

pub fn command() -> Command {
    let command = Command::new("image")
        .about("Save memory to files that another run opens without reading them in")
        .after_help(HELP)
        .subcommand_required(true)
        .disable_help_subcommand(true);
    Words::augment_subcommands(command)
}

/// # Errors
/// A region that cannot be meant.
pub fn request(matches: &ArgMatches) -> Result<Request> {
    let words = Words::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    Ok(match words {
        Words::Save { pid, file, regions, heap, all, base, by_checksum, writing, bases } => {
            let mut wishes: Vec<RegionWish> =
                regions.iter().map(|text| RegionWish::parse(text)).collect::<Result<_>>()?;
            wishes.extend(heap.then_some(RegionWish::Heap));
            wishes.extend(all.then_some(RegionWish::All));
            if wishes.is_empty() {
                return Err(odfork_image::Error::Refused(
                    "what shall be saved? --heap, --all, or --region START-END".to_owned(),
                ));
            }
            let wish = wish(&writing, by_checksum);
            Request::Save { pid, regions: wishes, file, base, bases: bases.bases, wish }
        }
        Words::Load { file, words } => Request::Load { file, bases: Vec::new(), words },
        Words::Delta { base, new, file, by_checksum, writing, bases } => Request::Delta {
            base,
            new,
            file,
            bases: bases.bases,
            wish: wish(&writing, by_checksum),
        },
        Words::Apply { delta, file, writing, bases } => {
            Request::Apply { delta, file, bases: bases.bases, wish: wish(&writing, false) }
        }
        Words::Show { files, json, verify, bases } => {
            Request::Show { files, bases: bases.bases, json, verify }
        }
    })
}

fn wish(writing: &Writing, by_checksum: bool) -> Wish {
    let codec = match writing.compress {
        Compress::None => Codec::None,
        Compress::Lz4 => Codec::Lz4,
        Compress::Zstd => Codec::Zstd,
    };
    Wish { codec, cluster_pages: writing.cluster, by_checksum }
}
