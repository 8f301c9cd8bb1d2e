//! The fuzz targets: their source, SQLite's, and how they are compiled with AFL's instrumentation.
//!
//! What was compiled stays in the folder it was made in, beside a text of all that went into it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Error, Result};
use serde_json::Value;

use crate::foreign::build::{build, write};
use crate::foreign::{clear, found, make_folder};

/// The package of fuzzer and compiler.
pub const PACKAGE: &str = "the Debian package afl++";
const COMPILER: &str = "afl-clang-fast";
/// The crate that carries SQLite's one-file source.
const CRATE: (&str, &str) = ("libsqlite3-sys", "=0.30.1");
const FLAGS: [&str; 4] = [
    "-DSQLITE_THREADSAFE=0",
    "-DSQLITE_OMIT_LOAD_EXTENSION",
    "-DSQLITE_TEMP_STORE=3",
    "-DSQLITE_MAX_MMAP_SIZE=0",
];
const SHARED: &str = include_str!("programs/executions.h");
const SMALL: &str = include_str!("programs/small.c");
const SQLITE: &str = include_str!("programs/sqlite.c");
const DICTIONARY: &str = include_str!("programs/sql.dict");
/// One input a line.
const SEEDS: &str = include_str!("programs/seeds.sql");

/// Which target, by what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Of the database; 0: the small program, which has none.
    pub bytes: u64,
}

impl Case {
    pub fn word(self) -> &'static str {
        if self.bytes == 0 {
            "small"
        } else {
            "sqlite"
        }
    }
}

/// How targets are made.
pub struct Workshop {
    pub folder: PathBuf,
    /// Whether the targets have AddressSanitizer.
    pub asan: bool,
    /// The folder of sqlite3.c, if it was named.
    pub sqlite: Option<PathBuf>,
    /// "-O2"
    pub optimise: &'static str,
}

impl Workshop {
    /// Seeds and dictionary of a case, in `folder`.
    pub fn inputs(case: Case, folder: &Path) -> Result<(PathBuf, Option<PathBuf>)> {
        let seeds = folder.join("seeds");
        make_folder(&seeds, None).map_err(Error::msg)?;
        if case.bytes == 0 {
            write(&seeds.join("zero"), "0\n")?;
            return Ok((seeds, None));
        }
        for (number, line) in SEEDS.lines().enumerate() {
            write(&seeds.join(format!("seed{number:02}")), line)?;
        }
        let dictionary = folder.join("sql.dict");
        write(&dictionary, DICTIONARY)?;
        Ok((seeds, Some(dictionary)))
    }

    /// The program of a case.
    pub fn program(&self, case: Case) -> Result<PathBuf> {
        make_folder(&self.folder, None).map_err(Error::msg)?;
        write(&self.folder.join("executions.h"), SHARED)?;
        let name = case.word();
        let output = self.folder.join(name);
        let source = if case.bytes == 0 { SMALL } else { SQLITE };
        let mut words = vec![self.optimise.to_owned(), format!("{name}.c")];
        if case.bytes > 0 {
            let object = self.sqlite()?;
            words.extend(["sqlite3.o".into(), format!("-I{}", parent(&object).display())]);
            words.push("-lm".into());
        }
        write(&self.folder.join(format!("{name}.c")), source)?;
        self.compile(&output, words, &[SHARED, source])?;
        Ok(output)
    }

    /// Compiles SQLite where it is not yet; the place of its source.
    fn sqlite(&self) -> Result<PathBuf> {
        let source = match &self.sqlite {
            Some(folder) => folder.join("sqlite3.c"),
            None => self.of_crate()?,
        };
        let source = std::path::absolute(source)?;
        if !source.is_file() {
            bail!("{} is missing; --sqlite names the folder it is in", source.display());
        }
        let mut words: Vec<String> = FLAGS.map(str::to_owned).into();
        words.extend([self.optimise.into(), "-c".into(), source.display().to_string()]);
        self.compile(&self.folder.join("sqlite3.o"), words, &[])?;
        Ok(source)
    }

    /// Cargo is asked where it keeps the crate; it gets it first where it has to.
    fn of_crate(&self) -> Result<PathBuf> {
        let folder = self.folder.join("crate");
        let (name, version) = CRATE;
        make_folder(&folder, None).map_err(Error::msg)?;
        write(&folder.join("lib.rs"), "")?;
        let manifest = format!(
            "[package]\nname = \"source\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
             [lib]\npath = \"lib.rs\"\n[workspace]\n\
             [dependencies]\n{name} = {{ version = \"{version}\", default-features = false }}\n"
        );
        write(&folder.join("Cargo.toml"), manifest)?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let cargo = found(cargo.as_ref(), "cargo")?;
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            .output()?;
        let why = || {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default().to_owned();
            format!("cargo does not give the crate {name} ({last}); --sqlite FOLDER does without")
        };
        let answer: Value = serde_json::from_slice(&output.stdout).with_context(why)?;
        let packages = answer["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let place = packages.iter().find(|package| package["name"] == name);
        let place =
            place.and_then(|package| package["manifest_path"].as_str()).with_context(why)?;
        Ok(parent(Path::new(place)).join("sqlite3/sqlite3.c"))
    }

    fn compile(&self, output: &Path, words: Vec<String>, sources: &[&str]) -> Result<()> {
        let mut command = Command::new(found(Path::new(COMPILER), PACKAGE)?);
        clear(&mut command, &["AFL_", "ODFORK_"]);
        if self.asan {
            command.env("AFL_USE_ASAN", "1");
        }
        command.env("AFL_QUIET", "1").current_dir(&self.folder).args(words).arg("-o").arg(output);
        build(command, output, sources)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_case_has_seeds_and_sql_a_dictionary_of_quoted_words() {
        let folder = tempfile::tempdir().unwrap();
        let (seeds, dictionary) = Workshop::inputs(Case { bytes: 1 }, folder.path()).unwrap();
        assert_eq!(fs::read_dir(seeds).unwrap().count(), SEEDS.lines().count());
        let words = fs::read_to_string(dictionary.unwrap()).unwrap();
        for line in words.lines().skip(1) {
            assert!(line.len() > 2 && line.starts_with('"') && line.ends_with('"'), "{line}");
        }
        let other = tempfile::tempdir().unwrap();
        let (seeds, dictionary) = Workshop::inputs(Case { bytes: 0 }, other.path()).unwrap();
        assert_eq!((fs::read_dir(seeds).unwrap().count(), dictionary), (1, None));
    }
}
