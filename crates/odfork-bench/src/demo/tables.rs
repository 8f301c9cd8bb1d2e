//! What the demo prints: medians of both sides in pairs, what the freeze costs, and what odfork
//! says of itself. Pure but for reading the file of statistics.

use std::path::Path;

use serde_json::Value;

use super::{Part, SIDES, SQLITE};
use odfork_proc::table::columns;
use odfork_samples::digest::{pairs, Digest, Point};
use odfork_samples::samples::Sample;
use odfork_samples::stats::{estimate_median, estimate_ratio, median, Estimate, Rng};

const MS: f64 = 1e6;
const METRICS: [(&str, &str); 4] =
    [("fork", "fork"), ("test", "test"), ("fork-test", "fork + test"), ("total", "until reaped")];
/// Of the three published kinds of tests together.
const PUBLISHED: [&str; 4] = ["13.15 -> 0.12 (110x)", "0.18 -> 0.21", "13.33 -> 0.33 (40x)", ""];

const FOOT: &str = "\
idle: the parent does nothing between forks. busy: it reads 2,000 entries and replaces 20 first;
CPython counts references in the objects it reads, so reading dirties pages, and under
--freeze eager every fork first refreezes them: that time is inside the fork column.
Times of one shared virtual machine mean little by themselves; the two columns of one run,
taken in turns, can be compared with each other, and ratios with published ratios.
";

/// Everything that is said of a run.
pub fn tables(samples: &[Sample], statistics: &[(Part, Statistics)]) -> String {
    let mut text = String::new();
    let digest = &Digest::of_samples(samples);
    for part in Part::ALL {
        let statistics = statistics.iter().find(|(of, _)| *of == part).map(|(_, of)| of);
        text += &Measured { digest, part, statistics }.text();
        text += &statistics.map(Statistics::words).unwrap_or_default();
    }
    text + FOOT
}

/// What was measured of one part.
struct Measured<'a> {
    digest: &'a Digest,
    part: Part,
    /// None in a control run.
    statistics: Option<&'a Statistics>,
}

impl Measured<'_> {
    fn of<'b>(&'b self, side: &'b str, metric: &'b str) -> impl Iterator<Item = &'b Point> + 'b {
        let part = self.part.word();
        let wanted = move |p: &&Point| p.configuration == side && p.word("program") == part;
        self.digest.of_metric(metric).filter(wanted)
    }

    /// Both sides of a metric where both were measured: same round, same kind.
    fn pairs(&self, metric: &str, kinds: &[&str]) -> (Vec<f64>, Vec<f64>) {
        let stock = self.of(SIDES[0], metric).filter(|p| kinds.contains(&p.word("kind").as_str()));
        let with_odfork = |stock| Some(pairs(stock, self.digest.twin(stock, SIDES[1])?));
        stock.filter_map(with_odfork).flatten().unzip()
    }

    fn text(&self) -> String {
        let (all, _) = self.pairs("fork", self.part.kinds());
        let Some([size, entries]) =
            self.once("content").zip(self.once("entries")).map(|(a, b)| [a, b])
        else {
            return format!("{}: nothing was measured\n", self.part.word());
        };
        let (size, tests) = (size[0] / f64::from(1 << 20), all.len());
        let mut text = match self.part {
            Part::Sqlite => format!(
                "\nSQLite unit tests: {size:.0} MB of database pages, {:.0} \
                                     rows, {tests} pairs of tests, medians [95 % \
                                     interval]\n",
                entries[0]
            ),
            Part::Python => format!(
                "\nPython: a dict of {:.0} entries, {size:.0} MB, {tests} \
                                     pairs, medians [95 % interval]\n",
                entries[0]
            ),
        };
        text += &self.table();
        text += &self.bursts();
        text += &self.waiting();
        if self.part == Part::Sqlite {
            text += &self.means();
            text += &self.payback().unwrap_or_default();
        }
        text
    }

    fn table(&self) -> String {
        let published =
            if self.part == Part::Sqlite { "published: fork -> on-demand-fork" } else { "" };
        let mut rows =
            vec![["ms", "stock fork", "odfork", "stock / odfork", published].map(str::to_string)];
        let mut once = |name: &str, both: [Option<f64>; 2], beside: &str| {
            let [stock, odfork] = both.map(|ns| ns.map_or("-".into(), |ns| number(ns / MS)));
            rows.push([name.into(), stock, odfork, String::new(), beside.into()]);
        };
        let both = |metric| self.once(metric).map_or([None; 2], |both| both.map(Some));
        match self.part {
            Part::Python => once("initialise, once", both("initialise"), ""),
            Part::Sqlite => {
                once("initialise, once", both("initialise"), "24,189");
                if let Some(freeze) = self.freeze() {
                    once("freeze, once", [None, Some(freeze)], "(none: a changed kernel)");
                }
                once("first fork", both("first-fork"), "");
            }
        }
        let all: &[&str] = self.part.kinds();
        let mut groups: Vec<(&str, &[&str])> =
            all.iter().map(|kind| (*kind, std::slice::from_ref(kind))).collect();
        if self.part == Part::Sqlite {
            groups.insert(3, ("all three", &SQLITE[..3]));
        }
        for (name, kinds) in groups {
            for ((metric, what), published) in METRICS.iter().zip(PUBLISHED) {
                let beside = if name == "all three" { published } else { "" };
                rows.extend(self.row(&format!("{name}: {what}"), metric, kinds, beside));
            }
        }
        columns(&rows)
    }

    fn row(&self, name: &str, metric: &str, kinds: &[&str], beside: &str) -> Option<[String; 5]> {
        let (stock, odfork) = self.pairs(metric, kinds);
        let mut rng = Rng::with_seed(1);
        let medians = [&stock, &odfork].map(|side| estimate_median(side, &mut rng));
        let ratio = estimate_ratio(&stock, &odfork, &mut rng)?;
        let [stock, odfork] = medians.map(|side| side.map_or("-".into(), |one| words(one, MS, "")));
        Some([name.into(), stock, odfork, words(ratio, 1.0, "x"), beside.into()])
    }

    /// Stock and odfork of what is measured once.
    fn once(&self, metric: &str) -> Option<[f64; 2]> {
        let of = |side| self.of(side, metric).flat_map(Point::values).last();
        Some([of(SIDES[0])?, of(SIDES[1])?])
    }

    fn bursts(&self) -> String {
        let mut text = String::new();
        for stock in self.of(SIDES[0], "burst") {
            let Some(odfork) = self.digest.twin(stock, SIDES[1]) else { continue };
            let (left, right) = (stock.median() / MS, odfork.median() / MS);
            let what = stock.word("kind");
            text += &format!(
                "{what}, wall time of everything: stock {left:.0} ms, odfork {right:.0} ms, {}x\n",
                number(left / right)
            );
        }
        text
    }

    /// Whether other work distorts the times: it stretches long operations more than short ones,
    /// for a short one ends before its slice does. Processor time of the parents is free of that.
    fn waiting(&self) -> String {
        let mean = |side, metric| {
            let values: Vec<f64> = self.of(side, metric).flat_map(Point::values).collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64 / MS
        };
        let [stock, odfork] = SIDES.map(|side| (mean(side, "cpu"), mean(side, "waiting")));
        let mut text = format!(
            "processor time of the parent per test: stock {} ms (and {} ms waiting for a \
             processor), odfork {} ms (and {} ms), {}x\n",
            number(stock.0),
            number(stock.1),
            number(odfork.0),
            number(odfork.1),
            number(stock.0 / odfork.0)
        );
        if stock.1 > 0.2 * stock.0 {
            text += "WARNING: other work kept the stock side waiting; this stretches long forks \
                     more than short ones, so\n\
                     the ratios above flatter odfork. Believe the ratio of processor time, or \
                     repeat on a quiet machine.\n";
        }
        text
    }

    fn means(&self) -> String {
        let mean =
            |values: &[f64]| number(values.iter().sum::<f64>() / values.len().max(1) as f64 / MS);
        let shown = METRICS[..3].iter().map(|(metric, what)| {
            let (stock, odfork) = self.pairs(metric, &SQLITE[..3]);
            format!("{what} {} -> {}", mean(&stock), mean(&odfork))
        });
        let shown: Vec<String> = shown.collect();
        format!("the published figures are means; ours, all three kinds: {}\n", shown.join(", "))
    }

    /// What the first fork under odfork takes longer than a later one; None in a control run.
    fn freeze(&self) -> Option<f64> {
        let later = median(&self.pairs("fork", &SQLITE[..3]).1)?;
        let [_, first] = self.once("first-fork").filter(|_| self.statistics.is_some())?;
        Some((first - later).max(0.0))
    }

    fn payback(&self) -> Option<String> {
        let freeze = self.freeze()?;
        let (stock, odfork) = self.pairs("total", &SQLITE[..3]);
        let saved = median(&stock)? - median(&odfork)?;
        if saved <= 0.0 {
            return Some(
                "the freeze is not paid back: a test costs no less under odfork in this run\n"
                    .into(),
            );
        }
        let forks = (freeze / saved).ceil().max(1.0);
        let (freeze, saved) = (number(freeze / MS), number(saved / MS));
        Some(format!(
            "the freeze ({freeze} ms, once) is paid back after {forks} fork(s), of which \
                      each gives back {saved} ms\n"
        ))
    }
}

/// What odfork wrote about a program when it ended.
#[derive(Clone, Debug)]
pub struct Statistics(Value);

impl Statistics {
    pub fn read(path: &Path) -> Result<Statistics, String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let value: Value =
            serde_json::from_str(text.lines().next().unwrap_or("")).unwrap_or_default();
        if value["schema"] != 1 {
            return Err("odfork wrote no statistics (schema 1) at exit".into());
        }
        let statistics = Statistics(value);
        if statistics.0["freeze"]["count"].as_u64().unwrap_or(0) == 0 {
            let (engine, fallbacks) = (statistics.engine(), &statistics.0["fallbacks"]);
            return Err(format!("odfork froze nothing; engine {engine}, fallbacks: {fallbacks}"));
        }
        Ok(statistics)
    }

    pub fn engine(&self) -> String {
        let word = |name: &str| self.0[name].as_str().unwrap_or("unknown").to_string();
        format!("{}: {}", word("engine"), word("reason"))
    }

    fn words(&self) -> String {
        let (freeze, refreeze) = (&self.0["freeze"], &self.0["fold"]);
        let count = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
        let ms = |of: &Value| of["us"].as_f64().unwrap_or(0.0) / 1e3;
        let mut text =
            format!(
            "odfork's own statistics: engine {}; {} freezes, {:.1} ms, {} MB; refreezes: {} in \
             place, {} rebuilt, {:.1} ms in all\n",
            self.engine(), count(freeze, "count"), ms(freeze), count(freeze, "bytes") >> 20,
            count(refreeze, "in_place"), count(refreeze, "rebuilt"), ms(refreeze)
        );
        for one in self.0["fallbacks"].as_array().into_iter().flatten() {
            let (reason, detail) = (one["reason"].as_str(), one["detail"].as_str());
            let (reason, detail) = (reason.unwrap_or(""), detail.unwrap_or(""));
            text += &format!("  left plain: {reason} x {} ({detail})\n", count(one, "count"));
        }
        text
    }
}

/// "1.23 [1.20, 1.25]".
fn words(estimate: Estimate, unit: f64, mark: &str) -> String {
    let value = number(estimate.value / unit);
    match estimate.interval {
        Some((low, high)) => {
            format!("{value}{mark} [{}, {}]", number(low / unit), number(high / unit))
        }
        None => format!("{value}{mark}"),
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(side: &str, metric: &str, kind: &str, (round, value): (u32, f64)) -> Sample {
        let sample = Sample::of(side, (metric, "ns"), value).in_round(round);
        sample.with("program", "sqlite").with("kind", kind)
    }

    #[test]
    fn sides_are_paired_and_the_freeze_is_paid_back() {
        let mut samples = Vec::new();
        for (side, fork, first) in [("stock", 20e6, 21e6), ("odfork", 0.2e6, 100.2e6)] {
            for round in 1..=5 {
                for (metric, value) in [
                    ("fork", fork),
                    ("test", 0.2e6),
                    ("fork-test", fork + 0.2e6),
                    ("total", fork + 1e6),
                    ("cpu", fork),
                    ("waiting", 0.0),
                ] {
                    samples.push(sample(side, metric, "select", (round, value)));
                }
            }
            for (metric, value) in
                [("first-fork", first), ("initialise", 9e9), ("content", 1e9), ("entries", 7.0)]
            {
                samples.push(sample(side, metric, "", (0, value)));
            }
        }
        // A round of one side alone is no pair.
        samples.push(sample("stock", "fork", "select", (6, 1.0)));
        let statistics = [(Part::Sqlite, Statistics(Value::Null))];
        let text = tables(&samples, &statistics);
        assert!(!tables(&samples, &[]).contains("freeze,"), "a control run has no freeze");
        let row = text.lines().find(|line| line.starts_with("all three: fork ")).unwrap();
        assert!(row.contains("100x [100, 100]") && row.contains("(110x)"), "{text}");
        // 100 ms of freeze, 19.8 ms saved by each fork.
        assert!(text.contains("(100 ms, once) is paid back after 6 fork(s)"), "{text}");
        assert!(
            text.contains("python: nothing was measured") && !text.contains("WARNING"),
            "{text}"
        );
    }

    #[test]
    fn statistics_of_a_program_that_was_not_frozen_are_a_failed_check() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Statistics::read(file.path()).unwrap_err().contains("no statistics"));
        let write = |count: u32| {
            let line = format!(
                r#"{{"schema":1,"engine":"image","reason":"chosen","freeze":{{"count":{count}}}}}"#
            );
            std::fs::write(file.path(), line).unwrap();
            Statistics::read(file.path())
        };
        assert!(write(0).unwrap_err().contains("froze nothing; engine image: chosen"));
        assert!(write(1).unwrap().words().contains("engine image: chosen; 1 freezes"));
    }
}
