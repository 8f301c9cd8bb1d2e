//! A drawing as SVG: inside the page with colours by variable, or as a file with its own light colours.
//!
//! Owns escaping of text for XML and HTML. Numbers are written with at most two decimals: a report with ten thousand
//! raw samples stays small. No element refers to anything outside.

use std::fmt::Write;

use super::colour::Colour;
use super::scene::{corners, Anchor, Mark, Scene, Shape, Spot};

/// Text that cannot end an element or attribute; control characters, which XML forbids, become spaces.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            control if control.is_control() => safe.push(' '),
            // Not characters of XML 1.0.
            '\u{fffe}' | '\u{ffff}' => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}

/// For the page: themed, with a title and description that screen readers read.
pub fn inline(scene: &Scene, id: &str) -> String {
    let mut out = opening(scene);
    let id = escape(id);
    let _ = write!(
        out,
        " role=\"img\" aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title>",
        escape(&scene.title)
    );
    let _ = write!(out, "<desc id=\"{id}-d\">{}</desc>", escape(&scene.about));
    paint(scene, &Colour::themed, &mut out);
    out + "</svg>"
}

/// For a file: light colours on white.
pub fn file(scene: &Scene) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") + &opening(scene);
    let _ = write!(
        out,
        " role=\"img\"><title>{}</title><desc>{}</desc>",
        escape(&scene.title),
        escape(&scene.about)
    );
    out += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>";
    paint(scene, &|colour: Colour| colour.pair().0.hex(), &mut out);
    out + "</svg>\n"
}

fn opening(scene: &Scene) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"system-ui,'DejaVu Sans',Arial,sans-serif\""
    )
}

fn paint(scene: &Scene, written: &dyn Fn(Colour) -> String, out: &mut String) {
    for shape in &scene.shapes {
        match shape {
            Shape::Line { points, colour, width, dashed } => {
                let dash = if *dashed { " stroke-dasharray=\"6 4\"" } else { "" };
                let (way, colour, width) = (way(points), written(*colour), number(*width));
                let _ = write!(out, "<path d=\"{way}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash}/>");
            }
            Shape::Area { points, fill, edge } => {
                let edge = edge.map_or(String::new(), |colour| {
                    format!(
                        " stroke=\"{}\" stroke-width=\"0.7\" stroke-linejoin=\"round\"",
                        written(colour)
                    )
                });
                let _ =
                    write!(out, "<path d=\"{}Z\" fill=\"{}\"{edge}/>", way(points), written(*fill));
            }
            Shape::Dots { points, radius, colour, opacity } => {
                // A line of no length with round ends is a dot: the shortest way to write many.
                let dots: String = points
                    .iter()
                    .map(|&(x, y)| format!("M{} {}h0", number(x), number(y)))
                    .collect();
                let _ = write!(out, "<path d=\"{dots}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"{opacity}\" stroke-width=\"{}\" stroke-linecap=\"round\"/>", written(*colour), number(radius * 2.0));
            }
            Shape::Sign { at, mark, size, colour, hollow } => {
                sign((*at, *mark, *size), &written(*colour), *hollow, (written(Colour::Paper), out))
            }
            Shape::Text { at: (x, y), text, size, colour, anchor, upright } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let (x, y) = (number(*x), number(*y));
                let turn = if *upright {
                    String::new()
                } else {
                    format!(" transform=\"rotate(-90 {x} {y})\"")
                };
                let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"{anchor}\" fill=\"{}\"{turn}>{}</text>", number(*size), written(*colour), escape(text));
            }
        }
    }
}

fn sign(
    (at, mark, size): (Spot, Mark, f64),
    colour: &str,
    hollow: bool,
    (paper, out): (String, &mut String),
) {
    let (fill, edge) = if hollow { (paper.as_str(), colour) } else { (colour, paper.as_str()) };
    let width = if hollow { "1.6" } else { "0.8" };
    let paint = format!("fill=\"{fill}\" stroke=\"{edge}\" stroke-width=\"{width}\"");
    let _ = match corners(mark, at, size) {
        Some(corners) => write!(out, "<path d=\"{}Z\" {paint}/>", way(&corners)),
        None => write!(
            out,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {paint}/>",
            number(at.0),
            number(at.1),
            number(size)
        ),
    };
}

fn way(points: &[Spot]) -> String {
    let mut out = String::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{} {}", if index == 0 { 'M' } else { 'L' }, number(x), number(y));
    }
    out
}

/// Two decimals at most, no needless zeros. What is not finite would break the file: it becomes 0.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "0".into();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(
            escape("<script>\"a\" & 'b'\u{0}\n"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;  "
        );
        let mut scene = Scene::new(10.0, 10.0, "a<b", "c&d");
        scene.text((1.0, 2.0), "</text><script>", Anchor::Start, Colour::Text);
        for written in [inline(&scene, "x\"y"), file(&scene)] {
            assert!(!written.contains("<script>") && written.contains("a&lt;b"), "{written}");
        }
    }

    #[test]
    fn numbers_are_short_and_always_finite() {
        assert_eq!(number(1.0), "1");
        assert_eq!(number(0.126), "0.13");
        assert_eq!(number(-0.001), "0");
        assert_eq!(number(f64::NAN), "0");
        assert_eq!(number(100.0), "100");
    }

    #[test]
    fn the_page_has_variables_and_the_file_has_colours() {
        let mut scene = Scene::new(10.0, 10.0, "t", "d");
        scene.dots(vec![(1.0, 1.0), (2.5, 2.0)], Colour::Engine(3));
        scene.sign((5.0, 5.0), Mark::Circle, Colour::Engine(0), true);
        assert!(
            inline(&scene, "p").contains("var(--e3)")
                && inline(&scene, "p").contains("M1 1h0M2.5 2h0")
        );
        let file = file(&scene);
        assert!(!file.contains("var(") && file.contains("#c45500") && file.contains("#ffffff"));
    }
}
