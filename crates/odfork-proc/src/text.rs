//! Sizes and times as text.

/// Bytes of 1 MB.
pub const MIB: u64 = 1 << 20;
/// Bytes of 1 GB.
pub const GIB: u64 = 1 << 30;

/// Nanoseconds with three significant digits and the unit that suits them.
pub fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Three significant digits, no exponent.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// A size in the largest unit that divides it.
pub fn size(bytes: u64) -> String {
    if bytes >= GIB && bytes % GIB == 0 {
        format!("{} GB", bytes / GIB)
    } else {
        format!("{} MB", bytes / MIB)
    }
}

/// "512M", "2g", "64KiB" or a plain number, in bytes; K, M, G and T are powers of 1024.
///
/// # Errors
/// It is none, or too large: one line.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(0),
        "K" | "KB" | "KIB" => Some(10),
        "M" | "MB" | "MIB" => Some(20),
        "G" | "GB" | "GIB" => Some(30),
        "T" | "TB" | "TIB" => Some(40),
        _ => None,
    };
    let (Some(shift), Ok(number)) = (shift, digits.parse::<u64>()) else {
        return Err(format!("'{text}' is no size: write it as 512M, 2G or in bytes"));
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

/// Year-month-day hour:minute, UTC.
pub fn date(unix_seconds: u64) -> String {
    let seconds = unix_seconds as libc::time_t;
    // SAFETY: all zeros are a valid `tm`, which the call fills; both pointers live for the call.
    let day = unsafe {
        let mut day: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&seconds, &mut day);
        day
    };
    let (year, month) = (day.tm_year + 1900, day.tm_mon + 1);
    format!("{year:04}-{month:02}-{:02} {:02}:{:02}", day.tm_mday, day.tm_hour, day.tm_min)
}

/// An amount of memory that was measured.
pub fn amount(bytes: f64) -> String {
    format!("{} MB", digits(bytes / MIB as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        assert_eq!(time(850.0), "850 ns");
        assert_eq!(time(45_123.0), "45.1 us");
        assert_eq!(time(16_240_000.0), "16.2 ms");
        assert_eq!(time(1.5e9), "1.50 s");
        assert_eq!(digits(9.999), "10.0");
        assert_eq!(digits(361.4), "361");
        assert_eq!(digits(1.034), "1.03");
    }

    #[test]
    fn sizes_have_letters_or_none() {
        assert_eq!(bytes("512M").unwrap(), 512 << 20);
        assert_eq!(bytes("2g").unwrap(), 2 << 30);
        assert_eq!(bytes("4096").unwrap(), 4096);
        for wrong in ["", "M", "5X", "-1M", "99999999999T", "1.5G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(951_782_400), "2000-02-29 00:00");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59");
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00");
    }

    #[test]
    fn sizes_are_named_as_people_do() {
        assert_eq!(size(8 * GIB), "8 GB");
        assert_eq!(size(64 * MIB), "64 MB");
        assert_eq!(amount(2.5 * MIB as f64), "2.50 MB");
    }
}
