//! Sizes as people write them: 8G, 512M, 1.5G, 300k, plain bytes.

use anyhow::{bail, Result};

/// Bytes; k, M, G and T are powers of 1024, B and iB may follow.
pub fn parse(word: &str) -> Result<u64> {
    let lower = word.trim().to_ascii_lowercase();
    let stem = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let power = match stem.chars().last() {
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        _ => 0,
    };
    let number = if power == 0 { stem } else { &stem[..stem.len() - 1] };
    // parse() would also take "inf", "1e9" and "+3": only digits and a point are a size.
    let plain = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let bytes = number.parse::<f64>().ok().filter(|_| plain).map(|n| n * 1024f64.powi(power));
    match bytes {
        // Nothing addresses more; the bound keeps every sum finite.
        Some(bytes) if bytes <= (1u64 << 57) as f64 => Ok(bytes.round() as u64),
        Some(_) => bail!("--mem {word:?} is more than a process can have (128P)"),
        None => bail!("--mem {word:?} is no size; write 8G, 512M, 300k or a number of bytes"),
    }
}

/// The same the other way, with three digits.
pub fn name(bytes: f64) -> String {
    let units = [(1u64 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit as f64) {
        Some((unit, name)) => format!("{} {name}", odfork_proc::text::digits(bytes / unit as f64)),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (word, bytes) in [
            ("8G", 8u64 << 30),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("300k", 300 << 10),
            ("300K", 300 << 10),
            ("4096", 4096),
            ("2GiB", 2 << 30),
            ("1gb", 1 << 30),
            ("0", 0),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse(word).unwrap(), bytes, "{word}");
        }
    }

    #[test]
    fn sizes_are_named_in_the_unit_that_suits_them() {
        assert_eq!(name((8u64 << 30) as f64), "8.00 GB");
        assert_eq!(name(1_000_000.0), "977 kB");
        assert_eq!(name(0.0), "0 bytes");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for word in ["", "G", "8X", "-1G", "1e9", "inf", "nan", "1.2.3M", "8 Gé", "99999999T"] {
            assert!(parse(word).is_err(), "{word}");
        }
    }
}
