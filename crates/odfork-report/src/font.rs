//! Letters without fonts: outlines of the letters a plot uses, and how wide a text is.
//!
//! Owns `glyphs.txt` (taken once from DejaVu Sans; its licence stands there). A machine without fonts draws the same PNG
//! as any other, and margins are computed with the widths of the letters instead of guessed.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use tiny_skia::{Path, PathBuilder, Transform};

/// Units of the outlines in one letter size.
const EM: f64 = 1000.0;

struct Glyph {
    advance: f64,
    outline: &'static str,
}

fn glyphs() -> &'static BTreeMap<char, Glyph> {
    static GLYPHS: OnceLock<BTreeMap<char, Glyph>> = OnceLock::new();
    GLYPHS.get_or_init(|| {
        let lines = include_str!("glyphs.txt").lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(parse).collect()
    })
}

fn parse(line: &'static str) -> Option<(char, Glyph)> {
    let mut fields = line.splitn(3, ' ');
    let letter = char::from_u32(u32::from_str_radix(fields.next()?, 16).ok()?)?;
    let advance = fields.next()?.parse().ok()?;
    Some((letter, Glyph { advance, outline: fields.next().unwrap_or("") }))
}

/// A letter we have no outline for is drawn as a question mark.
fn glyph(letter: char) -> &'static Glyph {
    static NOTHING: Glyph = Glyph { advance: 600.0, outline: "" };
    let glyphs = glyphs();
    glyphs.get(&letter).or_else(|| glyphs.get(&'?')).unwrap_or(&NOTHING)
}

/// How wide a text of letters of `size` is.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|letter| glyph(letter).advance).sum::<f64>() * size / EM
}

/// The outline of a text whose base line begins at the origin, y downwards; None when it is blank.
pub fn outline(text: &str, size: f64) -> Option<Path> {
    let mut builder = PathBuilder::new();
    let mut at = 0.0;
    for letter in text.chars() {
        let glyph = glyph(letter);
        trace(glyph.outline, at, &mut builder);
        at += glyph.advance;
    }
    let scale = (size / EM) as f32;
    builder.finish()?.transform(Transform::from_scale(scale, -scale))
}

/// Follows "M179 729L179 458Q1 2 3 4Z".
fn trace(outline: &str, shift: f64, builder: &mut PathBuilder) {
    let starts: Vec<usize> =
        outline.char_indices().filter(|(_, c)| c.is_ascii_alphabetic()).map(|(i, _)| i).collect();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(outline.len());
        let numbers: Vec<f32> =
            outline[start + 1..end].split(' ').filter_map(|word| word.parse().ok()).collect();
        let x = |place: usize| numbers[place] + shift as f32;
        match (&outline[start..=start], numbers.len()) {
            ("M", 2) => builder.move_to(x(0), numbers[1]),
            ("L", 2) => builder.line_to(x(0), numbers[1]),
            ("Q", 4) => builder.quad_to(x(0), numbers[1], x(2), numbers[3]),
            _ => builder.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_a_plot_has_an_outline() {
        for letter in ('!'..='~').chain("×÷·µ–±²≥°−".chars()) {
            let glyph = glyphs().get(&letter).unwrap_or_else(|| panic!("{letter} is missing"));
            assert!(glyph.advance > 100.0 && glyph.outline.ends_with('Z'), "{letter}");
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
        let bounds = outline("HHH", 100.0).unwrap().bounds();
        assert!(bounds.top() < -60.0 && bounds.bottom().abs() < 1.0);
        assert!(f64::from(bounds.right()) < width("HHH", 100.0));
        assert!(f64::from(bounds.right()) > 0.9 * width("HHH", 100.0));
        assert!(outline("  ", 100.0).is_none());
    }
}
