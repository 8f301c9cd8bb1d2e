//! The font of PNG plots: how wide a text is, and its outline as an SVG path.
//!
//! The font comes with the program (crate dejavu), so a machine without fonts draws the same plots
//! as any other, and margins are computed from the letters instead of guessed.

use std::fmt::Write;
use std::sync::OnceLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

fn face() -> &'static Face<'static> {
    static FACE: OnceLock<Face<'static>> = OnceLock::new();
    FACE.get_or_init(|| Face::parse(dejavu::sans::regular(), 0).expect("the font is built in"))
}

/// A letter the font does not have is drawn as a question mark.
fn glyph(letter: char) -> GlyphId {
    let face = face();
    face.glyph_index(letter).or_else(|| face.glyph_index('?')).unwrap_or_default()
}

fn advance(glyph: GlyphId) -> f64 {
    f64::from(face().glyph_hor_advance(glyph).unwrap_or(0))
}

/// How wide a text of letters of `size` is.
pub fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(|letter| advance(glyph(letter))).sum();
    units * size / f64::from(face().units_per_em())
}

/// The outline of a text whose base line begins at the origin, y downwards, as the data of an SVG
/// path.
pub fn outline(text: &str, size: f64) -> String {
    let scale = size / f64::from(face().units_per_em());
    let mut path = Path { data: String::new(), scale, x: 0.0 };
    for glyph in text.chars().map(glyph) {
        face().outline_glyph(glyph, &mut path);
        path.x += advance(glyph);
    }
    path.data
}

struct Path {
    data: String,
    scale: f64,
    /// Where the letter begins, in units of the font.
    x: f64,
}

impl Path {
    fn put(&mut self, command: char, spots: &[(f32, f32)]) {
        self.data.push(command);
        for &(x, y) in spots {
            let (x, y) = ((self.x + f64::from(x)) * self.scale, -f64::from(y) * self.scale);
            let _ = write!(self.data, "{x:.2} {y:.2} ");
        }
    }
}

impl OutlineBuilder for Path {
    fn move_to(&mut self, x: f32, y: f32) {
        self.put('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.put('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.put('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.put('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.data.push('Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_a_plot_has_an_outline() {
        for letter in ('!'..='~').chain("×÷·µ–±²≥°−".chars()) {
            let outline = outline(&letter.to_string(), 1000.0);
            assert!(
                width(&letter.to_string(), 1000.0) > 100.0 && outline.ends_with('Z'),
                "{letter}"
            );
            assert!(face().glyph_index(letter).is_some(), "{letter} is missing");
        }
    }

    #[test]
    fn width_grows_with_size_and_letters() {
        assert!(width("WW", 10.0) > width("ii", 10.0));
        assert!((width("abc", 20.0) - 2.0 * width("abc", 10.0)).abs() < 1e-9);
        assert_eq!(width("", 10.0), 0.0);
        assert_eq!(width("中", 10.0), width("?", 10.0));
    }

    #[test]
    fn an_outline_lies_above_the_base_line_and_is_as_wide_as_told() {
        let outline = outline("HHH", 100.0);
        let numbers =
            outline.split(|c: char| c.is_alphabetic() || c == ' ').filter(|n| !n.is_empty());
        let numbers: Vec<f64> = numbers.map(|number| number.parse().unwrap()).collect();
        let extreme = |from: usize, sign: f64| {
            numbers.iter().skip(from).step_by(2).fold(f64::MIN, |most, n| most.max(sign * n)) * sign
        };
        assert!(extreme(1, -1.0) < -60.0 && extreme(1, 1.0).abs() < 1.0);
        assert!(extreme(0, 1.0) < width("HHH", 100.0));
        assert!(extreme(0, 1.0) > 0.9 * width("HHH", 100.0));
        assert!(super::outline("  ", 100.0).is_empty());
    }
}
