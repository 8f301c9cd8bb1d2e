//! `odfork kernel build`: from nothing to a bzImage. The steps, in order; each says one line when
//! it did something.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::make::Job;
use crate::options::BuildOptions;
use crate::places::{Places, Variant};
use crate::{config, needs, series, source};

/// Source, tree and build need 2.6 GB (measured); a build alone 0.6 GB, with KASAN 0.9 GB.
const BUILD_SPACE: u64 = 1_000_000_000;

pub fn run(options: &BuildOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let variant = Variant::of(&options.variant);
    needs::for_build()?;
    let built = build(&variant, options, &places)?;
    println!(
        "{}: Linux {}, {} patches, built in {:.0} s",
        built.image.display(),
        built.version,
        built.patches,
        built.took.as_secs_f64()
    );
    Ok(0)
}

/// What a build left.
#[derive(Debug)]
pub struct Built {
    pub image: PathBuf,
    pub version: String,
    pub patches: usize,
    pub took: Duration,
}

fn build(variant: &Variant, options: &BuildOptions, places: &Places) -> Result<Built> {
    let (patches, version) = prepare(variant, options.make.source.as_deref(), places)?;
    needs::disk(&places.work, BUILD_SPACE, "a build")?;
    for line in config::provide(variant, patches > 0, places)? {
        eprintln!("kernel: not taken into the configuration: {line}");
    }
    eprintln!("kernel: building Linux {version} ({})", variant.describe());
    let job = Job {
        source: &places.variant_source(variant),
        build: &places.build(variant),
        target: "bzImage",
        jobs: options.make.jobs.unwrap_or_else(processors),
        variables: Vec::new(),
    };
    let took = job.run()?;
    Ok(Built { image: places.image(variant), version, patches, took })
}

/// The variant's tree with its patches; their number and the version of Linux.
pub fn prepare(
    variant: &Variant,
    asked: Option<&std::path::Path>,
    places: &Places,
) -> Result<(usize, String)> {
    // Before anything long: a wrong name of a mutation.
    let series = series::of(variant, places)?;
    source::provide(asked, places)?;
    let changed = series::apply(&series, variant, places)?;
    if changed > 0 {
        eprintln!("kernel: {} patches applied, {changed} files changed", series.len());
    }
    Ok((series.len(), source::version(&places.source())))
}

pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}
