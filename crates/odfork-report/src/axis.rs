//! Axes: where a value lies between the ends, which values get a tick, and where both are on a
//! drawing.
//!
//! Owns linear, logarithmic and percentile scales. Ticks are round numbers inside the range, so a
//! label never stands at a place that it does not name. A logarithmic scale has no place for zero:
//! `at` gives None and the plot says so.

use crate::colour::Colour;
use crate::drawing::{Anchor, Drawing, LETTER};
use crate::font;
use odfork_samples::unit::{trim, Unit};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Linear,
    Log,
    /// Equal steps for 50, 90, 99, 99.9 %: room for the slow end.
    Percentile,
}

/// What a plot says of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub label: String,
    pub kind: Kind,
    pub unit: Unit,
    from_zero: bool,
}

impl Axis {
    pub fn new(label: &str, kind: Kind, unit: Unit) -> Axis {
        Axis { label: label.into(), kind, unit, from_zero: false }
    }

    pub fn log(label: &str, unit: Unit) -> Axis {
        Axis::new(label, Kind::Log, unit)
    }

    pub fn from_zero(label: &str, unit: Unit) -> Axis {
        Axis { from_zero: true, ..Axis::new(label, Kind::Linear, unit) }
    }

    pub fn around(&self, values: impl Iterator<Item = f64>) -> Scale {
        Scale::around(self.kind, self.unit, values, self.from_zero)
    }

    /// Whether the axis has a place for a value.
    pub fn holds(&self, value: f64) -> bool {
        value.is_finite() && (self.kind != Kind::Log || value > 0.0)
    }
}

/// A scale between two pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Track {
    pub scale: Scale,
    pub low: f64,
    pub high: f64,
}

impl Track {
    pub fn at(&self, value: f64) -> Option<f64> {
        self.scale.at(value).map(|share| self.low + share * (self.high - self.low))
    }

    /// Lines and labels of a horizontal axis, and its name below.
    pub fn draw_below(
        &self,
        drawing: &mut Drawing,
        (top, bottom): (f64, f64),
        ticks: usize,
        name: &str,
    ) {
        let mut taken = f64::NEG_INFINITY;
        for (value, label) in self.scale.ticks(ticks) {
            let Some(x) = self.at(value) else { continue };
            drawing.line(&[(x, top), (x, bottom)], Colour::Grid, 1.0, false);
            let half = font::width(&label, LETTER) / 2.0;
            // A label that would touch its neighbour is left away; its line stays.
            if x - half > taken && x + half < drawing.width {
                drawing.text((x, bottom + 17.0), &label, Anchor::Middle, Colour::Quiet);
                taken = x + half + 6.0;
            }
        }
        let middle = (self.low + self.high) / 2.0;
        drawing.text((middle, bottom + 38.0), name, Anchor::Middle, Colour::Text);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub kind: Kind,
    pub low: f64,
    pub high: f64,
    pub unit: Unit,
}

impl Scale {
    /// A scale that holds all values with some air; any values, even none, give a usable one.
    pub fn around(
        kind: Kind,
        unit: Unit,
        values: impl Iterator<Item = f64>,
        from_zero: bool,
    ) -> Scale {
        let fits = |value: &f64| value.is_finite() && (kind != Kind::Log || *value > 0.0);
        let (mut low, mut high) = values
            .filter(fits)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        match kind {
            Kind::Linear => {
                if from_zero {
                    (low, high) = (low.min(0.0), high.max(0.0));
                }
                let air = if high > low { (high - low) * 0.04 } else { high.abs().max(1.0) * 0.1 };
                let below = if from_zero && low == 0.0 { 0.0 } else { air };
                Scale { kind, low: low - below, high: high + air, unit }
            }
            Kind::Log => {
                let air = if high > low { (high / low).powf(0.04) } else { 2.0 };
                Scale { kind, low: low / air, high: high * air, unit }
            }
            Kind::Percentile => {
                Scale { kind, low: low.min(0.5), high: high.clamp(0.6, 0.9999), unit }
            }
        }
    }

    /// 0 at the low end, 1 at the high end; None where the scale has no place for the value.
    pub fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.kind == Kind::Log && value <= 0.0) {
            return None;
        }
        let (low, high) = (self.stretch(self.low), self.stretch(self.high));
        Some((self.stretch(value) - low) / (high - low)).filter(|share| share.is_finite())
    }

    fn stretch(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Linear => value,
            Kind::Log => value.log10(),
            Kind::Percentile => -(1.0 - value).log10(),
        }
    }

    /// About `wanted` ticks, at most one more than twice as many: (value, label).
    pub fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let values = match (self.kind, self.unit) {
            (Kind::Linear, _) => linear_ticks(self.low, self.high, wanted, self.unit),
            (Kind::Log, Unit::Bytes | Unit::BytesPerSecond) => {
                powers_of_two(self.low, self.high, wanted)
            }
            (Kind::Log, _) => decades(self.low, self.high, wanted),
            (Kind::Percentile, _) => vec![0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999],
        };
        let inside = |value: &f64| {
            *value >= self.low * (1.0 - 1e-9) - 1e-12 && *value <= self.high * (1.0 + 1e-9)
        };
        values.into_iter().filter(inside).map(|value| (value, self.label(value))).collect()
    }

    fn label(&self, value: f64) -> String {
        match self.kind {
            Kind::Percentile => format!("{}", (value * 1000.0).round() / 10.0),
            _ => trim(&self.unit.write(value)),
        }
    }
}

/// Steps of 1, 2 or 5 times a power of ten (of two for sizes).
fn linear_ticks(low: f64, high: f64, wanted: usize, unit: Unit) -> Vec<f64> {
    let rough = (high - low) / wanted.max(1) as f64;
    if !rough.is_finite() || rough <= 0.0 {
        return vec![low];
    }
    let binary = matches!(unit, Unit::Bytes | Unit::BytesPerSecond) && high >= 1048576.0;
    let step = if binary {
        2f64.powf(rough.log2().ceil())
    } else {
        let power = 10f64.powf(rough.log10().floor());
        let factor =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * 0.999).unwrap_or(10.0);
        factor * power
    };
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    // From the index, not by adding: 0.1 + 0.2 would be labelled 0.30000000000000004.
    (first..=last.min(first + 40)).map(|index| tidy(index as f64 * step)).collect()
}

fn tidy(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}

fn decades(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let stride = ((last - first) as usize / wanted.max(1)).max(1);
    let ticks: Vec<f64> = (first..=last)
        .step_by(stride)
        .flat_map(|power| factors.iter().map(move |factor| tidy(factor * 10f64.powi(power))))
        .collect();
    let inside = ticks.iter().filter(|tick| **tick >= low && **tick <= high).count();
    // Less than a factor of two: the values themselves.
    if inside < 2 {
        linear_ticks(low, high, wanted.min(4), Unit::Number)
    } else {
        ticks
    }
}

fn powers_of_two(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
    let stride = (f64::from(last - first + 1) / wanted.max(1) as f64).ceil().max(1.0) as usize;
    if last <= first {
        return linear_ticks(low, high, wanted.min(4), Unit::Bytes);
    }
    (first..=last).step_by(stride).map(|power| 2f64.powi(power)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(kind: Kind, low: f64, high: f64, unit: Unit) -> Scale {
        Scale { kind, low, high, unit }
    }

    #[test]
    fn linear_ticks_are_round_and_inside() {
        let ticks = scale(Kind::Linear, 0.0, 1.03, Unit::Number).ticks(5);
        let values: Vec<f64> = ticks.iter().map(|(value, _)| *value).collect();
        assert_eq!(values, [0.0, 0.5, 1.0]);
        let ticks = scale(Kind::Linear, 0.0, 0.31, Unit::Number).ticks(3);
        assert_eq!(ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>(), ["0", "0.2"]);
    }

    #[test]
    fn sizes_tick_at_powers_of_two() {
        let ticks = scale(Kind::Log, 1048576.0, 4294967296.0, Unit::Bytes).ticks(7);
        assert_eq!(ticks.first().unwrap().1, "1 MB");
        assert!(ticks.iter().any(|(_, label)| label == "1 GB" || label == "256 MB"), "{ticks:?}");
        assert!(ticks.len() <= 7);
        let ticks = scale(Kind::Linear, 0.0, 2147483648.0, Unit::Bytes).ticks(5);
        assert!(ticks.iter().any(|(_, label)| label == "1 GB"), "{ticks:?}");
    }

    #[test]
    fn a_log_scale_is_even_in_factors_and_refuses_zero() {
        let scale = scale(Kind::Log, 1.0, 100.0, Unit::Nanoseconds);
        assert_eq!(scale.at(10.0), Some(0.5));
        assert_eq!((scale.at(0.0), scale.at(-1.0), scale.at(f64::NAN)), (None, None, None));
        assert!(scale.ticks(5).iter().any(|(value, label)| *value == 10.0 && label == "10 ns"));
    }

    #[test]
    fn percentiles_give_room_to_the_slow_end() {
        let scale = scale(Kind::Percentile, 0.5, 0.999, Unit::Share);
        let (middle, high) = (scale.at(0.9).unwrap(), scale.at(0.99).unwrap());
        assert!(middle > 0.2 && high - middle > 0.3, "{middle} {high}");
        assert_eq!(scale.ticks(5).last().unwrap().1, "99.9");
    }

    #[test]
    fn any_values_give_a_usable_scale() {
        for kind in [Kind::Linear, Kind::Log] {
            for values in [vec![], vec![5.0], vec![0.0], vec![f64::NAN, 3.0], vec![-1.0, 2.0]] {
                let scale = Scale::around(kind, Unit::Number, values.iter().copied(), true);
                assert!(scale.low < scale.high, "{kind:?} {values:?} {scale:?}");
                assert!(!scale.ticks(5).is_empty(), "{kind:?} {values:?} {scale:?}");
            }
        }
        let from_zero = Scale::around(Kind::Linear, Unit::Number, [5.0, 9.0].into_iter(), true);
        assert_eq!(from_zero.low, 0.0);
    }
}
