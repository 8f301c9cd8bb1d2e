//! A drawing as PNG, in its light colours on white, at twice its size.
//!
//! Owns nothing but the way from shapes to pixels (crate tiny-skia); it draws the same shapes as `svg` writes, so no SVG
//! has to be read back and no font has to be there.

use anyhow::{Context, Result};
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash,
    Transform,
};

use super::colour::Colour;
use super::font;
use super::scene::{corners, Anchor, Scene, Shape, Spot};

/// Pixels per unit of the drawing.
pub const DENSITY: u32 = 2;

/// Width and height of the PNG of a scene.
pub fn size(scene: &Scene) -> (u32, u32) {
    let pixels = |length: f64| (length.clamp(1.0, 8000.0).ceil() as u32) * DENSITY;
    (pixels(scene.width), pixels(scene.height))
}

pub fn png(scene: &Scene) -> Result<Vec<u8>> {
    let (width, height) = size(scene);
    let mut canvas = Canvas(Pixmap::new(width, height).context("no memory for a plot")?);
    canvas.0.fill(Color::WHITE);
    for shape in &scene.shapes {
        canvas.draw(shape);
    }
    canvas.0.encode_png().context("cannot encode a plot as PNG")
}

struct Canvas(Pixmap);

impl Canvas {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { points, colour, width, dashed } => {
                let dash = dashed.then(|| StrokeDash::new(vec![6.0, 4.0], 0.0)).flatten();
                self.stroke(way(points, false), *colour, (*width, dash));
            }
            Shape::Area { points, fill, edge } => {
                let outline = way(points, true);
                self.fill(outline.clone(), *fill, 1.0, Transform::identity());
                if let Some(edge) = edge {
                    self.stroke(outline, *edge, (0.7, None));
                }
            }
            Shape::Dots { points, radius, colour, opacity } => {
                for spot in points {
                    self.fill(circle(*spot, *radius), *colour, *opacity, Transform::identity());
                }
            }
            Shape::Sign { at, mark, size, colour, hollow } => {
                let outline = match corners(*mark, *at, *size) {
                    Some(corners) => way(&corners, true),
                    None => circle(*at, *size),
                };
                let (fill, edge, width) = if *hollow {
                    (Colour::Paper, *colour, 1.6)
                } else {
                    (*colour, Colour::Paper, 0.8)
                };
                self.fill(outline.clone(), fill, 1.0, Transform::identity());
                self.stroke(outline, edge, (width, None));
            }
            Shape::Text { at, text, size, colour, anchor, upright } => {
                let shift = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => -font::width(text, *size) / 2.0,
                    Anchor::End => -font::width(text, *size),
                };
                let turn = if *upright { 0.0 } else { -90.0 };
                let place = Transform::from_translate(at.0 as f32, at.1 as f32)
                    .pre_concat(Transform::from_rotate(turn))
                    .pre_translate(shift as f32, 0.0);
                self.fill(font::outline(text, *size), *colour, 1.0, place);
            }
        }
    }

    fn fill(&mut self, outline: Option<Path>, colour: Colour, opacity: f64, place: Transform) {
        if let Some(outline) = outline {
            self.0.fill_path(
                &outline,
                &paint(colour, opacity),
                FillRule::Winding,
                dense(place),
                None,
            );
        }
    }

    fn stroke(
        &mut self,
        outline: Option<Path>,
        colour: Colour,
        (width, dash): (f64, Option<StrokeDash>),
    ) {
        let stroke = Stroke {
            width: width as f32,
            line_cap: LineCap::Butt,
            line_join: LineJoin::Round,
            dash,
            ..Stroke::default()
        };
        if let Some(outline) = outline {
            self.0.stroke_path(
                &outline,
                &paint(colour, 1.0),
                &stroke,
                dense(Transform::identity()),
                None,
            );
        }
    }
}

fn dense(place: Transform) -> Transform {
    place.post_scale(DENSITY as f32, DENSITY as f32)
}

fn paint(colour: Colour, opacity: f64) -> Paint<'static> {
    let colour = colour.pair().0;
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(colour.0, colour.1, colour.2, (opacity * 255.0) as u8);
    paint
}

fn circle((x, y): Spot, radius: f64) -> Option<Path> {
    PathBuilder::from_circle(x as f32, y as f32, radius as f32)
}

fn way(points: &[Spot], closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        if index == 0 {
            builder.move_to(x as f32, y as f32);
        } else {
            builder.line_to(x as f32, y as f32);
        }
    }
    if closed && points.len() > 2 {
        builder.close();
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dark_pixels(scene: &Scene) -> usize {
        let pixmap = Pixmap::decode_png(&png(scene).unwrap()).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), size(scene));
        pixmap.pixels().iter().filter(|pixel| pixel.red() < 128).count()
    }

    #[test]
    fn shapes_and_letters_leave_pixels_and_nothing_leaves_white() {
        let empty = Scene::new(40.0, 20.0, "t", "a");
        assert_eq!(dark_pixels(&empty), 0);
        let mut block = empty.clone();
        block.block((10.0, 5.0), (10.0, 10.0), Colour::Text);
        assert_eq!(dark_pixels(&block), (20 * 20) as usize);
        let mut text = empty.clone();
        text.text((5.0, 15.0), "ab", Anchor::Start, Colour::Text);
        assert!(dark_pixels(&text) > 20);
    }

    #[test]
    fn numbers_that_are_none_do_not_break_a_drawing() {
        let mut scene = Scene::new(40.0, 20.0, "t", "a");
        scene.line(&[(f64::NAN, 1.0), (2.0, f64::INFINITY)], Colour::Text, 1.0, true);
        scene.sign((f64::NAN, 1.0), crate::scene::Mark::Circle, Colour::Text, true);
        assert!(png(&scene).is_ok());
    }
}
