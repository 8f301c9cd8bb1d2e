//! What a fork costs by each engine: built-in figures, or those fitted to this machine's samples.
//!
//! Nothing is measured here; the arithmetic is odfork_model's. A fit is a median of slopes between
//! medians (Theil and Sen), so that a few disturbed samples do not move it; one size alone gives a
//! slope from the built-in floor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use odfork_model::{CostModel, Defaults};
use serde::{Deserialize, Serialize};

use super::smaps::{Entries, HUGE, PAGE};
use odfork_proc::cow_fork;
use odfork_samples::samples::{self, Recording};
use odfork_samples::stats::median;

/// An entry that maps 2 MB costs fork as much as this many entries of 4 KB: 9 by processor time
/// side by side at 1 GB (Linux 6.18), and 9 by the published times (Zhao, Gong and Fonseca 2021:
/// 6.54 against 0.17 ms); it takes a page table aside for the child.
const HUGE_IN_SMALL: f64 = 9.0;
/// on-demand-fork copies an entry for each table of 2 MB: 0.10 ms at 1 GB and 0.94 ms at 50 GB are
/// published (Zhao, Gong and Fonseca 2021), 33 ns a table.
const KERNEL_TABLE_NS: f64 = 33.0;
const FILE: &str = "latency.jsonl";
const FOLDER: &str = "odfork-results";

/// Unit prices in nanoseconds: of a fork, and of one entry of what the engine leaves to copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub floor_ns: f64,
    pub entry_ns: f64,
    /// From samples of this engine, not built in.
    pub fitted: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    pub source: String,
    pub plain: Price,
    pub thp: Price,
    pub image: Price,
    pub kernel: Price,
    /// The running kernel has on-demand-fork.
    pub kernel_offered: bool,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub engine: &'static str,
    pub fork_ns: f64,
    pub fitted: bool,
    pub offered: bool,
}

impl Prices {
    /// From the folder named, else from ./odfork-results, else the built-in ones. A remark says why
    /// a named one was not used.
    pub fn find(named: Option<&PathBuf>) -> (Prices, Option<String>) {
        let path = named.map_or(Path::new(FOLDER), PathBuf::as_path).join(FILE);
        if named.is_none() && !path.exists() {
            return (Prices::built_in(), None);
        }
        let why = match samples::read(&path) {
            Ok(recording) => match Prices::fit(&recording) {
                Some(prices) => return (prices, recording.damage),
                None => format!("{} holds no fork times of engine plain", path.display()),
            },
            Err(error) => format!("{error:#}"),
        };
        (Prices::built_in(), Some(format!("{why}; built-in figures are used")))
    }

    pub fn built_in() -> Prices {
        let source = "built-in figures (2-core virtual machine, Linux 6.18); \
                      `odfork bench` measures this machine";
        Prices::from_plain(plain_default(), source.to_owned())
    }

    /// The other engines follow from the price of a plain entry where they were not measured.
    fn from_plain(plain: Price, source: String) -> Prices {
        let slower = plain.entry_ns / plain_default().entry_ns;
        let other = |entry_ns| Price { entry_ns, fitted: false, ..plain };
        Prices {
            source,
            plain,
            thp: other(plain.entry_ns * HUGE_IN_SMALL),
            image: plain,
            kernel: other(KERNEL_TABLE_NS * slower.max(0.1)),
            kernel_offered: cow_fork::support().usable(),
        }
    }

    fn fit(recording: &Recording) -> Option<Prices> {
        let plain = slope(recording, "plain", PAGE, plain_default().floor_ns)?;
        // Through the model, whose picoseconds the runtime counts in too.
        let model = CostModel::with_defaults(Defaults {
            floor_ns: plain.floor_ns as u64,
            entry_ps: (plain.entry_ns * 1000.0).max(1.0) as u64,
            ..Defaults::MEASURED
        });
        let source = format!("fitted to the samples in {}", recording.path.display());
        let mut prices = Prices::from_plain(of_model(&model, true), source);
        let fitted = |engine| slope(recording, engine, HUGE, plain.floor_ns);
        prices.thp = fitted("thp").unwrap_or(prices.thp);
        prices.kernel = fitted("kernel").unwrap_or(prices.kernel);
        // An image leaves nothing to copy: its floor is its price, what was not frozen costs as
        // always.
        prices.image = fitted("image").map_or(Price { fitted: false, ..prices.plain }, |image| {
            Price { entry_ns: plain.entry_ns, ..image }
        });
        Some(prices)
    }

    /// The fork as it is now.
    pub fn now_ns(&self, entries: Entries) -> f64 {
        self.plain.ns(entries.small) + self.thp.entry_ns * entries.huge as f64
    }

    /// `left` is what the image would not take.
    pub fn predict(&self, entries: Entries, left: Entries) -> [Prediction; 4] {
        let tables = entries.bytes().div_ceil(HUGE);
        let line = |engine, Price { fitted, .. }, fork_ns, offered| Prediction {
            engine,
            fork_ns,
            fitted,
            offered,
        };
        let image_ns = self.image.ns(left.small) + self.thp.entry_ns * left.huge as f64;
        [
            line("plain", self.plain, self.plain.ns(entries.as_small()), true),
            line("thp", self.thp, self.thp.ns(tables), true),
            line("image", self.image, image_ns, true),
            line("kernel", self.kernel, self.kernel.ns(tables), self.kernel_offered),
        ]
    }
}

impl Price {
    fn ns(&self, entries: u64) -> f64 {
        self.floor_ns + self.entry_ns * entries as f64
    }
}

fn plain_default() -> Price {
    of_model(&CostModel::new(), false)
}

fn of_model(model: &CostModel, fitted: bool) -> Price {
    let (floor_ns, entry_ns) = (model.floor_ns() as f64, model.entry_ps() as f64 / 1000.0);
    Price { floor_ns, entry_ns, fitted }
}

/// Floor and slope of fork time over entries of so many bytes.
fn slope(recording: &Recording, engine: &str, bytes_each: u64, floor_ns: f64) -> Option<Price> {
    let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let chosen = recording.samples.iter().filter(|sample| {
        let alone = !sample.params.contains_key("processes") || sample.number("processes") == 1.0;
        sample.engine == engine && sample.metric == "fork" && sample.unit == "ns" && alone
    });
    for sample in chosen {
        let bytes = sample.number("bytes");
        if bytes.is_finite() && bytes >= 0.0 && sample.value.is_finite() && sample.value >= 0.0 {
            sizes.entry(bytes as u64 / bytes_each).or_default().push(sample.value);
        }
    }
    let points = sizes.iter().filter_map(|(n, times)| Some((*n as f64, median(times)?)));
    through(&points.collect::<Vec<_>>(), floor_ns)
}

/// The median of the slopes between all pairs of points, never below zero.
fn through(points: &[(f64, f64)], floor_ns: f64) -> Option<Price> {
    if let [(entries, time)] = points {
        let entry_ns = (time - floor_ns).max(0.0) / entries.max(1.0);
        return Some(Price { floor_ns: floor_ns.min(*time), entry_ns, fitted: true });
    }
    let mut slopes = Vec::new();
    for (index, from) in points.iter().enumerate() {
        slopes.extend(points[index + 1..].iter().map(|to| (to.1 - from.1) / (to.0 - from.0)));
    }
    let entry_ns = median(&slopes)?.max(0.0);
    let floors: Vec<f64> = points.iter().map(|(x, time)| time - entry_ns * x).collect();
    // A floor below a microsecond is an artefact of the slope; no fork is so fast.
    Some(Price { floor_ns: median(&floors)?.max(1e3), entry_ns, fitted: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::samples::Sample;

    const ONE_GB: Entries = Entries { small: 262_144, huge: 0 };

    fn recording(engine: &str, points: &[(u64, f64)]) -> Vec<Sample> {
        let sample = |&(bytes, value): &(u64, f64)| {
            Sample::of(engine, ("fork", "ns"), value).with("bytes", bytes).with("processes", 1)
        };
        points.iter().map(sample).collect()
    }

    #[test]
    fn built_in_prices_are_the_models() {
        let prices = Prices::built_in();
        let lines = prices.predict(ONE_GB, Entries::default());
        assert_eq!(lines[0].fork_ns as u64 / 1000, CostModel::new().fork_ns(262_144) / 1000);
        assert!(lines[1].fork_ns < 0.35e6 && lines[2].fork_ns < 0.1e6);
        assert_eq!(prices.now_ns(Entries { small: 0, huge: 512 }), lines[1].fork_ns);
        assert!(lines.iter().all(|line| !line.fitted));
    }

    #[test]
    fn what_is_not_frozen_is_still_copied() {
        let left = Entries { small: 131_072, huge: 0 };
        let image = &Prices::built_in().predict(ONE_GB, left)[2];
        assert!((6.5e6..7.5e6).contains(&image.fork_ns), "{image:?}");
    }

    #[test]
    fn a_fit_follows_the_samples_and_ignores_a_disturbed_one() {
        let gb = 1u64 << 30;
        // 50 us and 20 ns an entry, one sample far off.
        let at = |bytes: u64| (bytes, 50e3 + 20.0 * (bytes / 4096) as f64);
        let mut samples = recording("plain", &[at(gb / 4), at(gb), at(gb), at(2 * gb), at(4 * gb)]);
        samples.extend(recording("plain", &[(gb, 900e6)]));
        samples.extend(recording("thp", &[(gb, 150e3), (2 * gb, 250e3)]));
        let recording = Recording { samples, ..Recording::default() };
        let prices = Prices::fit(&recording).unwrap();
        assert!((prices.plain.entry_ns - 20.0).abs() < 0.01, "{prices:?}");
        assert!((prices.plain.floor_ns - 50e3).abs() < 1e3, "{prices:?}");
        assert!(prices.plain.fitted && prices.thp.fitted && !prices.image.fitted);
        assert!((prices.thp.ns(512) - 150e3).abs() < 1.0);
        assert_eq!(Prices::fit(&Recording::default()), None);
    }

    #[test]
    fn one_size_is_enough_and_a_missing_folder_is_said() {
        let one = through(&[(1000.0, 160e3)], 60e3).unwrap();
        assert_eq!((one.floor_ns, one.entry_ns), (60e3, 100.0));
        let (prices, remark) = Prices::find(Some(&"/nonexistent/folder".into()));
        assert_eq!(prices, Prices::built_in());
        assert!(remark.unwrap().contains("built-in figures are used"));
    }
}
