//! What can be changed while the daemon runs: `odfork page set NAME=VALUE`.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One table feeds the parser, the help and the status.
pub const TABLE: [Knob; 9] = [
    Knob { name: "cluster-in", least: 1, most: 64, default: 64, help: "most pages read at a time" },
    Knob {
        name: "cluster-out",
        least: 1,
        most: 64,
        default: 64,
        help: "most pages written at a time",
    },
    Knob {
        name: "load-control",
        least: 0,
        most: 1,
        default: 1,
        help: "swap out whole programs when memory cannot be held",
    },
    Knob {
        name: "largest",
        least: 1,
        most: 64,
        default: 4,
        help: "load control takes the oldest of so many largest",
    },
    Knob {
        name: "order-point",
        least: 1,
        most: 90,
        default: 25,
        help: "pool below which the hand moves, per cent of memory",
    },
    Knob {
        name: "inventory",
        least: 0,
        most: 1,
        default: 0,
        help: "pool as an inventory instead of the linear law",
    },
    Knob {
        name: "poll-us",
        least: 0,
        most: 1000,
        default: 50,
        help: "microseconds to look for the next fault before sleeping, while they come closely (store in memory)",
    },
    Knob {
        name: "page-in-rate",
        least: 0,
        most: 1_000_000,
        default: 0,
        help: "most MB read from the store a second; 0: no cap",
    },
    Knob {
        name: "page-out-rate",
        least: 0,
        most: 1_000_000,
        default: 0,
        help: "most MB written to the store a second; 0: no cap",
    },
];

#[derive(Debug)]
pub struct Knob {
    pub name: &'static str,
    pub least: u32,
    pub most: u32,
    pub default: u32,
    pub help: &'static str,
}

#[derive(Debug)]
pub struct Knobs([AtomicU32; TABLE.len()]);

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs(std::array::from_fn(|at| AtomicU32::new(TABLE[at].default)))
    }
}

impl Knobs {
    /// Carries out "name=value".
    ///
    /// # Errors
    /// One line: what was wrong and what is possible.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let names = || TABLE.map(|knob| knob.name).join(", ");
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("'{text}' is not NAME=VALUE; the names are {}", names()));
        };
        let Some(at) = TABLE.iter().position(|knob| knob.name == name) else {
            return Err(format!("there is no '{name}'; the names are {}", names()));
        };
        let Knob { least, most, .. } = TABLE[at];
        match value.parse() {
            Ok(value) if (least..=most).contains(&value) => {
                self.0[at].store(value, Relaxed);
                Ok(())
            }
            _ => Err(format!("{name} is a number from {least} to {most}, not '{value}'")),
        }
    }

    /// Every knob as "name=value".
    pub fn list(&self) -> Vec<(&'static str, u32)> {
        TABLE.iter().zip(&self.0).map(|(knob, value)| (knob.name, value.load(Relaxed))).collect()
    }

    pub fn cluster_in(&self) -> u32 {
        self.0[0].load(Relaxed)
    }

    pub fn cluster_out(&self) -> u32 {
        self.0[1].load(Relaxed)
    }

    pub fn load_control(&self) -> bool {
        self.0[2].load(Relaxed) == 1
    }

    pub fn largest(&self) -> u32 {
        self.0[3].load(Relaxed)
    }

    /// Per cent of memory.
    pub fn order_point(&self) -> u32 {
        self.0[4].load(Relaxed)
    }

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
        let knobs = Knobs::default();
        assert!(knobs.set("cluster-in=16").is_ok());
        assert_eq!((knobs.cluster_in(), knobs.cluster_out()), (16, 64));
        for wrong in ["cluster-in", "cluster=1", "cluster-in=0", "cluster-in=65", "largest=x"] {
            assert!(knobs.set(wrong).is_err(), "{wrong}");
        }
        assert!(knobs.list().contains(&("cluster-in", 16)));
    }
}
