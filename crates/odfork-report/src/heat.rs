//! A grid of coloured cells with their numbers written in them: relative change over two
//! parameters.
//!
//! Owns the drawing. Colours diverge from nearly white at no change; the number stands in each
//! cell, so the map can be read without colours.

use crate::colour::{diverge, readable_on, Colour};
use crate::drawing::{Anchor, Drawing, LETTER};
use crate::font;
use odfork_samples::unit::{digits, trim};

/// `cells[row][column]`: relative change, -0.5 for half the time; None: not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    pub title: String,
    pub about: String,
    pub rows: (String, Vec<String>),
    pub columns: (String, Vec<String>),
    pub cells: Vec<Vec<Option<f64>>>,
}

const CELL: (f64, f64) = (68.0, 34.0);
const TOP: f64 = 74.0;

impl Heat {
    pub fn drawing(&self) -> Drawing {
        let widths = self.rows.1.iter().map(|label| font::width(label, LETTER));
        let left = widths.fold(30.0, f64::max) + 20.0;
        let needed = font::width(&self.title, 14.0) + 24.0;
        let width = (left + CELL.0 * self.columns.1.len() as f64 + 14.0).max(needed);
        let height = TOP + CELL.1 * self.rows.1.len() as f64 + 16.0;
        let mut drawing = Drawing::new((width, height), &self.title, &self.about);
        let axes = format!("{}; across: {}", self.rows.0, self.columns.0);
        drawing.text((10.0, 42.0), &axes, Anchor::Start, Colour::Quiet);
        for (column, label) in self.columns.1.iter().enumerate() {
            let x = left + CELL.0 * (column as f64 + 0.5);
            drawing.text((x, TOP - 8.0), label, Anchor::Middle, Colour::Text);
        }
        for (row, label) in self.rows.1.iter().enumerate() {
            let y = TOP + CELL.1 * row as f64;
            let middle = y + CELL.1 / 2.0 + 4.0;
            drawing.text((left - 8.0, middle), label, Anchor::End, Colour::Text);
            for column in 0..self.columns.1.len() {
                let cell = self.cells.get(row).and_then(|cells| *cells.get(column)?);
                draw_cell(&mut drawing, (left + CELL.0 * column as f64, y), cell);
            }
        }
        drawing
    }
}

fn draw_cell(drawing: &mut Drawing, (x, y): (f64, f64), cell: Option<f64>) {
    let middle = (x + CELL.0 / 2.0, y + CELL.1 / 2.0 + 4.0);
    let Some(change) = cell.filter(|change| change.is_finite()) else {
        drawing.text(middle, "–", Anchor::Middle, Colour::Quiet);
        return;
    };
    let colour = diverge(change);
    let size = (CELL.0 - 2.0, CELL.1 - 2.0);
    drawing.block((x + 1.0, y + 1.0), size, Colour::Fixed(colour));
    let letters = Colour::Fixed(readable_on(colour));
    drawing.text(middle, &percent(change), Anchor::Middle, letters);
}

/// "+5.2 %", "−98 %".
pub fn percent(change: f64) -> String {
    let value = (change * 1000.0).round() / 10.0;
    let sign = if value > 0.0 { "+" } else { "" };
    let value = if value.abs() >= 10.0 { value.round() } else { value };
    format!("{sign}{} %", trim(&digits(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_sign() {
        assert_eq!(percent(-0.98), "−98 %");
        assert_eq!(percent(0.052), "+5.2 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn every_cell_has_a_colour_or_a_dash() {
        let heat = Heat {
            title: "t".into(),
            about: "a".into(),
            rows: ("r".into(), vec!["1".into(), "2".into()]),
            columns: ("c".into(), vec!["1".into(), "2".into()]),
            cells: vec![vec![Some(-1.0), Some(0.3)], vec![Some(0.0)]],
        };
        let svg = heat.drawing().file();
        assert_eq!(svg.matches("<polygon").count(), 3);
        assert_eq!(svg.matches(">–</text>").count(), 1);
    }
}
