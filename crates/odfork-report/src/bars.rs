//! Named rows with a bar or a point each, from left to right: times of few kinds, shares of a
//! profile.
//!
//! Owns the drawing. Bars start at zero on a linear axis; on a logarithmic axis, which has no zero,
//! a row is a point.

use crate::axis::{Kind, Scale, Track};
use crate::blocks::Figure;
use crate::chart::{error_bar, Style};
use crate::colour::Colour;
use crate::drawing::{Anchor, Drawing, LETTER};
use crate::font;
use odfork_samples::digest::Point;
use odfork_samples::unit::Unit;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub label: String,
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    pub raw: Vec<f64>,
    pub style: Style,
    /// Published.
    pub hollow: bool,
}

impl Row {
    pub fn new(label: String, value: f64, style: Style) -> Row {
        Row { label, value, interval: None, raw: Vec::new(), style, hollow: false }
    }

    pub fn measured(label: String, point: &Point) -> Row {
        let estimate = point.estimate();
        Row {
            interval: estimate.interval,
            raw: point.values(),
            ..Row::new(label, estimate.value, Style::of_configuration(&point.configuration))
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bars<'a> {
    pub title: &'a str,
    pub about: &'a str,
    pub caption: &'a str,
    pub label: &'a str,
    pub kind: Kind,
    pub unit: Unit,
    pub rows: Vec<Row>,
}

const WIDTH: f64 = 720.0;
const STEP: f64 = 26.0;
const TOP: f64 = 42.0;

impl Bars<'_> {
    pub fn figure(&self, name: &str) -> Figure {
        Figure::new(name, self.caption, self.drawing())
    }

    fn drawing(&self) -> Drawing {
        let bottom = TOP + STEP * self.rows.len() as f64 + 6.0;
        let mut drawing = Drawing::new((WIDTH, bottom + 48.0), self.title, self.about);
        let values = self.rows.iter().flat_map(|row| {
            let (low, high) = row.interval.unwrap_or((row.value, row.value));
            row.raw.iter().copied().chain([low, row.value, high])
        });
        let scale = Scale::around(self.kind, self.unit, values, true);
        let labels = self.rows.iter().map(|row| font::width(&row.label, LETTER));
        let low = labels.fold(20.0, f64::max).min(WIDTH * 0.5) + 22.0;
        let track = Track { scale, low, high: WIDTH - 84.0 };
        track.draw_below(&mut drawing, (TOP, bottom), 6, self.label);
        for (index, row) in self.rows.iter().enumerate() {
            self.draw_row(&mut drawing, &track, (row, TOP + STEP * (index as f64 + 0.5)));
        }
        drawing
    }

    fn draw_row(&self, drawing: &mut Drawing, track: &Track, (row, y): (&Row, f64)) {
        drawing.text((track.low - 10.0, y + 4.0), &row.label, Anchor::End, Colour::Text);
        let Some(x) = track.at(row.value) else { return };
        let bar = self.kind == Kind::Linear && !row.hollow;
        let zero = track.at(0.0).unwrap_or(track.low);
        if bar {
            drawing.block((zero, y - 7.0), ((x - zero).max(0.5), 14.0), row.style.colour);
        }
        let over = if bar { Colour::Text } else { row.style.colour };
        let raw: Vec<f64> = row.raw.iter().filter_map(|value| track.at(*value)).collect();
        drawing.dots(&raw.iter().map(|x| (*x, y)).collect::<Vec<_>>(), over);
        let mut end = raw.into_iter().fold(x, f64::max);
        let ends = row.interval.and_then(|(low, high)| Some((track.at(low)?, track.at(high)?)));
        if let Some((low, high)) = ends {
            error_bar(drawing, ((low, y), (high, y)), over);
            end = end.max(high);
        }
        if !bar {
            drawing.sign((x, y), row.style.mark, row.style.colour, row.hollow);
        }
        let value = self.unit.write(row.value);
        drawing.text((end + 9.0, y + 4.0), &value, Anchor::Start, Colour::Quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(kind: Kind, hollow: bool) -> String {
        let row = |label: &str, value: f64| Row {
            interval: Some((value * 0.9, value * 1.1)),
            raw: vec![value * 2.0],
            hollow,
            ..Row::new(label.into(), value, Style::of_configuration("plain"))
        };
        let rows = vec![row("a", 10.0), row("b", 30.0)];
        let (title, about, caption, label, unit) = ("t", "a", "c", "time", Unit::Nanoseconds);
        Bars { title, about, caption, label, kind, unit, rows }.drawing().file()
    }

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let svg = drawn(Kind::Linear, false);
        let length = |polygon: &str| {
            let numbers = polygon.split([' ', '"']).filter_map(|word| word.parse::<f64>().ok());
            let numbers: Vec<f64> = numbers.collect();
            numbers[2] - numbers[0]
        };
        let lengths: Vec<f64> = svg.split("<polygon").skip(1).map(length).collect();
        assert!((lengths[1] / lengths[0] - 3.0).abs() < 1e-3, "{lengths:?}");
    }

    #[test]
    fn a_log_axis_has_points_and_no_bars() {
        let svg = drawn(Kind::Log, false);
        assert!(!svg.contains("<polygon"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn published_rows_are_hollow_and_the_value_is_written() {
        let svg = drawn(Kind::Linear, true);
        assert!(svg.contains("r=\"4.5\" fill=\"#ffffff\"") && svg.contains(">30 ns</text>"));
    }
}
