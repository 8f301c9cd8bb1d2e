//! How much a process asks for, and how long it waits for it.

/// Thousandths of the time that are much to wait.
pub const MOST_WAITS: u64 = 300;

/// What a process asks for.
#[derive(Default)]
pub struct Need {
    /// Pages in a second.
    pub rate: u64,
    /// Thousandths of the time in which it waited for pages that were away; and nanoseconds since
    /// that was measured.
    pub waits: u64,
    pub waited: u64,
    measured: u64,
    asked: u64,
}

impl Need {
    /// Nothing was measured before.
    pub fn since(measured: u64, asked: u64) -> Need {
        Need { measured, asked, ..Need::default() }
    }

    /// So many pages were asked for until then.
    pub fn measure(&mut self, time: u64, asked: u64) {
        const MILLISECOND: u64 = 1_000_000;
        const WHOLE: u64 = 300;
        let passed = time.saturating_sub(self.measured) / MILLISECOND;
        if passed < 10 {
            return;
        }
        let (rate, part) = ((asked - self.asked) * 1_000 / passed, passed.min(WHOLE));
        let waits = core::mem::take(&mut self.waited) / (passed * 1_000);
        let mean = |old: u64, new: u64| (old * (WHOLE - part) + new * part) / WHOLE;
        (self.rate, self.waits) = (mean(self.rate, rate), mean(self.waits, waits));
        (self.measured, self.asked) = (time, asked);
    }
}
