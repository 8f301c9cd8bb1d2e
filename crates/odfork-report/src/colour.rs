//! Colours and marks: which engine has which, in light and in dark.
//!
//! Owns the palette. The hues are those of Okabe and Ito, darkened for white paper and lightened for a dark page, so
//! that they stay apart for colour-blind readers and keep 3:1 against the page. No engine is told by colour alone: each
//! also has its own mark. A plot in the page names CSS variables; a plot file carries the light values.

use odfork_samples::configurations::{rank, CONFIGURATIONS};

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// Between two colours, `share` of the way from `self`.
    fn mix(self, other: Rgb, share: f64) -> Rgb {
        let blend =
            |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
        Rgb(blend(self.0, other.0), blend(self.1, other.1), blend(self.2, other.2))
    }

    /// WCAG 2 relative luminance.
    fn luminance(self) -> f64 {
        let part = |value: u8| {
            let share = f64::from(value) / 255.0;
            if share <= 0.04045 {
                share / 12.92
            } else {
                ((share + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(self.0) + 0.7152 * part(self.1) + 0.0722 * part(self.2)
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
    Engine(usize),
    /// Series that are not engines: fractions, sources, read mixes.
    Series(usize),
    /// The same in both themes.
    Fixed(Rgb),
}

const CONFIGURATION_COLOURS: [(Rgb, Rgb); 6] = [
    (Rgb(0x4a, 0x4a, 0x4a), Rgb(0xd0, 0xd0, 0xd0)),
    (Rgb(0x00, 0x6b, 0xa6), Rgb(0x5c, 0xb8, 0xf0)),
    (Rgb(0x00, 0x80, 0x5d), Rgb(0x2c, 0xc7, 0x9b)),
    (Rgb(0xc4, 0x55, 0x00), Rgb(0xff, 0x92, 0x4a)),
    (Rgb(0xa8, 0x43, 0x82), Rgb(0xe6, 0x9f, 0xc9)),
    (Rgb(0x80, 0x80, 0x80), Rgb(0x96, 0x96, 0x96)),
];

const SERIES_COLOURS: [(Rgb, Rgb); 5] = [
    (Rgb(0x00, 0x6b, 0xa6), Rgb(0x5c, 0xb8, 0xf0)),
    (Rgb(0xc4, 0x55, 0x00), Rgb(0xff, 0x92, 0x4a)),
    (Rgb(0x00, 0x80, 0x5d), Rgb(0x2c, 0xc7, 0x9b)),
    (Rgb(0xa8, 0x43, 0x82), Rgb(0xe6, 0x9f, 0xc9)),
    (Rgb(0x4a, 0x4a, 0x4a), Rgb(0xd0, 0xd0, 0xd0)),
];

impl Colour {
    pub fn of_engine(engine: &str) -> Colour {
        Colour::Engine(rank(engine).min(CONFIGURATIONS.len() - 1))
    }

    /// (light, dark)
    pub fn pair(self) -> (Rgb, Rgb) {
        match self {
            Colour::Paper => (Rgb(0xff, 0xff, 0xff), Rgb(0x16, 0x18, 0x1c)),
            Colour::Text => (Rgb(0x1c, 0x1e, 0x21), Rgb(0xec, 0xec, 0xea)),
            Colour::Quiet => (Rgb(0x5a, 0x5f, 0x66), Rgb(0xa9, 0xaf, 0xb7)),
            Colour::Grid => (Rgb(0xe0, 0xe2, 0xe5), Rgb(0x33, 0x37, 0x3d)),
            Colour::Engine(index) => CONFIGURATION_COLOURS[index % CONFIGURATION_COLOURS.len()],
            Colour::Series(index) => SERIES_COLOURS[index % SERIES_COLOURS.len()],
            Colour::Fixed(colour) => (colour, colour),
        }
    }

    /// What a plot inside the page writes: a variable, or the colour itself.
    pub fn themed(self) -> String {
        match self {
            Colour::Fixed(colour) => colour.hex(),
            other => format!("var(--{})", other.name()),
        }
    }

    fn name(self) -> String {
        match self {
            Colour::Paper => "paper".into(),
            Colour::Text => "text".into(),
            Colour::Quiet => "quiet".into(),
            Colour::Grid => "grid".into(),
            Colour::Engine(index) => format!("e{}", index % CONFIGURATION_COLOURS.len()),
            Colour::Series(index) => format!("s{}", index % SERIES_COLOURS.len()),
            Colour::Fixed(_) => String::new(),
        }
    }
}

/// Declarations of all variables: (light, dark).
pub fn variables() -> (String, String) {
    let engines = (0..CONFIGURATION_COLOURS.len()).map(Colour::Engine);
    let series = (0..SERIES_COLOURS.len()).map(Colour::Series);
    let (mut light, mut dark) = (String::new(), String::new());
    for colour in [Colour::Paper, Colour::Text, Colour::Quiet, Colour::Grid]
        .into_iter()
        .chain(engines)
        .chain(series)
    {
        let (day, night) = colour.pair();
        light += &format!("--{}:{};", colour.name(), day.hex());
        dark += &format!("--{}:{};", colour.name(), night.hex());
    }
    (light, dark)
}

/// Low to high, dark blue to yellow (the ends and middle of the cividis map, made for colour-blind readers).
pub fn ramp(share: f64) -> Rgb {
    const STOPS: [Rgb; 4] = [
        Rgb(0x0a, 0x2f, 0x6e),
        Rgb(0x5c, 0x63, 0x72),
        Rgb(0xa5, 0x9c, 0x74),
        Rgb(0xfd, 0xe7, 0x45),
    ];
    let share = if share.is_nan() { 0.0 } else { share };
    let place = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let index = (place as usize).min(STOPS.len() - 2);
    STOPS[index].mix(STOPS[index + 1], place - index as f64)
}

/// -1 (faster, blue) over 0 (nearly white) to 1 (slower, orange).
pub fn diverge(value: f64) -> Rgb {
    let middle = Rgb(0xf4, 0xf4, 0xf2);
    let end = if value < 0.0 { Rgb(0x1f, 0x6f, 0xb4) } else { Rgb(0xc4, 0x55, 0x00) };
    middle.mix(end, value.abs().min(1.0))
}

/// Black or white, whichever reads better on a colour.
pub fn readable_on(colour: Rgb) -> Rgb {
    let (black, white) = (Rgb(0, 0, 0), Rgb(0xff, 0xff, 0xff));
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
    fn every_ink_stands_out_from_the_page_in_both_themes() {
        let (day, night) = Colour::Paper.pair();
        let engines = (0..CONFIGURATIONS.len()).map(Colour::Engine);
        for colour in engines.chain((0..5).map(Colour::Series)) {
            let (light, dark) = colour.pair();
            assert!(light.contrast(day) >= 3.0, "{colour:?} {}", light.contrast(day));
            assert!(dark.contrast(night) >= 3.0, "{colour:?} {}", dark.contrast(night));
        }
        for colour in [Colour::Text, Colour::Quiet] {
            let (light, dark) = colour.pair();
            assert!(light.contrast(day) >= 4.5 && dark.contrast(night) >= 4.5, "{colour:?}");
        }
    }

    #[test]
    fn ramps_end_where_they_should_and_labels_on_them_can_be_read() {
        assert_eq!(ramp(0.0), Rgb(0x0a, 0x2f, 0x6e));
        assert_eq!(ramp(2.0), Rgb(0xfd, 0xe7, 0x45));
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
        assert_eq!(Colour::of_engine("image").themed(), "var(--e3)");
        assert_eq!(rank("no such engine"), CONFIGURATIONS.len());
    }
}
