//! A drawing: SVG elements with colours by purpose, for the page, for a file, and as pixels.
//!
//! Owns the few shapes all plots are made of. Coordinates are pixels of the drawing, y downwards,
//! painted in order. The page takes the drawing with CSS variables, a file its light colours on
//! white; the PNG is that file drawn by resvg at twice the size, with the letters as outlines.

use std::fmt::Write;

use anyhow::{Context, Result};
use maud::{html, Markup, PreEscaped};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use crate::colour::{self, Colour};
use crate::font;

pub type Spot = (f64, f64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// The sign at a measured point. Configurations differ by it, not by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Down,
    Bar,
}

/// In the order of `CONFIGURATIONS`.
pub const MARKS: [Mark; 6] =
    [Mark::Circle, Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Down, Mark::Bar];

#[derive(Clone, Debug, PartialEq)]
struct Text {
    at: Spot,
    text: String,
    size: f64,
    colour: Colour,
    anchor: Anchor,
    upright: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Shape(String),
    Text(Text),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    pub width: f64,
    pub height: f64,
    /// For readers who cannot see the plot: its name, and what it shows.
    title: String,
    about: String,
    items: Vec<Item>,
}

/// Size of ordinary letters in a plot.
pub const LETTER: f64 = 12.0;
/// Pixels of a PNG per unit of the drawing.
const DENSITY: f32 = 2.0;

impl Drawing {
    /// With its title in the upper left corner.
    pub fn new((width, height): (f64, f64), title: &str, about: &str) -> Drawing {
        let (title, about) = (title.to_owned(), about.to_owned());
        let mut drawing = Drawing { width, height, title, about, items: Vec::new() };
        let (text, colour) = (drawing.title.clone(), Colour::Text);
        let (at, anchor) = ((10.0, 20.0), Anchor::Start);
        drawing.items.push(Item::Text(Text {
            at,
            text,
            size: 14.0,
            colour,
            anchor,
            upright: true,
        }));
        drawing
    }

    fn shape(&mut self, shape: Markup) {
        self.items.push(Item::Shape(shape.0));
    }

    pub fn line(&mut self, points: &[Spot], colour: Colour, width: f64, dashed: bool) {
        self.shape(html! {
            polyline points=(spots(points)) fill="none" stroke=(colour.css()) stroke-width=(width)
                stroke-linejoin="round" stroke-dasharray=[dashed.then_some("6 4")] {}
        });
    }

    pub fn area(&mut self, points: &[Spot], fill: Colour, edge: Option<Colour>) {
        let width = edge.map(|_| "0.7");
        self.shape(html! {
            polygon points=(spots(points)) fill=(fill.css()) stroke=[edge.map(Colour::css)]
                stroke-width=[width] stroke-linejoin="round" {}
        });
    }

    /// A rectangle from its upper left corner.
    pub fn block(&mut self, (x, y): Spot, (width, height): (f64, f64), fill: Colour) {
        self.area(&[(x, y), (x + width, y), (x + width, y + height), (x, y + height)], fill, None);
    }

    /// Raw samples: many, small, half transparent.
    pub fn dots(&mut self, points: &[Spot], colour: Colour) {
        if points.is_empty() {
            return;
        }
        // A line of no length with round ends is a dot: the shortest way to write many.
        let dots = points.iter().fold(String::new(), |mut dots, &(x, y)| {
            let _ = write!(dots, "M{} {}h0", number(x), number(y));
            dots
        });
        self.shape(html! {
            path d=(dots) fill="none" stroke=(colour.css()) stroke-opacity="0.35" stroke-width="3.6"
                stroke-linecap="round" {}
        });
    }

    pub fn sign(&mut self, at: Spot, mark: Mark, colour: Colour, hollow: bool) {
        let size = 4.5;
        let (inner, edge, width) = match hollow {
            true => (Colour::Paper, colour, "1.6"),
            false => (colour, Colour::Paper, "0.8"),
        };
        let (fill, stroke) = (inner.css(), edge.css());
        self.shape(match corners(mark, at, size) {
            Some(corners) => html! {
                path d={ "M" (spots(&corners)) "Z" } fill=(fill) stroke=(stroke)
                    stroke-width=(width) {}
            },
            None => html! {
                circle cx=(number(at.0)) cy=(number(at.1)) r=(size) fill=(fill) stroke=(stroke)
                    stroke-width=(width) {}
            },
        });
    }

    pub fn text(&mut self, at: Spot, text: &str, anchor: Anchor, colour: Colour) {
        let text = text.to_owned();
        self.items.push(Item::Text(Text { at, text, size: LETTER, colour, anchor, upright: true }));
    }

    /// Reads upwards: the name of a vertical axis.
    pub fn vertical(&mut self, at: Spot, text: &str, colour: Colour) {
        let (text, anchor, size) = (text.to_owned(), Anchor::Middle, LETTER);
        self.items.push(Item::Text(Text { at, text, size, colour, anchor, upright: false }));
    }

    /// For the page: with variables, and a title and description that screen readers read.
    pub fn inline(&self, id: &str) -> Markup {
        let (title, about) = (format!("{id}-t"), format!("{id}-d"));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(number(self.width))
                height=(number(self.height)) viewBox=(self.view()) font-family=(FAMILY) role="img"
                aria-labelledby={ (title) " " (about) } {
                title id=(title) { (self.title) }
                desc id=(about) { (self.about) }
                (self.items(Text::element))
            }
        }
    }

    /// A file of its own, with light colours on white.
    pub fn file(&self) -> String {
        self.alone(Text::element)
    }

    fn alone(&self, letters: fn(&Text) -> Markup) -> String {
        let drawing = html! {
            (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
            svg xmlns="http://www.w3.org/2000/svg" width=(number(self.width))
                height=(number(self.height)) viewBox=(self.view()) font-family=(FAMILY) role="img" {
                title { (self.title) }
                desc { (self.about) }
                rect width="100%" height="100%" fill="#ffffff" {}
                (self.items(letters))
            }
        };
        clean(&colour::plain(&drawing.0))
    }

    pub fn png(&self) -> Result<Vec<u8>> {
        let tree = Tree::from_str(&self.alone(Text::outline), &Options::default())
            .context("a plot cannot be read back")?;
        let pixels = |length: f64| length.clamp(1.0, 8000.0).ceil() as u32 * DENSITY as u32;
        let mut pixmap =
            Pixmap::new(pixels(self.width), pixels(self.height)).context("no memory for a plot")?;
        resvg::render(&tree, Transform::from_scale(DENSITY, DENSITY), &mut pixmap.as_mut());
        pixmap.encode_png().context("cannot encode a plot as PNG")
    }

    fn view(&self) -> String {
        format!("0 0 {} {}", number(self.width), number(self.height))
    }

    fn items(&self, letters: fn(&Text) -> Markup) -> Markup {
        let write = |item: &Item| match item {
            Item::Shape(shape) => shape.clone(),
            Item::Text(text) => letters(text).0,
        };
        PreEscaped(self.items.iter().map(write).collect())
    }
}

const FAMILY: &str = "system-ui,'DejaVu Sans',Arial,sans-serif";

impl Text {
    fn element(&self) -> Markup {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (number(self.at.0), number(self.at.1));
        let turn = (!self.upright).then(|| format!("rotate(-90 {x} {y})"));
        html! {
            text x=(x) y=(y) font-size=(self.size) text-anchor=(anchor) fill=(self.colour.css())
                transform=[turn] { (self.text) }
        }
    }

    /// The same as a path: no font has to be there.
    fn outline(&self) -> Markup {
        let width = font::width(&self.text, self.size);
        let shift = match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        let (x, y) = (number(self.at.0), number(self.at.1));
        let turn = if self.upright { 0 } else { -90 };
        let place = format!("translate({x} {y}) rotate({turn}) translate({})", number(shift));
        let outline = font::outline(&self.text, self.size);
        html! { path d=(outline) transform=(place) fill=(self.colour.css()) {} }
    }
}

/// Corners of a mark around a spot; None for a circle.
fn corners(mark: Mark, (x, y): Spot, size: f64) -> Option<Vec<Spot>> {
    let corners: &[Spot] = match mark {
        Mark::Circle => return None,
        Mark::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        Mark::Triangle => &[(0.0, -1.15), (1.05, 0.85), (-1.05, 0.85)],
        Mark::Down => &[(0.0, 1.15), (1.05, -0.85), (-1.05, -0.85)],
        Mark::Diamond => &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
        Mark::Bar => &[(-1.1, -0.4), (1.1, -0.4), (1.1, 0.4), (-1.1, 0.4)],
    };
    Some(corners.iter().map(|(dx, dy)| (x + dx * size, y + dy * size)).collect())
}

fn spots(points: &[Spot]) -> String {
    let spot = |(x, y): &Spot| format!("{} {}", number(*x), number(*y));
    points.iter().map(spot).collect::<Vec<_>>().join(" ")
}

/// Two decimals at most, no needless zeros. What is not finite would break the file: it becomes 0.
fn number(value: f64) -> f64 {
    // Adding zero turns -0 into 0.
    if value.is_finite() {
        (value * 100.0).round() / 100.0 + 0.0
    } else {
        0.0
    }
}

/// Control characters come from words of sample files; XML forbids them, and two more. They become
/// spaces.
pub fn clean(text: &str) -> String {
    text.replace(|c: char| c != '\n' && c.is_control() || c == '\u{fffe}' || c == '\u{ffff}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Drawing {
        Drawing { title: "t".into(), ..Drawing::new((40.0, 20.0), "", "a") }
    }

    fn dark_pixels(drawing: &Drawing) -> usize {
        let pixmap = Pixmap::decode_png(&drawing.png().unwrap()).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), (80, 40));
        pixmap.pixels().iter().filter(|pixel| pixel.red() < 128).count()
    }

    #[test]
    fn shapes_and_letters_leave_pixels_and_nothing_leaves_white() {
        assert_eq!(dark_pixels(&empty()), 0);
        let mut block = empty();
        block.block((10.0, 5.0), (10.0, 10.0), Colour::Text);
        assert_eq!(dark_pixels(&block), 20 * 20);
        let mut text = empty();
        text.text((5.0, 15.0), "ab", Anchor::Start, Colour::Text);
        assert!(dark_pixels(&text) > 20);
    }

    #[test]
    fn numbers_that_are_none_do_not_break_a_drawing() {
        let mut drawing = empty();
        drawing.line(&[(f64::NAN, 1.0), (2.0, f64::INFINITY)], Colour::Text, 1.0, true);
        drawing.sign((f64::NAN, 1.0), Mark::Circle, Colour::Text, true);
        assert!(drawing.png().is_ok());
    }

    #[test]
    fn marks_are_centred_and_differ() {
        for mark in MARKS.into_iter().skip(1) {
            let corners = corners(mark, (10.0, 20.0), 4.0).unwrap();
            let any = |wanted: fn(&Spot) -> bool| corners.iter().any(wanted);
            assert!(any(|(x, _)| *x > 10.0) && any(|(x, _)| *x < 10.0));
            assert!(any(|(_, y)| *y > 20.0) && any(|(_, y)| *y < 20.0));
        }
        assert_ne!(corners(Mark::Triangle, (0.0, 0.0), 1.0), corners(Mark::Down, (0.0, 0.0), 1.0));
        assert_eq!(corners(Mark::Circle, (0.0, 0.0), 1.0), None);
    }

    #[test]
    fn no_dots_are_no_shape() {
        let mut drawing = empty();
        drawing.dots(&[], Colour::Text);
        assert_eq!(drawing, empty());
    }

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(
            html! { b title=("<\"&") { (clean("<script>\"a\" & 'b'\u{0}\u{b}")) } }.0,
            "<b title=\"&lt;&quot;&amp;\">&lt;script&gt;&quot;a&quot; &amp; 'b'  </b>"
        );
        let mut drawing = Drawing::new((10.0, 10.0), "a<b", "c&d");
        drawing.text((1.0, 2.0), "</text><script>\u{1}", Anchor::Start, Colour::Text);
        for written in [drawing.inline("x\"y").0, drawing.file()] {
            assert!(!written.contains("<script>") && written.contains("a&lt;b"), "{written}");
        }
        assert!(!drawing.file().contains('\u{1}'));
    }

    #[test]
    fn numbers_are_short_and_always_finite() {
        let written = |value: f64| number(value).to_string();
        assert_eq!(written(1.0), "1");
        assert_eq!(written(0.126), "0.13");
        assert_eq!(written(-0.001), "0");
        assert_eq!(written(f64::NAN), "0");
        assert_eq!(written(100.0), "100");
    }

    #[test]
    fn the_page_has_variables_and_the_file_has_colours() {
        let mut drawing = Drawing::new((10.0, 10.0), "t", "d");
        drawing.dots(&[(1.0, 1.0), (2.5, 2.0)], Colour::Configuration(3));
        drawing.sign((5.0, 5.0), Mark::Circle, Colour::Configuration(0), true);
        let page = drawing.inline("p").0;
        assert!(page.contains("var(--e3)") && page.contains("M1 1h0M2.5 2h0"));
        let file = drawing.file();
        assert!(!file.contains("var(") && file.contains("#c45500") && file.contains("#ffffff"));
    }
}
