//! Named rows with a bar or a point each, from left to right: times of few kinds, shares of a profile.
//!
//! Owns the drawing. Bars start at zero on a linear axis; on a logarithmic axis, which has no zero, a row is a point.

use super::colour::Colour;
use super::font;
use super::scale::{Kind, Scale};
use super::scene::{Anchor, Mark, Scene, LETTER};
use odfork_samples::unit::Unit;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub label: String,
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    pub raw: Vec<f64>,
    pub colour: Colour,
    pub mark: Mark,
    /// Published.
    pub hollow: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    pub title: String,
    pub about: String,
    pub label: String,
    pub kind: Kind,
    pub unit: Unit,
    pub rows: Vec<Row>,
}

const WIDTH: f64 = 720.0;
const STEP: f64 = 26.0;
const TOP: f64 = 42.0;

struct Track {
    left: f64,
    right: f64,
    scale: Scale,
}

impl Track {
    fn at(&self, value: f64) -> Option<f64> {
        self.scale.at(value).map(|share| self.left + share * (self.right - self.left))
    }
}

impl Bars {
    pub fn scene(&self) -> Scene {
        let bottom = TOP + STEP * self.rows.len() as f64 + 6.0;
        let mut scene = Scene::new(WIDTH, bottom + 48.0, &self.title, &self.about);
        scene.label((10.0, 20.0), &self.title, Anchor::Start, (14.0, Colour::Text));
        let values = self.rows.iter().flat_map(|row| {
            let (low, high) = row.interval.unwrap_or((row.value, row.value));
            row.raw.iter().copied().chain([low, row.value, high])
        });
        let scale = Scale::around(self.kind, self.unit, values, true);
        let widest =
            self.rows.iter().map(|row| font::width(&row.label, LETTER)).fold(20.0, f64::max);
        let track = Track { left: widest.min(WIDTH * 0.5) + 22.0, right: WIDTH - 84.0, scale };
        self.draw_axis(&mut scene, &track, bottom);
        for (index, row) in self.rows.iter().enumerate() {
            self.draw_row(&mut scene, &track, (row, TOP + STEP * (index as f64 + 0.5)));
        }
        scene
    }

    fn draw_axis(&self, scene: &mut Scene, track: &Track, bottom: f64) {
        let mut taken = f64::NEG_INFINITY;
        for (value, label) in track.scale.ticks(6) {
            let Some(x) = track.at(value) else { continue };
            scene.line(&[(x, TOP), (x, bottom)], Colour::Grid, 1.0, false);
            let half = font::width(&label, LETTER) / 2.0;
            if x - half > taken {
                scene.text((x, bottom + 16.0), &label, Anchor::Middle, Colour::Quiet);
                taken = x + half + 6.0;
            }
        }
        scene.text(
            ((track.left + track.right) / 2.0, bottom + 37.0),
            &self.label,
            Anchor::Middle,
            Colour::Text,
        );
    }

    fn draw_row(&self, scene: &mut Scene, track: &Track, (row, y): (&Row, f64)) {
        scene.text((track.left - 10.0, y + 4.0), &row.label, Anchor::End, Colour::Text);
        let Some(x) = track.at(row.value) else { return };
        let bar = self.kind == Kind::Linear && !row.hollow;
        let zero = track.at(0.0).unwrap_or(track.left);
        if bar {
            scene.block((zero, y - 7.0), ((x - zero).max(0.5), 14.0), row.colour);
        }
        let dots = row.raw.iter().filter_map(|value| Some((track.at(*value)?, y)));
        scene.dots(dots.collect(), if bar { Colour::Text } else { row.colour });
        let mut end = x;
        if let Some((low, high)) =
            row.interval.and_then(|(a, b)| Some((track.at(a)?, track.at(b)?)))
        {
            let colour = if bar { Colour::Text } else { row.colour };
            scene.line(&[(low, y), (high, y)], colour, 1.4, false);
            for side in [low, high] {
                scene.line(&[(side, y - 4.0), (side, y + 4.0)], colour, 1.4, false);
            }
            end = end.max(high);
        }
        if !bar {
            scene.sign((x, y), row.mark, row.colour, row.hollow);
        }
        end = row.raw.iter().filter_map(|value| track.at(*value)).fold(end, f64::max);
        scene.text((end + 9.0, y + 4.0), &self.unit.write(row.value), Anchor::Start, Colour::Quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Shape;

    fn bars(kind: Kind, hollow: bool) -> Bars {
        let row = |label: &str, value: f64| Row {
            label: label.into(),
            value,
            interval: Some((value * 0.9, value * 1.1)),
            raw: vec![value * 2.0],
            colour: Colour::Engine(0),
            mark: Mark::Circle,
            hollow,
        };
        let rows = vec![row("a", 10.0), row("b", 30.0)];
        Bars {
            title: "t".into(),
            about: "a".into(),
            label: "time".into(),
            kind,
            unit: Unit::Nanoseconds,
            rows,
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let shapes = bars(Kind::Linear, false).scene().shapes;
        let length = |shape: &Shape| match shape {
            Shape::Area { points, .. } => Some(points[1].0 - points[0].0),
            _ => None,
        };
        let lengths: Vec<f64> = shapes.iter().filter_map(length).collect();
        assert!((lengths[1] / lengths[0] - 3.0).abs() < 1e-6, "{lengths:?}");
    }

    #[test]
    fn a_log_axis_has_points_and_no_bars() {
        let shapes = bars(Kind::Log, false).scene().shapes;
        assert!(!shapes.iter().any(|shape| matches!(shape, Shape::Area { .. })));
        assert_eq!(shapes.iter().filter(|shape| matches!(shape, Shape::Sign { .. })).count(), 2);
    }

    #[test]
    fn published_rows_are_hollow_and_the_value_is_written() {
        let shapes = bars(Kind::Linear, true).scene().shapes;
        assert!(shapes.iter().any(|shape| matches!(shape, Shape::Sign { hollow: true, .. })));
        assert!(shapes
            .iter()
            .any(|shape| matches!(shape, Shape::Text { text, .. } if text == "30 ns")));
    }
}
