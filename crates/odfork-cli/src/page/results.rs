//! One line of results: as JSON (`--json`, and the files of `odfork page compare`) and as a row of
//! a table.

use odfork_policy::cost::{Tally, RATIOS};
use serde_json::{json, Map, Value};

/// Of the JSON lines; changes when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// How costs are made from counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// Fault : reclaim.
    pub ratios: Vec<f64>,
    /// Write-back : fault.
    pub write: f64,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices { ratios: RATIOS.to_vec(), write: 0.0 }
    }
}

/// Counts and what they are of.
pub struct Row<'a> {
    pub trace: &'a str,
    pub policy: &'a str,
    pub frames: u32,
    pub pages: u64,
    pub tally: Tally,
    pub interrupted: bool,
}

impl Row<'_> {
    pub fn json(&self, prices: &Prices) -> Value {
        let tally = &self.tally;
        let costs: Map<String, Value> = prices
            .ratios
            .iter()
            .map(|&ratio| (ratio.to_string(), json!(tally.cost(ratio, prices.write))))
            .collect();
        let mut line = json!({
            "schema": SCHEMA, "trace": self.trace, "policy": self.policy, "frames": self.frames,
            "references": tally.references, "pages": self.pages, "faults": tally.faults,
            "reclaims": tally.reclaims, "write_backs": tally.write_backs, "cost": costs,
        });
        if tally.pages_read > 0 {
            line["pages_read"] = json!(tally.pages_read);
        }
        if tally.samples > 0 {
            line["samples"] = json!(tally.samples);
            line["pages_per_sample"] = json!(tally.sampled as f64 / tally.samples as f64);
        }
        if self.interrupted {
            line["interrupted"] = json!(true);
        }
        line
    }

    /// Cells as [`head`] names them.
    pub fn cells(&self, prices: &Prices) -> Vec<String> {
        let tally = &self.tally;
        let rate = tally.faults as f64 / tally.references.max(1) as f64;
        let mut cells = vec![
            self.policy.to_owned(),
            self.frames.to_string(),
            tally.faults.to_string(),
            format!("{rate:.6}"),
            tally.reclaims.to_string(),
            tally.write_backs.to_string(),
        ];
        cells.extend(prices.ratios.iter().map(|&r| format!("{:.0}", tally.cost(r, prices.write))));
        cells
    }
}

pub fn head(prices: &Prices) -> Vec<String> {
    let mut head: Vec<String> =
        ["policy", "frames", "faults", "per ref", "reclaims", "writes"].map(str::to_owned).into();
    head.extend(prices.ratios.iter().map(|ratio| format!("cost {ratio}:1")));
    head
}
