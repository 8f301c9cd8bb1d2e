//! A median with the least and the most, in few digits: what tables of few rounds show.

use odfork_proc::text::digits;
use odfork_samples::stats::median;

/// "54.2 [51.0, 60.3]" in units of `unit`; a dash for nothing.
pub fn spread(values: &[f64], unit: f64) -> String {
    let Some(middle) = median(values) else { return "-".into() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let word = |value: f64| digits(value / unit);
    format!("{} [{}, {}]", word(middle), word(least), word(most))
}
