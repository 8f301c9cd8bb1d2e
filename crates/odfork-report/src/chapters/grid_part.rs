//! One scale of the grid of 1988: which points belong together, and which fractions and forks are
//! drawn.

use crate::chart::{Series, Style};
use crate::regression::fit;
use odfork_samples::digest::{distinct, Digest, Point};

pub const METRIC: &str = "real";
/// The fractions of Figures 1 and 2.
pub const FRACTIONS: [f64; 3] = [0.1, 0.5, 0.9];
/// Two plots beside each other.
pub const HALF: (f64, f64) = (560.0, 400.0);

/// One scale of the grid: "1988" or "modern".
pub struct Part<'a> {
    pub digest: &'a Digest,
    pub scale: String,
    pub forks: f64,
    pub id: String,
}

impl Part<'_> {
    pub fn points<'b>(
        &'b self,
        configuration: &'b str,
        forks: f64,
    ) -> impl Iterator<Item = &'b Point> {
        self.digest.of_metric(METRIC).filter(move |point| {
            point.configuration == configuration
                && point.word("scale") == self.scale
                && point.number("forks") == forks
        })
    }

    pub fn configurations(&self) -> Vec<String> {
        self.digest.configurations(METRIC)
    }

    /// The fractions to draw: the paper's where they were measured, else lowest, middle and
    /// highest.
    pub fn fractions(&self) -> Vec<f64> {
        let configurations = self.configurations();
        let points =
            configurations.iter().flat_map(|configuration| self.points(configuration, self.forks));
        let all = distinct(points, "frac");
        let known: Vec<f64> = FRACTIONS.into_iter().filter(|frac| all.contains(frac)).collect();
        if !known.is_empty() || all.is_empty() {
            return known;
        }
        let mut some = vec![all[0], all[all.len() / 2], all[all.len() - 1]];
        some.dedup();
        some
    }

    /// Points and raw samples of one configuration and fraction, with their regression line.
    pub fn series(&self, configuration: &str, frac: f64, series: Series) -> Series {
        let points =
            self.points(configuration, self.forks).filter(|point| point.number("frac") == frac);
        let series = series.measured(points, |point| point.number("bytes"));
        Series { line: fit(&series.spots()), ..series }
    }

    /// The same in the colour of the configuration.
    pub fn of_configuration(&self, configuration: &str, frac: f64) -> Series {
        self.series(
            configuration,
            frac,
            Series::new(configuration, Style::of_configuration(configuration)),
        )
    }
}
