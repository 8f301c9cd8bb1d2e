//! The ordinary plot: series of points over two axes.
//!
//! Owns axes, legend, error bars, faint raw samples, lines. Nothing is dropped silently: an axis spans every raw
//! sample, and what a logarithmic axis has no place for is counted (`left_out`). Hollow marks are published figures.

use super::colour::Colour;
use super::font;
use super::regression::Line;
use super::scale::{Kind, Scale};
use super::scene::{Anchor, Mark, Scene, Spot, LETTER};
use odfork_samples::unit::Unit;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Apart,
    Solid,
    Dashed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub label: String,
    pub colour: Colour,
    pub mark: Mark,
    pub hollow: bool,
    pub join: Join,
    pub points: Vec<Point>,
    pub raw: Vec<Spot>,
    /// A straight line over the whole range of this series' x.
    pub line: Option<Line>,
}

impl Series {
    pub fn new(label: &str, colour: Colour, mark: Mark) -> Series {
        Series {
            label: label.into(),
            colour,
            mark,
            hollow: false,
            join: Join::Apart,
            points: Vec::new(),
            raw: Vec::new(),
            line: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub label: String,
    pub kind: Kind,
    pub unit: Unit,
    pub from_zero: bool,
}

impl Axis {
    pub fn new(label: &str, kind: Kind, unit: Unit) -> Axis {
        Axis { label: label.into(), kind, unit, from_zero: false }
    }

    pub fn from_zero(label: &str, unit: Unit) -> Axis {
        Axis { label: label.into(), kind: Kind::Linear, unit, from_zero: true }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    pub title: String,
    pub about: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub size: (f64, f64),
    /// A dashed horizontal line: where both are equal, where nothing is lost.
    pub level: Option<f64>,
}

pub const SIZE: (f64, f64) = (720.0, 430.0);

struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn spot(&self, x: f64, y: f64) -> Option<Spot> {
        let (across, up) = (self.x.at(x)?, self.y.at(y)?);
        Some((
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        ))
    }
}

impl Chart {
    pub fn new(title: &str, about: &str, (x, y): (Axis, Axis), series: Vec<Series>) -> Chart {
        Chart { title: title.into(), about: about.into(), x, y, series, size: SIZE, level: None }
    }

    fn spots(&self) -> impl Iterator<Item = Spot> + '_ {
        self.series.iter().flat_map(|series| {
            let ends = |p: &Point| {
                let (low, high) = p.interval.unwrap_or((p.y, p.y));
                [(p.x, p.y), (p.x, low), (p.x, high)]
            };
            series.points.iter().flat_map(ends).chain(series.raw.iter().copied())
        })
    }

    /// Raw samples and points that an axis has no place for.
    pub fn left_out(&self) -> usize {
        let missing =
            |kind: Kind, value: f64| !value.is_finite() || (kind == Kind::Log && value <= 0.0);
        let lost = |x: f64, y: f64| missing(self.x.kind, x) || missing(self.y.kind, y);
        self.series
            .iter()
            .map(|series| {
                let raw = series.raw.iter().filter(|spot| lost(spot.0, spot.1)).count();
                let points = series.points.iter().filter(|point| lost(point.x, point.y)).count();
                if series.raw.is_empty() {
                    points
                } else {
                    raw
                }
            })
            .sum()
    }

    pub fn scene(&self) -> Scene {
        let (width, height) = self.size;
        let mut scene = Scene::new(width, height, &self.title, &self.about);
        scene.label((10.0, 20.0), &self.title, Anchor::Start, (14.0, Colour::Text));
        let top = self.legend(&mut scene) + 14.0;
        let frame = self.frame(top);
        draw_axes(&mut scene, &frame, self);
        for series in &self.series {
            scene.dots(
                series.raw.iter().filter_map(|&(x, y)| frame.spot(x, y)).collect(),
                series.colour,
            );
        }
        for series in &self.series {
            draw_series(&mut scene, &frame, series);
        }
        scene
    }

    fn frame(&self, top: f64) -> Frame {
        let level = self.level.map(|level| (f64::NAN, level));
        let x =
            Scale::around(self.x.kind, self.x.unit, self.spots().map(|s| s.0), self.x.from_zero);
        let y = Scale::around(
            self.y.kind,
            self.y.unit,
            self.spots().chain(level).map(|s| s.1),
            self.y.from_zero,
        );
        let widest =
            y.ticks(6).iter().map(|(_, label)| font::width(label, LETTER)).fold(20.0, f64::max);
        let (width, height) = self.size;
        Frame { left: widest + 42.0, top, right: width - 24.0, bottom: height - 50.0, x, y }
    }

    /// Rows of signs and names below the title; returns where they end.
    fn legend(&self, scene: &mut Scene) -> f64 {
        let (mut x, mut y) = (14.0, 40.0);
        for series in self.series.iter().filter(|series| !series.label.is_empty()) {
            let wide = font::width(&series.label, LETTER) + 34.0;
            if x + wide > self.size.0 && x > 14.0 {
                (x, y) = (14.0, y + 18.0);
            }
            let signed = (1..=DENSE).contains(&series.points.len());
            if series.join != Join::Apart || series.line.is_some() {
                scene.line(
                    &[(x - 4.0, y - 4.0), (x + 14.0, y - 4.0)],
                    series.colour,
                    1.6,
                    series.join == Join::Dashed,
                );
            }
            if signed {
                scene.sign((x + 5.0, y - 4.0), series.mark, series.colour, series.hollow);
            }
            scene.text((x + 18.0, y), &series.label, Anchor::Start, Colour::Text);
            x += wide;
        }
        y
    }
}

fn draw_axes(scene: &mut Scene, frame: &Frame, chart: &Chart) {
    let (left, right, top, bottom) = (frame.left, frame.right, frame.top, frame.bottom);
    for (value, label) in frame.y.ticks(6) {
        let Some(up) = frame.y.at(value) else { continue };
        let y = bottom - up * (bottom - top);
        scene.line(&[(left, y), (right, y)], Colour::Grid, 1.0, false);
        scene.text((left - 7.0, y + 4.0), &label, Anchor::End, Colour::Quiet);
    }
    let mut taken = f64::NEG_INFINITY;
    for (value, label) in frame.x.ticks(7) {
        let Some(across) = frame.x.at(value) else { continue };
        let x = left + across * (right - left);
        scene.line(&[(x, top), (x, bottom)], Colour::Grid, 1.0, false);
        let half = font::width(&label, LETTER) / 2.0;
        // A label that would touch its neighbour is left away; its line stays.
        if x - half > taken && x + half < chart.size.0 {
            scene.text((x, bottom + 17.0), &label, Anchor::Middle, Colour::Quiet);
            taken = x + half + 6.0;
        }
    }
    scene.line(&[(left, top), (left, bottom), (right, bottom)], Colour::Quiet, 1.2, false);
    if let Some(up) = chart.level.and_then(|level| frame.y.at(level)) {
        let y = bottom - up * (bottom - top);
        scene.line(&[(left, y), (right, y)], Colour::Text, 1.0, true);
    }
    scene.text(((left + right) / 2.0, bottom + 38.0), &chart.x.label, Anchor::Middle, Colour::Text);
    scene.vertical((16.0, (top + bottom) / 2.0), &chart.y.label, Colour::Text);
}

/// Lines computed in this many steps or more are clearer without signs.
const DENSE: usize = 60;

/// Every how many points a sign stands: distributions have some, to tell engines apart without colour.
fn signs_between(series: &Series, kind: Kind) -> Option<usize> {
    match series.points.len() {
        count if kind == Kind::Percentile => Some((count / 6).max(1)),
        count if count > DENSE => None,
        _ => Some(1),
    }
}

fn draw_series(scene: &mut Scene, frame: &Frame, series: &Series) {
    if let Some(line) = series.line {
        draw_line(scene, frame, series, line);
    }
    let spots: Vec<Spot> =
        series.points.iter().filter_map(|point| frame.spot(point.x, point.y)).collect();
    if series.join != Join::Apart && spots.len() > 1 {
        scene.line(&spots, series.colour, 1.6, series.join == Join::Dashed);
    }
    let stride = signs_between(series, frame.x.kind);
    for (index, point) in series.points.iter().enumerate() {
        let Some(spot) = frame.spot(point.x, point.y) else { continue };
        let ends = point
            .interval
            .and_then(|(low, high)| Some((frame.spot(point.x, low)?, frame.spot(point.x, high)?)));
        if let Some((low, high)) = ends {
            scene.line(&[low, high], series.colour, 1.2, false);
            for end in [low, high] {
                scene.line(
                    &[(end.0 - 3.5, end.1), (end.0 + 3.5, end.1)],
                    series.colour,
                    1.2,
                    false,
                );
            }
        }
        if stride.is_some_and(|stride| index % stride == 0) {
            scene.sign(spot, series.mark, series.colour, series.hollow);
        }
    }
}

/// In small steps: a straight line is a curve on a logarithmic axis.
fn draw_line(scene: &mut Scene, frame: &Frame, series: &Series, line: Line) {
    let xs = || series.points.iter().map(|p| p.x).chain(series.raw.iter().map(|spot| spot.0));
    let (low, high) =
        xs().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    let place = |step: i32| {
        low + (high - low)
            * (f64::from(step) / 48.0).powi(if frame.x.kind == Kind::Log { 3 } else { 1 })
    };
    let inside = |spot: &Spot| spot.1 >= frame.top - 1.0 && spot.1 <= frame.bottom + 1.0;
    let spots: Vec<Spot> =
        (0..=48).map(place).filter_map(|x| frame.spot(x, line.at(x))).filter(inside).collect();
    if spots.len() > 1 {
        scene.line(&spots, series.colour, 1.6, series.join == Join::Dashed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Shape;

    fn chart(kind: Kind, values: &[Spot]) -> Chart {
        let mut series = Series::new("plain", Colour::Engine(0), Mark::Circle);
        series.points = values
            .iter()
            .map(|&(x, y)| Point { x, y, interval: Some((y * 0.9, y * 1.1)) })
            .collect();
        series.raw = values.to_vec();
        let axes =
            (Axis::new("size", kind, Unit::Bytes), Axis::new("time", kind, Unit::Nanoseconds));
        Chart::new("t", "a", axes, vec![series])
    }

    fn signs(scene: &Scene) -> Vec<Spot> {
        let sign =
            |shape: &Shape| if let Shape::Sign { at, .. } = shape { Some(*at) } else { None };
        scene.shapes.iter().filter_map(sign).collect()
    }

    #[test]
    fn higher_values_are_higher_and_everything_is_inside() {
        let scene = chart(Kind::Log, &[(1e6, 1e3), (1e9, 1e6)]).scene();
        let signs = signs(&scene);
        let (first, last) = (signs[1], signs[2]);
        assert!(first.0 < last.0 && first.1 > last.1);
        for (x, y) in signs {
            assert!((0.0..=scene.width).contains(&x) && (0.0..=scene.height).contains(&y));
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
        let scene = chart.scene();
        let signs = signs(&scene);
        let drawn = scene.shapes.iter().find_map(|shape| match shape {
            Shape::Line { points, .. } if points.len() == 49 => Some(points.clone()),
            _ => None,
        });
        let drawn = drawn.unwrap();
        assert!((drawn[0].1 - signs[1].1).abs() < 1e-6 && (drawn[48].1 - signs[2].1).abs() < 1e-6);
    }

    #[test]
    fn one_point_and_no_point_are_drawn() {
        assert!(!chart(Kind::Log, &[(1e6, 3.0)]).scene().shapes.is_empty());
        assert!(!chart(Kind::Linear, &[]).scene().shapes.is_empty());
    }
}
