//! What `odfork predict` is asked: the options and the checked question they become.

use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use clap::{Args, ValueHint};

use super::size;

/// The words of the command line, not yet checked: a refusal is one line of ours.
#[derive(Args, Debug)]
pub struct Words {
    /// Memory of the forking process: 8G, 512M, 300k
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    mem: String,
    /// Share of it that the child writes, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0", allow_hyphen_values = true)]
    frac: String,
    /// How many forks
    #[arg(long, value_name = "COUNT", default_value = "1", allow_hyphen_values = true)]
    forks: String,
    /// Only this engine (may be repeated) [default: all measured]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    engine: Vec<String>,
    /// Folder of `odfork bench grid` [default: odfork-results]
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub bytes: u64,
    pub frac: f64,
    pub forks: u64,
    /// Empty: all there are.
    pub engines: Vec<String>,
    /// Named by the user, or None.
    pub data: Option<PathBuf>,
}

impl TryFrom<Words> for Question {
    type Error = anyhow::Error;

    fn try_from(words: Words) -> Result<Question> {
        let Words { mem, frac, forks, engine, data, .. } = words;
        let share = frac.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        let count = forks.parse::<u64>().ok().filter(|count| *count > 0);
        if let Some(folder) = data.as_ref().filter(|folder| !folder.is_dir()) {
            bail!("{} is no folder; name one that `odfork bench grid` made", folder.display());
        }
        Ok(Question {
            bytes: size::parse(&mem)?,
            frac: share.with_context(|| {
                format!("--frac {frac:?} is no share; give a number from 0 to 1, such as 0.5")
            })?,
            forks: count.with_context(|| {
                format!("--forks {forks:?} is no count; give a whole number from 1 on")
            })?,
            engines: engine,
            data,
        })
    }
}
