//! A limit on what is being paid, checked while it is paid.
//!
//! Owns one comparison. The belief about a price may be wrong by any factor: memory that a guest
//! touches for the first time was seen to cost fifteen times as much. So a purchase is made in
//! steps, and before each step the time it has taken so far is compared with what
//! [`Rental::purchase`](crate::Rental::purchase) allows.

/// From when on something is paid for, and how much it may cost.
///
/// ```
/// let trial = odfork_model::Trial::new(1_000, 50);
/// assert!(trial.affords(1_049) && !trial.affords(1_050));
/// assert!(odfork_model::Trial::UNLIMITED.affords(u64::MAX - 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    began_ns: u64,
    limit_ns: u64,
}

impl Trial {
    /// Bytes copied between two comparisons. The time of one such step may be lost: it is under
    /// way when the limit is reached.
    pub const STEP_BYTES: u64 = 2 << 20;

    /// Whatever it costs.
    pub const UNLIMITED: Self = Self { began_ns: 0, limit_ns: u64::MAX };

    /// Began at that time, and may take so long; nanoseconds of the same clock.
    pub const fn new(began_ns: u64, limit_ns: u64) -> Self {
        Self { began_ns, limit_ns }
    }

    /// How long it may take, nanoseconds.
    pub const fn limit_ns(&self) -> u64 {
        self.limit_ns
    }

    /// The same, but ended when half as much again has passed as until this time, if that is
    /// sooner.
    ///
    /// ```
    /// let trial = odfork_model::Trial::new(1_000, 50);
    /// assert_eq!(trial.half_as_long_again(1_020).limit_ns(), 30);
    /// assert_eq!(trial.half_as_long_again(1_040).limit_ns(), 50);
    /// ```
    pub fn half_as_long_again(&self, now_ns: u64) -> Self {
        let spent_ns = now_ns.saturating_sub(self.began_ns);
        Self { limit_ns: self.limit_ns.min(spent_ns + spent_ns / 2), ..*self }
    }

    /// Whether the next step may begin at this time.
    pub const fn affords(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) < self.limit_ns
    }
}
