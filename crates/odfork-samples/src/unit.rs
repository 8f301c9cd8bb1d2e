//! Units: how a number of a sample is written for people.
//!
//! Owns the wording of times, sizes, rates and shares: three significant digits, the unit beside
//! each number. Sizes are binary (1 MB is 1024 KB), as in the published papers; sizes of the 1988
//! grid are odd and stay in bytes.

use serde::Deserialize;

/// What a number is a number of, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A time.
    Nanoseconds,
    /// A time.
    Seconds,
    /// A size.
    Bytes,
    /// A rate.
    BytesPerSecond,
    /// Events in a second.
    PerSecond,
    /// A part of 1, written in per cent.
    Share,
    /// How many times.
    Times,
    /// A whole number of things.
    Count,
    /// Anything else.
    Number,
}

impl Unit {
    /// From the word in a sample file.
    pub fn of(word: &str) -> Unit {
        match word {
            "ns" => Unit::Nanoseconds,
            "s" => Unit::Seconds,
            "bytes" => Unit::Bytes,
            "bytes/s" => Unit::BytesPerSecond,
            "1/s" => Unit::PerSecond,
            "share" => Unit::Share,
            "count" => Unit::Count,
            "ratio" | "x" | "times" => Unit::Times,
            _ => Unit::Number,
        }
    }

    /// The value with its unit, for people: three digits.
    pub fn write(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".into();
        }
        match self {
            Unit::Nanoseconds => time(value),
            Unit::Seconds => time(value * 1e9),
            Unit::Bytes => size(value),
            Unit::BytesPerSecond => format!("{}/s", size(value)),
            Unit::PerSecond => format!("{}/s", digits(value)),
            Unit::Share => format!("{} %", digits(value * 100.0)),
            Unit::Times => format!("{}×", digits(value)),
            Unit::Count | Unit::Number => digits(value),
        }
    }
}

/// A number of a foreign unit in the unit of our samples: ("ms", ns) gives nanoseconds.
pub fn convert(value: f64, from: &str, to: Unit) -> Option<f64> {
    let nanoseconds = match from {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    match (nanoseconds, to) {
        (Some(factor), Unit::Nanoseconds) => Some(value * factor),
        (Some(factor), Unit::Seconds) => Some(value * factor / 1e9),
        (None, to) if Unit::of(from) == to || (from == "B/s" && to == Unit::BytesPerSecond) => {
            Some(value)
        }
        _ => None,
    }
}

fn time(nanoseconds: f64) -> String {
    let (divisor, unit) = match nanoseconds.abs() {
        0.0 => return "0 s".into(),
        below if below < 999.5 => (1.0, "ns"),
        below if below < 999.5e3 => (1e3, "µs"),
        below if below < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", digits(nanoseconds / divisor))
}

fn size(bytes: f64) -> String {
    let whole = bytes.fract() == 0.0 && bytes >= 0.0;
    if whole && bytes < 1048576.0 && (bytes % 1024.0 != 0.0 || bytes == 0.0) {
        return format!("{} B", grouped(bytes as u64));
    }
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut step = 0;
    while value.abs() >= 1023.5 && step + 1 < units.len() {
        value /= 1024.0;
        step += 1;
    }
    format!("{} {}", digits(value), units[step])
}

/// Three significant digits; thousands in groups from 10,000 on.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        let sign = if value < 0.0 { "−" } else { "" };
        return format!("{sign}{}", grouped(size as u64));
    }
    let text = match size {
        small if small < 0.001 => return format!("{value:.1e}").replace('-', "−"),
        small if small < 0.1 => format!("{value:.4}"),
        small if small < 0.9995 => format!("{value:.3}"),
        small if small < 9.995 => format!("{value:.2}"),
        small if small < 99.95 => format!("{value:.1}"),
        large if large >= 1e15 => format!("{value:.2e}"),
        _ => return digits(value.round()),
    };
    text.replace('-', "−")
}

/// Without needless zeros: for parameters and ticks, which are exact. "1.50 GB" becomes "1.5 GB".
pub fn trim(text: &str) -> String {
    let (number, unit) = text.split_at(text.find([' ', '×']).unwrap_or(text.len()));
    let short = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{short}{unit}")
}

/// "1,234,567".
pub fn grouped(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_choose_their_unit() {
        assert_eq!(Unit::Nanoseconds.write(6_540_000.0), "6.54 ms");
        assert_eq!(Unit::Nanoseconds.write(999.7), "1 µs".replace('1', "1.00"));
        assert_eq!(Unit::Seconds.write(505.82), "506 s");
        assert_eq!(Unit::Seconds.write(0.0), "0 s");
        assert_eq!(Unit::Seconds.write(f64::NAN), "–");
    }

    #[test]
    fn sizes_are_binary_and_odd_ones_stay_bytes() {
        assert_eq!(Unit::Bytes.write(1073741824.0), "1 GB");
        assert_eq!(Unit::Bytes.write(536870912.0), "512 MB");
        assert_eq!(Unit::Bytes.write(316228.0), "316,228 B");
        assert_eq!(Unit::Bytes.write(4096.0), "4 KB");
        assert_eq!(Unit::Bytes.write(0.0), "0 B");
        assert_eq!(Unit::BytesPerSecond.write(810841.0), "810,841 B/s");
    }

    #[test]
    fn digits_are_three_and_signs_are_kept() {
        assert_eq!(digits(0.1234), "0.123");
        assert_eq!(digits(-8.0), "−8");
        assert_eq!(digits(12345.6), "12,346");
        assert_eq!(digits(1.349e-4), "1.3e−4");
        assert_eq!(
            (digits(999_999_999_999_999.5), digits(-1e300)),
            ("1.00e15".into(), "−1.00e300".into())
        );
        assert_eq!(Unit::Times.write(65.0), "65×");
        assert_eq!(Unit::Share.write(0.23), "23 %");
        assert_eq!(
            (trim("1.50 GB"), trim("0.900"), trim("100 ms")),
            ("1.5 GB".into(), "0.9".into(), "100 ms".into())
        );
    }

    #[test]
    fn foreign_units_are_converted_or_refused() {
        assert_eq!(convert(6.54, "ms", Unit::Nanoseconds), Some(6.54e6));
        assert_eq!(convert(2.0, "s", Unit::Seconds), Some(2.0));
        assert_eq!(convert(2.0, "s", Unit::Share), None);
        assert_eq!(convert(65.0, "x", Unit::Times), Some(65.0));
    }
}
