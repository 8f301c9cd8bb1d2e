//! A drawing: a list of shapes with colours by purpose. `svg` and `raster` write it out; neither knows what it shows.
//!
//! Owns the few shapes all plots are made of. Coordinates are pixels of the drawing, y downwards, painted in order.

use super::colour::Colour;

pub type Spot = (f64, f64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// The sign at a measured point. Engines differ by it, not by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Down,
    Bar,
}

/// In the order of `colour::CONFIGURATIONS`.
pub const MARKS: [Mark; 6] =
    [Mark::Circle, Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Down, Mark::Bar];

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line {
        points: Vec<Spot>,
        colour: Colour,
        width: f64,
        dashed: bool,
    },
    Area {
        points: Vec<Spot>,
        fill: Colour,
        edge: Option<Colour>,
    },
    /// Raw samples: many, small, half transparent.
    Dots {
        points: Vec<Spot>,
        radius: f64,
        colour: Colour,
        opacity: f64,
    },
    Sign {
        at: Spot,
        mark: Mark,
        size: f64,
        colour: Colour,
        hollow: bool,
    },
    Text {
        at: Spot,
        text: String,
        size: f64,
        colour: Colour,
        anchor: Anchor,
        upright: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    pub width: f64,
    pub height: f64,
    /// For readers who cannot see the plot: its name, and what it shows.
    pub title: String,
    pub about: String,
    pub shapes: Vec<Shape>,
}

/// Size of ordinary letters in a plot.
pub const LETTER: f64 = 12.0;

impl Scene {
    pub fn new(width: f64, height: f64, title: &str, about: &str) -> Scene {
        Scene { width, height, title: title.into(), about: about.into(), shapes: Vec::new() }
    }

    pub fn line(&mut self, points: &[Spot], colour: Colour, width: f64, dashed: bool) {
        self.shapes.push(Shape::Line { points: points.to_vec(), colour, width, dashed });
    }

    pub fn area(&mut self, points: &[Spot], fill: Colour, edge: Option<Colour>) {
        self.shapes.push(Shape::Area { points: points.to_vec(), fill, edge });
    }

    /// A rectangle from its upper left corner.
    pub fn block(&mut self, (x, y): Spot, (width, height): (f64, f64), fill: Colour) {
        self.area(&[(x, y), (x + width, y), (x + width, y + height), (x, y + height)], fill, None);
    }

    pub fn dots(&mut self, points: Vec<Spot>, colour: Colour) {
        if !points.is_empty() {
            self.shapes.push(Shape::Dots { points, radius: 1.8, colour, opacity: 0.35 });
        }
    }

    pub fn sign(&mut self, at: Spot, mark: Mark, colour: Colour, hollow: bool) {
        self.shapes.push(Shape::Sign { at, mark, size: 4.5, colour, hollow });
    }

    pub fn text(&mut self, at: Spot, text: &str, anchor: Anchor, colour: Colour) {
        self.label(at, text, anchor, (LETTER, colour));
    }

    pub fn label(&mut self, at: Spot, text: &str, anchor: Anchor, (size, colour): (f64, Colour)) {
        self.shapes.push(Shape::Text {
            at,
            text: text.into(),
            size,
            colour,
            anchor,
            upright: true,
        });
    }

    /// Reads upwards: the name of a vertical axis.
    pub fn vertical(&mut self, at: Spot, text: &str, colour: Colour) {
        let (anchor, size) = (Anchor::Middle, LETTER);
        self.shapes.push(Shape::Text {
            at,
            text: text.into(),
            size,
            colour,
            anchor,
            upright: false,
        });
    }
}

/// Corners of a mark around a spot; None for a circle.
pub fn corners(mark: Mark, (x, y): Spot, size: f64) -> Option<Vec<Spot>> {
    let at = |dx: f64, dy: f64| (x + dx * size, y + dy * size);
    Some(match mark {
        Mark::Circle => return None,
        Mark::Square => vec![at(-0.9, -0.9), at(0.9, -0.9), at(0.9, 0.9), at(-0.9, 0.9)],
        Mark::Triangle => vec![at(0.0, -1.15), at(1.05, 0.85), at(-1.05, 0.85)],
        Mark::Down => vec![at(0.0, 1.15), at(1.05, -0.85), at(-1.05, -0.85)],
        Mark::Diamond => vec![at(0.0, -1.25), at(1.25, 0.0), at(0.0, 1.25), at(-1.25, 0.0)],
        Mark::Bar => vec![at(-1.1, -0.4), at(1.1, -0.4), at(1.1, 0.4), at(-1.1, 0.4)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_centred_and_differ() {
        for mark in MARKS.into_iter().skip(1) {
            let corners = corners(mark, (10.0, 20.0), 4.0).unwrap();
            assert!(
                corners.iter().any(|(x, _)| *x > 10.0) && corners.iter().any(|(x, _)| *x < 10.0)
            );
            assert!(
                corners.iter().any(|(_, y)| *y > 20.0) && corners.iter().any(|(_, y)| *y < 20.0)
            );
        }
        assert_ne!(corners(Mark::Triangle, (0.0, 0.0), 1.0), corners(Mark::Down, (0.0, 0.0), 1.0));
        assert_eq!(corners(Mark::Circle, (0.0, 0.0), 1.0), None);
    }

    #[test]
    fn no_dots_are_no_shape() {
        let mut scene = Scene::new(10.0, 10.0, "t", "a");
        scene.dots(Vec::new(), Colour::Text);
        assert!(scene.shapes.is_empty());
    }
}
