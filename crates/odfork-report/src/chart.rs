//! The ordinary plot: series of points over two axes.
//!
//! Owns legend, error bars, faint raw samples, lines. Nothing is dropped silently: an axis spans
//! every raw sample, and what a logarithmic axis has no place for is counted in the caption. Hollow
//! marks are published figures.

use crate::axis::{Axis, Kind, Track};
use crate::blocks::Figure;
use crate::colour::Colour;
use crate::drawing::{Anchor, Drawing, Mark, Spot, LETTER, MARKS};
use crate::font;
use crate::regression::Line;
use odfork_samples::configurations::rank;
use odfork_samples::digest;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
}

impl Point {
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, interval: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Apart,
    Solid,
    Dashed,
}

/// Colour and mark, by which a reader tells series apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    pub colour: Colour,
    pub mark: Mark,
}

impl Style {
    pub fn of_configuration(name: &str) -> Style {
        let mark = MARKS[rank(name).min(MARKS.len() - 1)];
        Style { colour: Colour::of_configuration(name), mark }
    }

    /// Of the series at a place, where they are not configurations.
    pub fn of_series(place: usize) -> Style {
        Style { colour: Colour::Series(place), mark: MARKS[place % MARKS.len()] }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub label: String,
    pub style: Style,
    pub hollow: bool,
    pub join: Join,
    pub points: Vec<Point>,
    pub raw: Vec<Spot>,
    /// A straight line over the whole range of this series' x.
    pub line: Option<Line>,
}

impl Series {
    pub fn new(label: &str, style: Style) -> Series {
        let (label, join, hollow, line) = (label.into(), Join::Apart, false, None);
        Series { label, style, hollow, join, points: Vec::new(), raw: Vec::new(), line }
    }

    /// Of a configuration: the harness alone is dashed.
    pub fn of_configuration(name: &str) -> Series {
        let join = if name == "null" { Join::Dashed } else { Join::Solid };
        Series::new(name, Style::of_configuration(name)).joined(join)
    }

    pub fn joined(self, join: Join) -> Series {
        Series { join, ..self }
    }

    pub fn published(self) -> Series {
        Series { hollow: true, ..self }
    }

    pub fn through(self, spots: impl IntoIterator<Item = Spot>) -> Series {
        let points = spots.into_iter().map(|(x, y)| Point::new(x, y)).collect();
        Series { points, ..self }
    }

    /// Medians and raw samples of measured points, from left to right.
    pub fn measured<'a>(
        mut self,
        points: impl Iterator<Item = &'a digest::Point>,
        x: impl Fn(&digest::Point) -> f64,
    ) -> Series {
        let mut points: Vec<&digest::Point> = points.collect();
        points.sort_by(|a, b| x(a).total_cmp(&x(b)));
        for point in points {
            let (x, estimate) = (x(point), point.estimate());
            self.points.push(Point { x, y: estimate.value, interval: estimate.interval });
            self.raw.extend(point.samples.iter().map(|(_, value)| (x, *value)));
        }
        self
    }

    /// The same with every y divided.
    pub fn over(mut self, divisor: f64) -> Series {
        for point in &mut self.points {
            point.y /= divisor;
            point.interval = point.interval.map(|(low, high)| (low / divisor, high / divisor));
        }
        self.raw.iter_mut().for_each(|spot| spot.1 /= divisor);
        self
    }

    pub fn spots(&self) -> Vec<Spot> {
        self.points.iter().map(|point| (point.x, point.y)).collect()
    }

    /// Lines computed in many steps are clearer without signs; distributions have some, to tell
    /// them apart.
    fn signs_between(&self, kind: Kind) -> Option<usize> {
        match self.points.len() {
            count if kind == Kind::Percentile => Some((count / 6).max(1)),
            count if count > DENSE => None,
            _ => Some(1),
        }
    }
}

/// Points of the same name together, from left to right; names in the order of their first points.
pub fn grouped(points: impl Iterator<Item = (String, Spot)>) -> Vec<(String, Vec<Spot>)> {
    let mut all: Vec<(String, Vec<Spot>)> = Vec::new();
    for (name, spot) in points {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, spots)) => spots.push(spot),
            None => all.push((name, vec![spot])),
        }
    }
    for (_, spots) in &mut all {
        spots.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

const DENSE: usize = 60;

#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Name of its files, without extension.
    pub name: String,
    pub title: String,
    pub about: String,
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub size: (f64, f64),
    /// A dashed horizontal line: where both are equal, where nothing is lost.
    pub level: Option<f64>,
}

impl Default for Chart {
    fn default() -> Chart {
        let axis = Axis::from_zero("", odfork_samples::unit::Unit::Number);
        Chart {
            name: String::new(),
            title: String::new(),
            about: String::new(),
            caption: String::new(),
            x: axis.clone(),
            y: axis,
            series: Vec::new(),
            size: (720.0, 430.0),
            level: None,
        }
    }
}

struct Frame {
    x: Track,
    y: Track,
}

impl Frame {
    fn spot(&self, x: f64, y: f64) -> Option<Spot> {
        Some((self.x.at(x)?, self.y.at(y)?))
    }
}

impl Chart {
    fn spots(&self) -> impl Iterator<Item = Spot> + '_ {
        self.series.iter().flat_map(|series| {
            let ends = |p: &Point| {
                let (low, high) = p.interval.unwrap_or((p.y, p.y));
                [(p.x, p.y), (p.x, low), (p.x, high)]
            };
            series.points.iter().flat_map(ends).chain(series.raw.iter().copied())
        })
    }

    /// Raw samples, or points without any, that an axis has no place for.
    fn left_out(&self) -> usize {
        let lost = |spot: &&Spot| !self.x.holds(spot.0) || !self.y.holds(spot.1);
        let of_series = |series: &Series| match series.raw.is_empty() {
            true => series.spots().iter().filter(lost).count(),
            false => series.raw.iter().filter(lost).count(),
        };
        self.series.iter().map(of_series).sum()
    }

    pub fn figure(&self) -> Figure {
        let caption = match self.left_out() {
            0 => self.caption.clone(),
            count => format!(
                "{} Not shown, because the logarithmic axis has no zero: {count} \
                 value(s); the table has them.",
                self.caption
            ),
        };
        Figure::new(&self.name, &caption, self.drawing())
    }

    pub fn drawing(&self) -> Drawing {
        let mut drawing = Drawing::new(self.size, &self.title, &self.about);
        let top = self.legend(&mut drawing) + 14.0;
        let frame = self.frame(top);
        self.draw_axes(&mut drawing, &frame);
        for series in &self.series {
            let raw = series.raw.iter().filter_map(|&(x, y)| frame.spot(x, y));
            drawing.dots(&raw.collect::<Vec<_>>(), series.style.colour);
        }
        for series in &self.series {
            draw_series(&mut drawing, &frame, series);
        }
        drawing
    }

    fn frame(&self, top: f64) -> Frame {
        let x = self.x.around(self.spots().map(|spot| spot.0));
        let y = self.y.around(self.spots().map(|spot| spot.1).chain(self.level));
        let labels = y.ticks(6);
        let widest = labels.iter().map(|(_, l)| font::width(l, LETTER)).fold(20.0, f64::max);
        let (width, height) = self.size;
        Frame {
            x: Track { scale: x, low: widest + 42.0, high: width - 24.0 },
            y: Track { scale: y, low: height - 50.0, high: top },
        }
    }

    /// Rows of signs and names below the title; returns where they end.
    fn legend(&self, drawing: &mut Drawing) -> f64 {
        let (mut x, mut y) = (14.0, 40.0);
        for series in self.series.iter().filter(|series| !series.label.is_empty()) {
            let wide = font::width(&series.label, LETTER) + 34.0;
            if x + wide > self.size.0 && x > 14.0 {
                (x, y) = (14.0, y + 18.0);
            }
            let (Style { colour, mark }, dashed) = (series.style, series.join == Join::Dashed);
            if series.join != Join::Apart || series.line.is_some() {
                drawing.line(&[(x - 4.0, y - 4.0), (x + 14.0, y - 4.0)], colour, 1.6, dashed);
            }
            if (1..=DENSE).contains(&series.points.len()) {
                drawing.sign((x + 5.0, y - 4.0), mark, colour, series.hollow);
            }
            drawing.text((x + 18.0, y), &series.label, Anchor::Start, Colour::Text);
            x += wide;
        }
        y
    }

    fn draw_axes(&self, drawing: &mut Drawing, frame: &Frame) {
        let (left, right) = (frame.x.low, frame.x.high);
        let (bottom, top) = (frame.y.low, frame.y.high);
        for (value, label) in frame.y.scale.ticks(6) {
            let Some(y) = frame.y.at(value) else { continue };
            drawing.line(&[(left, y), (right, y)], Colour::Grid, 1.0, false);
            drawing.text((left - 7.0, y + 4.0), &label, Anchor::End, Colour::Quiet);
        }
        frame.x.draw_below(drawing, (top, bottom), 7, &self.x.label);
        drawing.line(&[(left, top), (left, bottom), (right, bottom)], Colour::Quiet, 1.2, false);
        if let Some(y) = self.level.and_then(|level| frame.y.at(level)) {
            drawing.line(&[(left, y), (right, y)], Colour::Text, 1.0, true);
        }
        drawing.vertical((16.0, (top + bottom) / 2.0), &self.y.label, Colour::Text);
    }
}

/// A line over an interval with a stroke across each end.
pub fn error_bar(drawing: &mut Drawing, (low, high): (Spot, Spot), colour: Colour) {
    let across = if low.0 == high.0 { (3.5, 0.0) } else { (0.0, 3.5) };
    drawing.line(&[low, high], colour, 1.2, false);
    for (x, y) in [low, high] {
        let stroke = [(x - across.0, y - across.1), (x + across.0, y + across.1)];
        drawing.line(&stroke, colour, 1.2, false);
    }
}

fn draw_series(drawing: &mut Drawing, frame: &Frame, series: &Series) {
    let Style { colour, mark } = series.style;
    let mut join = |spots: &[Spot]| {
        if spots.len() > 1 {
            drawing.line(spots, colour, 1.6, series.join == Join::Dashed);
        }
    };
    join(&regression(frame, series));
    if series.join != Join::Apart {
        let spots = series.points.iter().filter_map(|point| frame.spot(point.x, point.y));
        join(&spots.collect::<Vec<_>>());
    }
    let stride = series.signs_between(frame.x.scale.kind);
    for (index, point) in series.points.iter().enumerate() {
        let Some(spot) = frame.spot(point.x, point.y) else { continue };
        let end = |value| frame.spot(point.x, value);
        if let Some(ends) = point.interval.and_then(|(low, high)| Some((end(low)?, end(high)?))) {
            error_bar(drawing, ends, colour);
        }
        if stride.is_some_and(|stride| index % stride == 0) {
            drawing.sign(spot, mark, colour, series.hollow);
        }
    }
}

/// The regression line in small steps: a straight line is a curve on a logarithmic axis.
fn regression(frame: &Frame, series: &Series) -> Vec<Spot> {
    let Some(line) = series.line else { return Vec::new() };
    let xs = series.points.iter().map(|p| p.x).chain(series.raw.iter().map(|spot| spot.0));
    let (low, high) = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    let power = if frame.x.scale.kind == Kind::Log { 3 } else { 1 };
    let place = |step: i32| low + (high - low) * (f64::from(step) / 48.0).powi(power);
    let inside = |spot: &Spot| spot.1 >= frame.y.high - 1.0 && spot.1 <= frame.y.low + 1.0;
    (0..=48).map(place).filter_map(|x| frame.spot(x, line.at(x))).filter(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::unit::Unit;

    fn chart(kind: Kind, values: &[Spot]) -> Chart {
        let mut series = Series::new("plain", Style::of_configuration("plain"));
        let around = |&(x, y): &Spot| Point { x, y, interval: Some((y * 0.9, y * 1.1)) };
        series.points = values.iter().map(around).collect();
        series.raw = values.to_vec();
        let x = Axis::new("size", kind, Unit::Bytes);
        let y = Axis::new("time", kind, Unit::Nanoseconds);
        Chart {
            title: "t".into(),
            about: "a".into(),
            x,
            y,
            series: vec![series],
            ..Chart::default()
        }
    }

    /// Centres of all circles: the mark of the series.
    fn signs(drawing: &Drawing) -> Vec<Spot> {
        let svg = drawing.file();
        let value = |circle: &str, name: &str| -> f64 {
            circle.split(name).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let circles = svg.split("<circle ").skip(1);
        circles.map(|circle| (value(circle, "cx=\""), value(circle, "cy=\""))).collect()
    }

    #[test]
    fn higher_values_are_higher_and_everything_is_inside() {
        let drawing = chart(Kind::Log, &[(1e6, 1e3), (1e9, 1e6)]).drawing();
        let signs = signs(&drawing);
        let (first, last) = (signs[1], signs[2]);
        assert!(first.0 < last.0 && first.1 > last.1);
        for (x, y) in signs {
            assert!((0.0..=drawing.width).contains(&x) && (0.0..=drawing.height).contains(&y));
        }
    }

    #[test]
    fn what_a_log_axis_cannot_show_is_counted() {
        assert_eq!(chart(Kind::Log, &[(0.0, 5.0), (1e6, 0.0), (1e6, 7.0)]).left_out(), 2);
        assert_eq!(chart(Kind::Linear, &[(0.0, 5.0)]).left_out(), 0);
    }

    #[test]
    fn a_regression_line_passes_its_points() {
        let mut chart = chart(Kind::Linear, &[(0.0, 10.0), (100.0, 20.0)]);
        chart.series[0].line = Some(Line { slope: 0.1, intercept: 10.0, explained: 1.0 });
        let frame = chart.frame(40.0);
        let drawn = regression(&frame, &chart.series[0]);
        assert_eq!(drawn.len(), 49);
        for (step, (x, y)) in [(0, (0.0, 10.0)), (48, (100.0, 20.0))] {
            assert!((drawn[step].1 - frame.spot(x, y).unwrap().1).abs() < 1e-6);
        }
    }

    #[test]
    fn one_point_and_no_point_are_drawn() {
        assert!(chart(Kind::Log, &[(1e6, 3.0)]).drawing().file().contains("<polyline"));
        assert!(chart(Kind::Linear, &[]).drawing().file().contains("<polyline"));
    }
}
