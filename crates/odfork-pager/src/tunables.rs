//! Tunables of a running daemon: `odfork page set NAME=VALUE`.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One table feeds the parser, the help and the status.
pub const TABLE: [Tunable; 9] = [
    Tunable {
        name: "cluster-in",
        least: 1,
        most: 64,
        default: 64,
        help: "most pages read at a time",
    },
    Tunable {
        name: "cluster-out",
        least: 1,
        most: 64,
        default: 64,
        help: "most pages written at a time",
    },
    Tunable {
        name: "load-control",
        least: 0,
        most: 1,
        default: 1,
        help: "swap out whole programs when memory cannot be held",
    },
    Tunable {
        name: "largest",
        least: 1,
        most: 64,
        default: 4,
        help: "load control takes the oldest of so many largest",
    },
    Tunable {
        name: "low-watermark",
        least: 1,
        most: 90,
        default: 25,
        help: "pool below which the hand moves, per cent of memory",
    },
    Tunable {
        name: "inventory",
        least: 0,
        most: 1,
        default: 0,
        help: "pool as an inventory instead of the linear law",
    },
    Tunable {
        name: "poll-us",
        least: 0,
        most: 1000,
        default: 50,
        help: "microseconds to look for the next fault before sleeping, while they come closely \
               (store in memory)",
    },
    Tunable {
        name: "page-in-rate",
        least: 0,
        most: 1_000_000,
        default: 0,
        help: "most MB read from the store a second; 0: no cap",
    },
    Tunable {
        name: "page-out-rate",
        least: 0,
        most: 1_000_000,
        default: 0,
        help: "most MB written to the store a second; 0: no cap",
    },
];

/// Old spellings: accepted by `set`, and the keys in the status, which stay.
const OLD_NAMES: [(&str, &str); 1] = [("low-watermark", "order-point")];

/// One tunable: its name and what it may be.
#[derive(Debug)]
pub struct Tunable {
    /// As `set` takes it.
    pub name: &'static str,
    /// The smallest value.
    pub least: u32,
    /// The largest value.
    pub most: u32,
    /// The value at the start.
    pub default: u32,
    /// What it is, for people.
    pub help: &'static str,
}

impl Tunable {
    fn key(&self) -> &'static str {
        let old = OLD_NAMES.iter().find(|(name, _)| *name == self.name);
        old.map_or(self.name, |(_, old)| old)
    }
}

/// The values, which may change at any time.
#[derive(Debug)]
pub struct Tunables([AtomicU32; TABLE.len()]);

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables(std::array::from_fn(|at| AtomicU32::new(TABLE[at].default)))
    }
}

impl Tunables {
    /// Carries out "name=value".
    ///
    /// # Errors
    /// One line: what was wrong and what is possible.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let names = || TABLE.map(|tunable| tunable.name).join(", ");
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("'{text}' is not NAME=VALUE; the names are {}", names()));
        };
        let is_named = |tunable: &Tunable| tunable.name == name || tunable.key() == name;
        let Some(at) = TABLE.iter().position(is_named) else {
            return Err(format!("there is no '{name}'; the names are {}", names()));
        };
        let Tunable { least, most, .. } = TABLE[at];
        match value.parse() {
            Ok(value) if (least..=most).contains(&value) => {
                self.0[at].store(value, Relaxed);
                Ok(())
            }
            _ => Err(format!("{name} is a number from {least} to {most}, not '{value}'")),
        }
    }

    /// Every tunable's key in the status, and its value.
    pub fn list(&self) -> Vec<(&'static str, u32)> {
        let value = |(tunable, value): (&Tunable, &AtomicU32)| (tunable.key(), value.load(Relaxed));
        TABLE.iter().zip(&self.0).map(value).collect()
    }

    /// Most pages read at a time.
    pub fn cluster_in(&self) -> u32 {
        self.0[0].load(Relaxed)
    }

    /// Most pages written at a time.
    pub fn cluster_out(&self) -> u32 {
        self.0[1].load(Relaxed)
    }

    /// Whole programs may be swapped out.
    pub fn load_control(&self) -> bool {
        self.0[2].load(Relaxed) == 1
    }

    /// Of so many largest programs the oldest is swapped out.
    pub fn largest(&self) -> u32 {
        self.0[3].load(Relaxed)
    }

    /// Per cent of memory.
    pub fn low_watermark(&self) -> u32 {
        self.0[4].load(Relaxed)
    }

    /// The hand follows the inventory rule of `odfork_policy::clock`, not the linear law.
    pub fn inventory(&self) -> bool {
        self.0[5].load(Relaxed) == 1
    }

    /// Microseconds; 0: sleep at once.
    pub fn poll_us(&self) -> u32 {
        self.0[6].load(Relaxed)
    }

    /// Bytes a second; 0: no cap.
    pub fn page_in_rate(&self) -> u64 {
        u64::from(self.0[7].load(Relaxed)) * 1_000_000
    }

    /// Bytes a second; 0: no cap.
    pub fn page_out_rate(&self) -> u64 {
        u64::from(self.0[8].load(Relaxed)) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_possible_is_set() {
        let tunables = Tunables::default();
        assert!(tunables.set("cluster-in=16").is_ok());
        assert_eq!((tunables.cluster_in(), tunables.cluster_out()), (16, 64));
        for wrong in ["cluster-in", "cluster=1", "cluster-in=0", "cluster-in=65", "largest=x"] {
            assert!(tunables.set(wrong).is_err(), "{wrong}");
        }
        assert!(tunables.list().contains(&("cluster-in", 16)));
        assert!(tunables.set("low-watermark=30").is_ok() && tunables.low_watermark() == 30);
        assert!(tunables.set("order-point=40").is_ok() && tunables.low_watermark() == 40);
        assert!(tunables.list().contains(&("order-point", 40)));
    }
}
