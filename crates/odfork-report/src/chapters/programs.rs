//! Programs of others under a load: servers that gain nothing, fuzzers and virtual machines that
//! fork for each input.

use super::redis::percentiles;
use crate::axis::Kind;
use crate::bars::{Bars, Row};
use crate::blocks::{times, Block, Content, Table};
use crate::chart::Style;
use crate::colour::Colour;
use crate::drawing::MARKS;
use odfork_samples::digest::{paired_ratio, ratio_of_rounds, Digest, Point};
use odfork_samples::published::{points, PublishedPoint};
use odfork_samples::stats::Estimate;
use odfork_samples::unit::{digits, Unit};

/// The metric of servers whose ratio a reader remembers.
const SLOW: &str = "p99";
/// What no loss means.
const MOST: f64 = 1.03;

/// `apache` and `postgres`.
pub fn build_servers(digest: &Digest, id: &str) -> Content {
    let places = digest.places("run-p99.99");
    let chart = |(at, place): (usize, &&Point)| -> Block {
        let rate = digits(place.number("rate"));
        let title = format!("Requests, {rate} connections a second");
        percentiles(digest, place, (format!("{id}-percentiles-{}", at + 1), title), Vec::new())
    };
    let mut blocks: Vec<Block> = places.iter().enumerate().map(chart).collect();
    blocks.push(server_ratios(digest).into());
    let line = |(arm, ratio): (&Point, Estimate)| {
        let what = format!("1 request in 100 waits longer, {} / plain", arm.configuration);
        (what, times(&ratio))
    };
    Content { blocks, headlines: to_plain(digest, SLOW, ratio_of_rounds).map(line).collect() }
}

/// What of a server is compared, in words.
const COMPARED: [(&str, &str); 7] = [
    ("p50", "1 request in 2 waits longer"),
    ("p90", "1 request in 10 waits longer"),
    (SLOW, "1 request in 100 waits longer"),
    ("p99.9", "1 request in 1,000 waits longer"),
    ("max", "longest request of a round"),
    ("processor", "processor time of a request"),
    ("pss", "memory"),
];

fn server_ratios(digest: &Digest) -> Table {
    let rows = COMPARED.iter().flat_map(|&(metric, what)| {
        let row = |(arm, ratio): (&Point, Estimate)| {
            vec![what.to_owned(), arm.configuration.clone(), times(&ratio)]
        };
        to_plain(digest, metric, ratio_of_rounds).map(row).collect::<Vec<_>>()
    });
    let head = ["what", "configuration", "to plain (95 %)"];
    Table::new("Ratios of the same rounds, their median", &head, 2).with(rows)
}

/// The points of a metric that are not plain's, and their ratio to plain's.
fn to_plain<'a>(
    digest: &'a Digest,
    metric: &'a str,
    ratio: fn(&Point, &Point) -> Option<Estimate>,
) -> impl Iterator<Item = (&'a Point, Estimate)> {
    let others = digest.of_metric(metric).filter(|point| point.configuration != "plain");
    others.filter_map(move |arm| Some((arm, ratio(arm, digest.twin(arm, "plain")?)?)))
}

/// Of the arm that does worst.
pub fn lead_of_servers(digest: &Digest) -> Option<String> {
    let ratios = to_plain(digest, SLOW, ratio_of_rounds);
    let (arm, ratio) = ratios.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))?;
    let loses = match ratio.interval {
        Some((low, _)) if low > MOST => "it loses more than 3 %",
        Some((_, high)) if high <= MOST => "it loses at most 3 %",
        _ => "whether it loses 3 % one run does not decide",
    };
    let arm = &arm.configuration;
    let times = times(&ratio);
    Some(format!(
        "With odfork ({arm}) 1 request in 100 waits {times} as long as with stock fork: {loses}."
    ))
}

/// Of the largest program, with the arm of odfork that does best; and of the small one.
pub fn lead_of_rates(digest: &Digest, what: &str) -> Option<String> {
    let ours = ["auto", "eager", "live", "kernel"];
    let is_ours = |(arm, _): &(&Point, Estimate)| ours.contains(&arm.configuration.as_str());
    let mut ratios: Vec<_> = to_plain(digest, "rate", paired_ratio).filter(is_ours).collect();
    ratios.sort_by(|(a, x), (b, y)| {
        a.number("bytes").total_cmp(&b.number("bytes")).then(x.value.total_cmp(&y.value))
    });
    let (arm, best) = ratios.last()?;
    let (name, holds, best) = (&arm.configuration, arm.number("bytes"), times(best));
    if holds == 0.0 {
        let whose = format!("With odfork ({name}) a small {what}");
        return Some(format!("{whose} takes {best} the inputs of stock fork."));
    }
    let small =
        |(arm, _): &&(&Point, Estimate)| arm.number("bytes") == 0.0 && arm.configuration == *name;
    let small =
        ratios.iter().find(small).map(|(_, ratio)| format!("; a small one {}", times(ratio)));
    let small = small.unwrap_or_default();
    let whose = format!("With odfork ({name}) a {what} that holds {}", Unit::Bytes.write(holds));
    Some(format!("{whose} takes {best} the inputs of stock fork{small}."))
}

/// `afl` and `vm`.
pub fn build_rates(digest: &Digest, id: &str) -> Content {
    let (mut blocks, mut headlines) = (Vec::new(), Vec::new());
    for (at, place) in digest.places("rate").into_iter().enumerate() {
        let arms: Vec<&Point> =
            digest.of_metric("rate").filter(|point| point.params == place.params).collect();
        let words = words(place);
        blocks.push(rates(&arms, &words, &format!("{id}-rates-{}", at + 1)));
        let here =
            to_plain(digest, "rate", paired_ratio).filter(|(arm, _)| arm.params == place.params);
        headlines.extend(here.map(|(arm, ratio)| {
            let what = format!("executions a second, {} / plain, {words}", arm.configuration);
            (what, times(&ratio))
        }));
    }
    blocks.extend(published(id));
    Content { blocks, headlines }
}

fn words(place: &Point) -> String {
    let bytes = match place.number("bytes") {
        0.0 => "a small program".into(),
        bytes => Unit::Bytes.write(bytes),
    };
    match place.word("huge").as_str() {
        "" => bytes,
        huge => format!("{bytes}, huge pages: {huge}"),
    }
}

fn rates(arms: &[&Point], words: &str, name: &str) -> Block {
    let row = |point: &&Point| Row::measured(point.configuration.clone(), point);
    bars(&format!("Executions a second, {words}"), arms.iter().map(row).collect(), name)
}

/// Ones of another machine stand apart.
fn published(id: &str) -> Option<Block> {
    let style = |place: usize| Style { colour: Colour::Quiet, mark: MARKS[place % 5] };
    let row = |(place, point): (usize, PublishedPoint)| Row {
        hollow: true,
        ..Row::new(point.series.into(), point.y, style(place))
    };
    let rows: Vec<Row> = points(id).into_iter().enumerate().map(row).collect();
    let name = format!("{id}-theirs");
    (!rows.is_empty()).then(|| bars("Executions a second, published", rows, &name))
}

fn bars(title: &str, rows: Vec<Row>, name: &str) -> Block {
    let bars = Bars {
        title,
        about: "One row for each way of running the program: how many inputs it takes a second.",
        caption: "Median of the slices; the line is the 95 % interval, dots are single slices.",
        label: "executions a second",
        kind: Kind::Log,
        unit: Unit::Number,
        rows,
    };
    bars.figure(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::samples::Sample;

    #[test]
    fn servers_have_a_plot_and_a_sentence_for_each_arm() {
        let mut samples = Vec::new();
        for (arm, factor) in [("plain", 1.0), ("auto", 1.02)] {
            for metric in ["p99", "run-p50", "run-p99.99"] {
                let sample = Sample::of(arm, (metric, "ns"), 1e6 * factor).with("rate", 400);
                samples.push(sample.in_round(1));
            }
        }
        let content = build_servers(&Digest::of_samples(&samples), "apache");
        assert_eq!((content.blocks.len(), content.headlines.len()), (2, 1));
        let Block::Table(table) = &content.blocks[1] else { panic!() };
        assert_eq!(table.rows[0], ["1 request in 100 waits longer", "auto", "1.02×"]);
        assert!(content.headlines[0].1.contains("1.02"), "{:?}", content.headlines);
        let lead = lead_of_servers(&Digest::of_samples(&samples)).unwrap();
        assert!(lead.contains("(auto) 1 request in 100 waits 1.02") && lead.ends_with("decide."));
    }

    #[test]
    fn rates_have_bars_for_each_place_and_stock_is_below_one() {
        let mut samples = Vec::new();
        for (arm, rate) in [("plain", 25.0), ("eager", 500.0)] {
            for bytes in [0u64, 1 << 30] {
                let sample = Sample::of(arm, ("rate", "1/s"), rate).with("bytes", bytes);
                samples.push(sample.in_round(1));
            }
        }
        let content = build_rates(&Digest::of_samples(&samples), "afl");
        // Two of ours, one published.
        assert_eq!((content.blocks.len(), content.headlines.len()), (3, 2));
        let (what, ratio) = &content.headlines[1];
        assert!(what.ends_with(" GB") && ratio.starts_with("20"), "{what}: {ratio}");
        let lead = lead_of_rates(&Digest::of_samples(&samples), "target").unwrap();
        assert!(lead.contains("holds 1 GB takes 20×") && lead.contains("a small one"), "{lead}");
        samples.retain(|sample| sample.number("bytes") == 0.0);
        let lead = lead_of_rates(&Digest::of_samples(&samples), "target").unwrap();
        assert!(lead.contains("a small target takes 20×"), "{lead}");
    }
}
