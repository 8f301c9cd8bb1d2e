//! Progress on stderr: which group, how far, about how long still. Drawn only between samples.
//!
//! On a terminal one line that vanishes; otherwise (a log, CI) a line per group, and one each ten
//! seconds. The time left starts from the plan's budgets and is corrected by how this machine kept
//! to them so far.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Before this share of the plan is done, the pace of the machine is not known.
const PACE_FROM: f64 = 0.03;

/// Without a terminal, a group that takes longer says where it is.
const SILENCE: Duration = Duration::from_secs(10);

/// Where a run stands.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    planned: f64,
    done: f64,
    current: f64,
    start: Instant,
    said: Instant,
}

impl Progress {
    /// For a plan of so many seconds.
    pub fn on_stderr(planned: f64) -> Self {
        let mut progress = Progress::silent(planned);
        progress.bar =
            ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(4));
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
            progress.bar.set_style(style);
        }
        progress.lines = progress.bar.is_hidden();
        progress
    }

    /// Says nothing: for tests.
    pub fn silent(planned: f64) -> Self {
        Progress {
            bar: ProgressBar::hidden(),
            lines: false,
            planned: planned.max(1e-9),
            done: 0.0,
            current: 0.0,
            start: Instant::now(),
            said: Instant::now(),
        }
    }

    /// A group of `seconds` begins.
    pub fn begin(&mut self, name: &str, seconds: f64) {
        self.current = seconds;
        let left = self.time_left(0.0, self.start.elapsed());
        if self.lines {
            let percent = 100.0 * self.done / self.planned;
            eprintln!("[{percent:3.0} %] {name}, about {} left", words(left));
        }
        self.said = Instant::now();
        self.advance(|| name.to_owned(), 0.0);
    }

    /// `share` of the current group is done; `what` is being done now.
    pub fn advance(&mut self, what: impl Fn() -> String, share: f64) {
        let position = (self.done + self.current * share) / self.planned;
        let left = self.time_left(share, self.start.elapsed());
        if self.lines && self.said.elapsed() > SILENCE {
            self.said = Instant::now();
            eprintln!("[{:3.0} %] {}, about {} left", 100.0 * position, what(), words(left));
        }
        if !self.bar.is_hidden() {
            self.bar.set_position((position * 1000.0) as u64);
            self.bar.set_message(format!("{}, about {} left", what(), words(left)));
        }
    }

    /// The current group is over.
    pub fn end(&mut self) {
        self.done += self.current;
        self.current = 0.0;
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn time_left(&self, share: f64, spent: Duration) -> Duration {
        let done = self.done + self.current * share;
        let pace = if done / self.planned > PACE_FROM { spent.as_secs_f64() / done } else { 1.0 };
        Duration::from_secs_f64(((self.planned - done) * pace).max(0.0))
    }
}

/// "3 min 20 s", "45 s".
fn words(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..=59 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_believed_until_the_pace_is_known() {
        let mut progress = Progress::silent(100.0);
        let spent = Duration::from_secs(50);
        assert_eq!(progress.time_left(0.0, spent), Duration::from_secs(100));
        progress.begin("first", 20.0);
        progress.end();
        // 20 planned seconds took 10: the other 80 take 40.
        let left = progress.time_left(0.0, Duration::from_secs(10));
        assert!((left.as_secs_f64() - 40.0).abs() < 1e-6);
        progress.begin("second", 80.0);
        let left = progress.time_left(1.0, Duration::from_secs(70));
        assert_eq!(left, Duration::ZERO);
    }

    #[test]
    fn times_are_said_in_words() {
        assert_eq!(words(Duration::from_secs(45)), "45 s");
        assert_eq!(words(Duration::from_secs(200)), "3 min 20 s");
    }
}
