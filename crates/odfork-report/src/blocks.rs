//! A chapter and what it is made of: figures, tables, sentences; and how each is written as HTML.
//!
//! Text becomes HTML by maud alone, which escapes it. Tables are real tables with a caption and
//! header cells; figures carry their text for screen readers inside the SVG.

use maud::{html, Markup, Render};
use serde::{Deserialize, Serialize};

use crate::drawing::Drawing;
use odfork_samples::stats::Estimate;
use odfork_samples::unit::{digits, Unit};

#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of its files, without extension.
    pub name: String,
    caption: String,
    pub drawing: Drawing,
}

impl Figure {
    /// Names contain words of sample files: whatever they say, the plot stays in its folder.
    pub fn new(name: &str, caption: &str, drawing: Drawing) -> Figure {
        let safe = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
        Figure { name: safe.take(80).collect(), caption: caption.into(), drawing }
    }
}

impl Render for Figure {
    fn render(&self) -> Markup {
        let file = format!("plots/{}", self.name);
        let width = self.drawing.width.min(720.0).round();
        html! {
            figure {
                div.plot tabindex="0" role="group" aria-label={ "Plot " (self.name) }
                    style={ "--wide:" (width) "px" } {
                    (self.drawing.inline(&format!("plot-{}", self.name)))
                }
                figcaption {
                    (self.caption) " "
                    span.files {
                        a href={ (file) ".svg" } { "SVG" } " "
                        a href={ (file) ".png" } { "PNG" }
                    }
                }
            }
        }
    }
}

/// A table of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What stands above it.
    pub caption: String,
    /// Headings of its columns.
    pub head: Vec<String>,
    /// Its rows, as many cells as there are headings.
    pub rows: Vec<Vec<String>>,
    /// Leading columns of words; the others are numbers and stand right.
    pub words: usize,
}

/// Longer tables are folded until asked for.
const LONG: usize = 14;

impl Table {
    /// A table without rows; see [`Table::words`].
    pub fn new(caption: &str, head: &[&str], words: usize) -> Table {
        let head = head.iter().map(|cell| (*cell).to_string()).collect();
        Table { caption: caption.into(), head, rows: Vec::new(), words }
    }

    /// The same with these rows.
    pub fn with(self, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
        Table { rows: rows.into_iter().collect(), ..self }
    }

    /// Unfolded, however long.
    pub fn open(&self) -> Markup {
        let class = |column: usize| (column >= self.words).then_some("n");
        let cell = |column: usize, text: &str| {
            let lines = html! {
                @for (index, line) in text.split('\n').enumerate() { @if index > 0 { br; } (line) }
            };
            match column {
                0 => html! { th scope="row" { (lines) } },
                _ => html! { td class=[class(column)] { (lines) } },
            }
        };
        html! {
            div.scroll tabindex="0" role="group" aria-label=(self.caption) {
                table {
                    caption { (self.caption) }
                    thead { tr {
                        @for (column, text) in self.head.iter().enumerate() {
                            th scope="col" class=[class(column)] { (text) }
                        }
                    } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (column, text) in row.iter().enumerate() {
                                    (cell(column, text))
                                }
                            } "\n"
                        }
                    }
                }
            }
        }
    }
}

impl Render for Table {
    fn render(&self) -> Markup {
        match self.rows.len() {
            0 => html! {},
            rows if rows <= LONG => self.open(),
            rows => {
                html! { details { summary { (self.caption) " (" (rows) " rows)" } (self.open()) } }
            }
        }
    }
}

#[derive(Clone, Debug)]
pub enum Block {
    /// Figures that stand beside each other when there is room.
    Figures(Vec<Figure>),
    Table(Table),
    Text(String),
    /// What a reader remembers of a chapter.
    Lead(String),
    /// Something the reader must not overlook.
    Warning(String),
}

impl From<Figure> for Block {
    fn from(figure: Figure) -> Block {
        Block::Figures(vec![figure])
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Block {
        Block::Table(table)
    }
}

impl Render for Block {
    fn render(&self) -> Markup {
        match self {
            Block::Figures(figures) => {
                let narrow = figures.iter().all(|figure| figure.drawing.width < 640.0);
                let class = if narrow && figures.len() > 1 { "pair" } else { "single" };
                html! { div class=(class) { @for figure in figures { (figure) } } "\n" }
            }
            Block::Table(table) => html! { (table) "\n" },
            Block::Text(text) => html! { p { (text) } "\n" },
            Block::Lead(text) => html! { p.lead { (text) } "\n" },
            Block::Warning(text) => html! { p.warning { (text) } "\n" },
        }
    }
}

/// What the samples of an experiment become.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub blocks: Vec<Block>,
    /// (what, our figure)
    pub headlines: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct Chapter {
    pub id: String,
    pub title: String,
    pub question: String,
    pub published: String,
    pub content: Content,
}

/// "6.50 ms – 6.60 ms", or a dash below three samples.
pub fn interval(estimate: &Estimate, unit: Unit) -> String {
    let ends =
        estimate.interval.map(|(low, high)| format!("{} – {}", unit.write(low), unit.write(high)));
    ends.unwrap_or_else(|| "–".into())
}

/// "65.0× (64.1 – 66.2)".
pub fn times(estimate: &Estimate) -> String {
    let value = Unit::Times.write(estimate.value);
    match estimate.interval {
        Some((low, high)) => format!("{value} ({} – {})", digits(low), digits(high)),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(block: impl Into<Block>) -> String {
        block.into().render().0
    }

    #[test]
    fn a_table_is_a_table_and_escapes() {
        let row = vec!["<b>".to_string(), "1 & 2".into()];
        let table = Table::new("cap<tion", &["configuration", "value"], 1).with([row.clone()]);
        let one = html(table.clone());
        for part in [
            "<caption>cap&lt;tion</caption>",
            "<th scope=\"row\">&lt;b&gt;</th>",
            "<td class=\"n\">1 &amp; 2</td>",
        ] {
            assert!(one.contains(part), "{part} in {one}");
        }
        assert!(!one.contains("<details>"));
        assert!(html(table.clone().with(vec![row; 40])).contains("(40 rows)"));
        assert_eq!(html(table.with([])).trim(), "");
    }

    #[test]
    fn figures_name_their_files() {
        let html = html(Figure::new("latency", "a < b", Drawing::new((100.0, 50.0), "t", "a")));
        assert!(html.contains("plots/latency.svg") && html.contains("plots/latency.png"));
        assert!(html.contains("a &lt; b") && html.contains("<title id=\"plot-latency-t\">"));
    }

    #[test]
    fn a_plot_cannot_leave_its_folder() {
        let name = |name: &str| Figure::new(name, "", Drawing::default()).name;
        assert_eq!(name("../a b/<c>.d"), "---a-b--c--d");
        assert_eq!(name(&"x".repeat(400)).len(), 80);
    }

    #[test]
    fn intervals_are_dashes_when_there_are_none() {
        let mut estimate = Estimate { value: 65.0, interval: None, count: 1 };
        assert_eq!(
            (interval(&estimate, Unit::Times), times(&estimate)),
            ("–".into(), "65×".into())
        );
        estimate.interval = Some((64.1, 66.0));
        assert_eq!(times(&estimate), "65× (64.1 – 66)");
    }
}
