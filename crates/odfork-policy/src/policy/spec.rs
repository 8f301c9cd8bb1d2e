//! Policies by name and options, `name:key=value,key=value`, and what is wrong with a name.

use std::fmt;
use std::str::FromStr;

use super::local::Division;
use super::moves::{self, Bits};
use super::unix::Settings;
use super::vms::Limit;

/// All names.
pub const NAMES: [&str; 10] =
    ["fifo", "rand", "lru", "min", "clock", "sws", "pff", "vms", "unix", "moves"];

/// A policy and its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the fields are the options, explained in `keys`
pub enum Spec {
    Fifo { local: Option<Division> },
    Rand { seed: u64, local: Option<Division> },
    Lru { local: Option<Division> },
    Min,
    Clock { insert: bool, local: Option<Division> },
    Sws { window: u64 },
    Pff { threshold: u64 },
    Vms { limit: Limit },
    Unix(Settings),
    Moves(moves::Settings),
}

/// Why a policy could not be understood, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

impl Spec {
    /// The whole trace must be known before the run: how many processes there are, and how large.
    pub fn needs_whole(&self) -> bool {
        match self {
            Spec::Fifo { local } | Spec::Rand { local, .. } => local.is_some(),
            Spec::Lru { local } | Spec::Clock { local, .. } => local.is_some(),
            Spec::Vms { limit } => matches!(limit, Limit::Fraction(_)),
            Spec::Min | Spec::Sws { .. } | Spec::Pff { .. } => false,
            Spec::Unix(_) | Spec::Moves(_) => false,
        }
    }

    /// The options of a policy, each with what it means and its default.
    pub fn keys(name: &str) -> &'static [(&'static str, &'static str)] {
        const LOCAL: (&str, &str) =
            ("local", "equal or footprint: each process replaces only its own pages");
        match name {
            "fifo" | "lru" => &[LOCAL],
            "rand" => &[("seed", "number; the same seed gives the same counts [1]"), LOCAL],
            "clock" => &[("insert", "reference bit of a page that enters, 0 or 1 [1]"), LOCAL],
            "sws" => &[("window", "references of a process between two samples [100000]")],
            "pff" => {
                &[("threshold", "references without a fault after which a set shrinks [10000]")]
            }
            "vms" => &[
                ("size", "resident set of every process in pages"),
                ("fraction", "resident set as a share of memory / processes [0.5]"),
            ],
            "unix" => &[
                ("order", "low watermark of the pool as a share of memory [0.25]"),
                ("slowest", "frames per second at the low watermark [one revolution in 40 s]"),
                ("fastest", "the same with an empty pool [one in 4 s, within cpu]"),
                ("cpu", "share of a processor that reclaims may take [0.1]"),
                ("inventory", "1: low watermark and scan quantity follow the demand [0]"),
                (
                    "press",
                    "share of memory below which pages leave unsampled, in the pager 0.0625 [0]",
                ),
                ("advice", "0: marks of anomalous phases are ignored [1]"),
                ("ref_ns", "nanoseconds a reference takes [100]"),
                ("fault_us", "microseconds a fault takes [55]"),
                ("reclaim_us", "microseconds a reclaim takes [6.4]"),
            ],
            "moves" => &[
                ("own", "frames in which the process has other pages than the trace's [0]"),
                ("bits", "written: pages written lately are spared; simulated: none is [written]"),
            ],
            _ => &[],
        }
    }
}

impl FromStr for Spec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Spec, ParseError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if !NAMES.contains(&name) {
            return Err(ParseError(format!(
                "unknown policy '{name}'; there are {}",
                NAMES.join(", ")
            )));
        }
        let options = Options::read(name, rest)?;
        Ok(match name {
            "fifo" => Spec::Fifo { local: options.local()? },
            "rand" => Spec::Rand { seed: options.number("seed", 1)?, local: options.local()? },
            "lru" => Spec::Lru { local: options.local()? },
            "clock" => {
                Spec::Clock { insert: options.switch("insert", true)?, local: options.local()? }
            }
            "sws" => Spec::Sws { window: options.positive("window", 100_000)? },
            "pff" => Spec::Pff { threshold: options.positive("threshold", 10_000)? },
            "vms" => Spec::Vms { limit: options.limit()? },
            "unix" => Spec::Unix(options.unix()?),
            "moves" => Spec::Moves(options.moves()?),
            _ => Spec::Min,
        })
    }
}

struct Options<'a> {
    name: &'a str,
    given: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    fn read(name: &'a str, text: &'a str) -> Result<Options<'a>, ParseError> {
        let mut options = Options { name, given: Vec::new() };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(ParseError(format!(
                    "{name}: '{part}' should be KEY=VALUE{}",
                    known(name)
                )));
            };
            if !Spec::keys(name).iter().any(|(known, _)| *known == key) {
                return Err(ParseError(format!("{name} has no option '{key}'{}", known(name))));
            }
            if options.text(key).is_some() {
                return Err(ParseError(format!("{name}: '{key}' is given twice")));
            }
            options.given.push((key, value));
        }
        Ok(options)
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.given.iter().find(|(given, _)| *given == key).map(|(_, value)| *value)
    }

    fn wrong(&self, key: &str, wanted: &str) -> ParseError {
        let found = self.text(key).unwrap_or("");
        ParseError(format!("{}: {key} cannot be '{found}': it should be {wanted}", self.name))
    }

    fn parsed<T: FromStr>(&self, key: &str, default: T, wanted: &str) -> Result<T, ParseError> {
        match self.text(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| self.wrong(key, wanted)),
        }
    }

    fn number(&self, key: &str, default: u64) -> Result<u64, ParseError> {
        self.parsed(key, default, "a whole number")
    }

    fn positive(&self, key: &str, default: u64) -> Result<u64, ParseError> {
        match self.number(key, default)? {
            0 => Err(self.wrong(key, "a number above 0")),
            number => Ok(number),
        }
    }

    fn between(&self, key: &str, default: f64, most: f64) -> Result<f64, ParseError> {
        let wanted = format!("a number from 0 to {most}");
        let value: f64 = self.parsed(key, default, &wanted)?;
        if (0.0..=most).contains(&value) {
            Ok(value)
        } else {
            Err(self.wrong(key, &wanted))
        }
    }

    fn switch(&self, key: &str, default: bool) -> Result<bool, ParseError> {
        match self.text(key) {
            None => Ok(default),
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(_) => Err(self.wrong(key, "0 or 1")),
        }
    }

    fn local(&self) -> Result<Option<Division>, ParseError> {
        match self.text("local") {
            None => Ok(None),
            Some("equal") => Ok(Some(Division::Equal)),
            Some("footprint") => Ok(Some(Division::Footprint)),
            Some(_) => Err(self.wrong("local", "equal or footprint")),
        }
    }

    fn limit(&self) -> Result<Limit, ParseError> {
        let fraction = self.between("fraction", 0.5, 1.0)?;
        match self.text("size") {
            None => Ok(Limit::Fraction(fraction)),
            Some(_) if self.text("fraction").is_some() => {
                Err(ParseError("vms: size and fraction exclude each other".to_owned()))
            }
            Some(_) => match self.positive("size", 1)?.try_into() {
                Ok(pages) => Ok(Limit::Pages(pages)),
                Err(_) => Err(self.wrong("size", "below 4294967296")),
            },
        }
    }

    fn moves(&self) -> Result<moves::Settings, ParseError> {
        let bits = match self.text("bits") {
            None | Some("written") => Bits::Written,
            Some("simulated") => Bits::Simulated,
            Some(_) => return Err(self.wrong("bits", "written or simulated")),
        };
        let own = self.number("own", 0)?.try_into();
        Ok(moves::Settings { own: own.map_err(|_| self.wrong("own", "below 4294967296"))?, bits })
    }

    fn unix(&self) -> Result<Settings, ParseError> {
        const HOUR_US: f64 = 3.6e9;
        let nanoseconds = |microseconds: f64| (microseconds * 1000.0) as u64;
        Ok(Settings {
            reference_ns: self.number("ref_ns", 100)?.min(1_000_000_000),
            fault_ns: nanoseconds(self.between("fault_us", 55.0, HOUR_US)?),
            reclaim_ns: nanoseconds(self.between("reclaim_us", 6.4, HOUR_US)?),
            order: self.between("order", 0.25, 1.0)?,
            slowest: self.number("slowest", 0)?,
            fastest: self.number("fastest", 0)?,
            cpu: self.between("cpu", 0.1, 1.0)?,
            inventory: self.switch("inventory", false)?,
            press: self.between("press", 0.0, 0.5)?,
            advice: self.switch("advice", true)?,
        })
    }
}

fn known(name: &str) -> String {
    let keys: Vec<&str> = Spec::keys(name).iter().map(|(key, _)| *key).collect();
    if keys.is_empty() {
        "; it has none".to_owned()
    } else {
        format!("; it has {}", keys.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_alone() {
        for name in NAMES {
            assert!(name.parse::<Spec>().is_ok(), "{name}");
        }
        assert_eq!("clock".parse(), Ok(Spec::Clock { insert: true, local: None }));
        assert_eq!(
            "clock:insert=0,local=equal".parse(),
            Ok(Spec::Clock { insert: false, local: Some(Division::Equal) })
        );
        assert_eq!("vms:size=7".parse(), Ok(Spec::Vms { limit: Limit::Pages(7) }));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let cases = [
            (
                "lfu",
                "unknown policy 'lfu'; there are fifo, rand, lru, min, clock, sws, pff, vms, unix, \
                 moves",
            ),
            (
                "",
                "unknown policy ''; there are fifo, rand, lru, min, clock, sws, pff, vms, unix, \
                 moves",
            ),
            ("min:x=1", "min has no option 'x'; it has none"),
            ("clock:inserted=1", "clock has no option 'inserted'; it has insert, local"),
            ("clock:insert", "clock: 'insert' should be KEY=VALUE; it has insert, local"),
            ("clock:insert=2", "clock: insert cannot be '2': it should be 0 or 1"),
            ("sws:window=0", "sws: window cannot be '0': it should be a number above 0"),
            ("rand:seed=x", "rand: seed cannot be 'x': it should be a whole number"),
            ("vms:fraction=2", "vms: fraction cannot be '2': it should be a number from 0 to 1"),
            (
                "vms:fraction=nan",
                "vms: fraction cannot be 'nan': it should be a number from 0 to 1",
            ),
            ("vms:size=1,fraction=0.5", "vms: size and fraction exclude each other"),
            ("moves:bits=2", "moves: bits cannot be '2': it should be written or simulated"),
            ("rand:seed=1,seed=2", "rand: 'seed' is given twice"),
        ];
        for (text, line) in cases {
            assert_eq!(text.parse::<Spec>().unwrap_err().to_string(), line);
        }
    }
}
