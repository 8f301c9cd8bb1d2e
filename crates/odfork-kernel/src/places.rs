//! Where things are: the `kernel` folder of the project, and the work folder of sources and builds.
//!
//! ```text
//! work folder/
//!   source/                        Linux as it was unpacked
//!   source-VARIANT/                hard links to it; own files where a patch changed something
//!   source-VARIANT/build[-debug]/  the build, below its source: the compiler sees relative paths,
//!                                  and ccache finds what another variant compiled
//!   guest/                         the guest's first process, compiled
//!   packages/                      what `deb` made
//!   sessions/PID/                  files of a running guest
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::options::{PlaceOptions, VariantOptions};

/// A file every `kernel` folder has; tells it from another folder of that name.
const MARK: &str = "config/guest.config";

/// The two folders everything else is found from.
#[derive(Clone, Debug)]
pub struct Places {
    pub tree: PathBuf,
    pub work: PathBuf,
}

impl Places {
    pub fn find(options: &PlaceOptions) -> Result<Places> {
        let named = options
            .tree
            .clone()
            .or_else(|| std::env::var_os("ODFORK_KERNEL_TREE").map(PathBuf::from));
        let tree = tree(named.as_deref())?;
        let work = work(options.dir.clone())?;
        fs::create_dir_all(&work).with_context(|| {
            format!("cannot make the work folder {}; name another with --dir", work.display())
        })?;
        // Absolute and free of links: make and QEMU run elsewhere.
        let work = work.canonicalize().with_context(|| format!("cannot use {}", work.display()))?;
        Ok(Places { tree, work })
    }

    pub fn source(&self) -> PathBuf {
        self.work.join("source")
    }

    pub fn variant_source(&self, variant: &Variant) -> PathBuf {
        self.work.join(format!("source-{}", variant.series))
    }

    pub fn build(&self, variant: &Variant) -> PathBuf {
        self.variant_source(variant).join(variant.build_folder())
    }

    pub fn build_package(&self, guest: bool) -> PathBuf {
        let patched = Variant::of(&VariantOptions::default());
        self.variant_source(&patched).join(if guest { "build-deb-guest" } else { "build-deb" })
    }

    /// The kernel a boot takes.
    pub fn image(&self, variant: &Variant) -> PathBuf {
        self.build(variant).join("arch/x86/boot/bzImage")
    }
}

/// One of the kernels: which patches, which configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// "patched", "unpatched", "mutation-NAME"; "first" for a part of the series, whose tree every
    /// part uses in turn
    pub series: String,
    pub mutation: Option<String>,
    /// Only so many patches.
    pub first: Option<usize>,
    pub debug: bool,
}

impl Variant {
    pub fn of(options: &VariantOptions) -> Variant {
        let series = match (&options.mutation, options.unpatched, options.patches) {
            (Some(name), ..) => format!("mutation-{}", mutation_name(name)),
            (None, true, _) => "unpatched".into(),
            (None, false, Some(_)) => "first".into(),
            (None, false, None) => "patched".into(),
        };
        let mutation = options.mutation.as_deref().map(|name| mutation_name(name).to_owned());
        Variant { series, mutation, first: options.patches, debug: options.debug }
    }

    pub fn is_patched(&self) -> bool {
        self.series != "unpatched"
    }

    fn build_folder(&self) -> &'static str {
        if self.debug {
            "build-debug"
        } else {
            "build"
        }
    }

    /// "patched, debug configuration"
    pub fn describe(&self) -> String {
        let debug = if self.debug { ", debug configuration" } else { "" };
        match self.first {
            Some(number) => format!("the first {number} patches{debug}"),
            None => format!("{}{debug}", self.series),
        }
    }

    /// The options that name it: " --unpatched --debug".
    pub fn flags(&self) -> String {
        let series = match (&self.mutation, self.first) {
            (Some(name), _) => format!(" --mutation {name}"),
            (None, Some(number)) => format!(" --patches {number}"),
            (None, None) if self.is_patched() => String::new(),
            (None, None) => " --unpatched".into(),
        };
        format!("{series}{}", if self.debug { " --debug" } else { "" })
    }
}

/// "early-drop" for "early-drop", "early-drop.patch" and "kernel/mutations/early-drop.patch".
fn mutation_name(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.strip_suffix(".patch").unwrap_or(file)
}

fn tree(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = asked {
        if !folder.join(MARK).exists() {
            bail!("{} is no kernel folder of odfork: it has no {MARK}", folder.display());
        }
        return folder.canonicalize().with_context(|| format!("cannot use {}", folder.display()));
    }
    let places = candidates();
    let found = places.iter().find(|place| place.join(MARK).exists());
    match found.map(|place| place.canonicalize()) {
        Some(place) => place.context("cannot use the kernel folder"),
        None => bail!(
            "no kernel folder (patches, configurations) here or beside this program; \
             name it with --tree or ODFORK_KERNEL_TREE"
        ),
    }
}

/// The current folder's; the checkout's of target/release/odfork; the installed one of
/// PREFIX/bin/odfork.
fn candidates() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("kernel")];
    if let Ok(program) = std::env::current_exe() {
        let above = |levels: usize| program.ancestors().nth(levels).map(Path::to_path_buf);
        places.extend(above(3).map(|top| top.join("kernel")));
        places.extend(above(2).map(|prefix| prefix.join("share/odfork/kernel")));
    }
    places
}

fn work(asked: Option<PathBuf>) -> Result<PathBuf> {
    let absolute = |name: &str| {
        let folder = std::env::var_os(name).map(PathBuf::from);
        folder.filter(|folder| folder.is_absolute())
    };
    let cache =
        || absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|h| h.join(".cache")));
    match asked.or_else(|| cache().map(|cache| cache.join("odfork/kernel"))) {
        Some(folder) => Ok(folder),
        None => bail!("neither HOME nor XDG_CACHE_HOME is set; name a work folder with --dir"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(debug: bool, unpatched: bool, mutation: Option<&str>) -> Variant {
        let mutation = mutation.map(str::to_owned);
        Variant::of(&VariantOptions { debug, unpatched, mutation, patches: None })
    }

    #[test]
    fn variants_have_folders_and_flags() {
        let plain = variant(false, false, None);
        assert_eq!((plain.series.as_str(), plain.build_folder()), ("patched", "build"));
        assert_eq!(plain.flags(), "");
        let broken = variant(true, false, Some("kernel/mutations/early-drop.patch"));
        assert_eq!(broken.series, "mutation-early-drop");
        assert_eq!(broken.build_folder(), "build-debug");
        assert_eq!(broken.flags(), " --mutation early-drop --debug");
        assert!(!variant(false, true, None).is_patched());
        let part = VariantOptions { patches: Some(3), ..VariantOptions::default() };
        let part = Variant::of(&part);
        assert_eq!((part.series.as_str(), part.flags().as_str()), ("first", " --patches 3"));
    }

    #[test]
    fn a_folder_without_the_configuration_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = tree(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("config/guest.config"), "{error}");
        fs::create_dir(folder.path().join("config")).unwrap();
        fs::write(folder.path().join(MARK), "").unwrap();
        assert!(tree(Some(folder.path())).is_ok());
    }
}
