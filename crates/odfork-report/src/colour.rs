//! Colours by purpose, in light and in dark.
//!
//! Owns the palette. The hues are those of Okabe and Ito, darkened for white paper and lightened
//! for a dark page, so that they stay apart for colour-blind readers and keep 3:1 against the page.
//! A drawing names CSS variables; `plain` writes the light values in their place, for a file of its
//! own.

use odfork_samples::configurations::{rank, CONFIGURATIONS};

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub u32);

impl Rgb {
    pub fn hex(self) -> String {
        format!("#{:06x}", self.0)
    }

    fn channels(self) -> [f64; 3] {
        [16, 8, 0].map(|shift| f64::from(self.0 >> shift & 0xff))
    }

    /// Between two colours, `share` of the way from `self`.
    fn mix(self, other: Rgb, share: f64) -> Rgb {
        let both = self.channels().into_iter().zip(other.channels());
        Rgb(both.fold(0, |mixed, (a, b)| mixed << 8 | (a + (b - a) * share).round() as u32))
    }

    /// WCAG 2 relative luminance.
    fn luminance(self) -> f64 {
        let [red, green, blue] = self.channels().map(|value| match value / 255.0 {
            share if share <= 0.04045 => share / 12.92,
            share => ((share + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// WCAG 2 contrast of two colours, 1 to 21.
    pub fn contrast(self, other: Rgb) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }
}

/// A colour by its purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Colour {
    Paper,
    Text,
    Quiet,
    Grid,
    /// Position in `CONFIGURATIONS`.
    Configuration(usize),
    /// Series that are not configurations: fractions, sources, read mixes.
    Series(usize),
    /// The same in both themes.
    Fixed(Rgb),
}

/// CSS variable, light, dark.
const PALETTE: [(&str, Rgb, Rgb); 15] = [
    ("paper", Rgb(0xffffff), Rgb(0x16181c)),
    ("text", Rgb(0x1c1e21), Rgb(0xececea)),
    ("quiet", Rgb(0x5a5f66), Rgb(0xa9afb7)),
    ("grid", Rgb(0xe0e2e5), Rgb(0x33373d)),
    ("e0", Rgb(0x4a4a4a), Rgb(0xd0d0d0)),
    ("e1", Rgb(0x006ba6), Rgb(0x5cb8f0)),
    ("e2", Rgb(0x00805d), Rgb(0x2cc79b)),
    ("e3", Rgb(0xc45500), Rgb(0xff924a)),
    ("e4", Rgb(0xa84382), Rgb(0xe69fc9)),
    ("e5", Rgb(0x808080), Rgb(0x969696)),
    ("s0", Rgb(0x006ba6), Rgb(0x5cb8f0)),
    ("s1", Rgb(0xc45500), Rgb(0xff924a)),
    ("s2", Rgb(0x00805d), Rgb(0x2cc79b)),
    ("s3", Rgb(0xa84382), Rgb(0xe69fc9)),
    ("s4", Rgb(0x4a4a4a), Rgb(0xd0d0d0)),
];

impl Colour {
    pub fn of_configuration(name: &str) -> Colour {
        Colour::Configuration(rank(name).min(CONFIGURATIONS.len() - 1))
    }

    fn entry(self) -> Result<(&'static str, Rgb, Rgb), Rgb> {
        Ok(PALETTE[match self {
            Colour::Paper => 0,
            Colour::Text => 1,
            Colour::Quiet => 2,
            Colour::Grid => 3,
            Colour::Configuration(index) => 4 + index % 6,
            Colour::Series(index) => 10 + index % 5,
            Colour::Fixed(colour) => return Err(colour),
        }])
    }

    /// What a drawing writes: a variable, or the colour itself.
    pub fn css(self) -> String {
        self.entry().map_or_else(Rgb::hex, |(name, ..)| format!("var(--{name})"))
    }
}

/// A drawing with its light colours instead of variables.
pub fn plain(drawing: &str) -> String {
    PALETTE.iter().fold(drawing.to_owned(), |drawing, (name, light, _)| {
        drawing.replace(&format!("var(--{name})"), &light.hex())
    })
}

/// Declarations of all variables: (light, dark).
pub fn variables() -> (String, String) {
    let declare = |colour: fn(&(&str, Rgb, Rgb)) -> Rgb| {
        PALETTE.iter().map(|entry| format!("--{}:{};", entry.0, colour(entry).hex())).collect()
    };
    (declare(|entry| entry.1), declare(|entry| entry.2))
}

/// Low to high, dark blue to yellow (the ends and middle of the cividis map, made for colour-blind
/// readers).
pub fn ramp(share: f64) -> Rgb {
    const STOPS: [Rgb; 4] = [Rgb(0x0a2f6e), Rgb(0x5c6372), Rgb(0xa59c74), Rgb(0xfde745)];
    let share = if share.is_nan() { 0.0 } else { share };
    let place = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let index = (place as usize).min(STOPS.len() - 2);
    STOPS[index].mix(STOPS[index + 1], place - index as f64)
}

/// -1 (faster, blue) over 0 (nearly white) to 1 (slower, orange).
pub fn diverge(value: f64) -> Rgb {
    let end = if value < 0.0 { Rgb(0x1f6fb4) } else { Rgb(0xc45500) };
    Rgb(0xf4f4f2).mix(end, value.abs().min(1.0))
}

/// Black or white, whichever reads better on a colour.
pub fn readable_on(colour: Rgb) -> Rgb {
    let (black, white) = (Rgb(0), Rgb(0xffffff));
    if colour.contrast(black) >= colour.contrast(white) {
        black
    } else {
        white
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_stands_out_from_the_page_in_both_themes() {
        let (_, day, night) = PALETTE[0];
        let configurations = (0..CONFIGURATIONS.len()).map(Colour::Configuration);
        for colour in configurations.chain((0..5).map(Colour::Series)) {
            let (_, light, dark) = colour.entry().unwrap();
            assert!(light.contrast(day) >= 3.0, "{colour:?} {}", light.contrast(day));
            assert!(dark.contrast(night) >= 3.0, "{colour:?} {}", dark.contrast(night));
        }
        for colour in [Colour::Text, Colour::Quiet] {
            let (_, light, dark) = colour.entry().unwrap();
            assert!(light.contrast(day) >= 4.5 && dark.contrast(night) >= 4.5, "{colour:?}");
        }
    }

    #[test]
    fn ramps_end_where_they_should_and_labels_on_them_can_be_read() {
        assert_eq!(ramp(0.0), Rgb(0x0a2f6e));
        assert_eq!(ramp(2.0), Rgb(0xfde745));
        assert_eq!(ramp(f64::NAN), ramp(0.0));
        assert_ne!(diverge(-1.0), diverge(1.0));
        for step in -10..=10 {
            let colour = diverge(f64::from(step) / 10.0);
            assert!(readable_on(colour).contrast(colour) >= 4.5, "{step}");
        }
    }

    #[test]
    fn themes_declare_the_same_variables() {
        let (light, dark) = variables();
        assert!(
            light.contains("--e5:") && dark.contains("--e5:") && light.contains("--paper:#ffffff")
        );
        assert_eq!(Colour::of_configuration("image").css(), "var(--e3)");
        assert_eq!(plain("x var(--e3) y"), "x #c45500 y");
        assert_eq!(rank("no such configuration"), CONFIGURATIONS.len());
    }
}
