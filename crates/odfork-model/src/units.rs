//! Integer arithmetic of times: nanoseconds, picoseconds a unit, without overflow.

/// Picoseconds in a second.
pub(crate) const PS_PER_S: u128 = 1_000_000_000_000;

/// `count` units of `unit_ps` picoseconds, in nanoseconds. Two 64-bit factors cannot overflow 128
/// bits.
pub(crate) const fn ps_to_ns(count: u64, unit_ps: u64) -> u64 {
    saturate(count as u128 * unit_ps as u128 / 1000)
}

/// Picoseconds per unit when `count` units took `ns` nanoseconds; nothing measured counts as one
/// unit.
pub(crate) const fn unit_ps(ns: u64, count: u64) -> u64 {
    let count = if count == 0 { 1 } else { count };
    saturate(ns as u128 * 1000 / count as u128)
}

/// The nearest number of 64 bits.
pub(crate) const fn saturate(wide: u128) -> u64 {
    if wide > u64::MAX as u128 {
        u64::MAX
    } else {
        wide as u64
    }
}
