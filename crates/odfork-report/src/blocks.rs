//! What a chapter is made of: figures, tables, sentences; and how each is written as HTML.
//!
//! Owns the only place where text becomes HTML: everything passes `svg::escape` here. Tables are real tables with a
//! caption and header cells; figures carry their text for screen readers inside the SVG.

use super::chart::Chart;
use super::scene::Scene;
use super::svg::{self, escape};
use odfork_samples::stats::Estimate;

use odfork_samples::unit::{digits, Unit};

#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of its files, without extension.
    pub name: String,
    pub caption: String,
    pub scene: Scene,
}

impl Figure {
    pub fn new(name: &str, caption: &str, scene: Scene) -> Figure {
        Figure { name: file_name(name), caption: caption.into(), scene }
    }

    /// Says in the caption how many samples a logarithmic axis could not show.
    pub fn of_chart(name: &str, caption: &str, chart: &Chart) -> Figure {
        let caption = match chart.left_out() {
            0 => caption.to_string(),
            count => format!("{caption} Not shown, because the logarithmic axis has no zero: {count} value(s); the table has them."),
        };
        Figure { name: name.into(), caption, scene: chart.scene() }
    }

    fn html(&self) -> String {
        let (name, caption) = (escape(&self.name), escape(&self.caption));
        let drawing = svg::inline(&self.scene, &format!("plot-{}", self.name));
        let width = self.scene.width.min(720.0).round();
        format!(
            "<figure><div class=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"Plot {name}\" style=\"--wide:{width}px\">{drawing}</div>\
             <figcaption>{caption} <span class=\"files\"><a href=\"plots/{name}.svg\">SVG</a> \
             <a href=\"plots/{name}.png\">PNG</a></span></figcaption></figure>\n"
        )
    }
}

/// Names contain words of sample files: whatever they say, the plot stays in its folder.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(80).collect()
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub caption: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Leading columns of words; the others are numbers and stand right.
    pub words: usize,
}

/// A cell may have several lines.
fn lines(text: &str) -> String {
    text.split('\n').map(escape).collect::<Vec<_>>().join("<br/>")
}

/// Longer tables are folded until asked for.
const LONG: usize = 14;

impl Table {
    pub fn new(caption: &str, head: &[&str], words: usize) -> Table {
        let head = head.iter().map(|cell| (*cell).to_string()).collect();
        Table { caption: caption.into(), head, rows: Vec::new(), words }
    }

    /// Unfolded, however long.
    pub fn open_html(&self) -> String {
        let class = |column: usize| if column < self.words { "" } else { " class=\"n\"" };
        let cells = |row: &[String]| -> String {
            let cell = |(column, text): (usize, &String)| match column {
                0 => format!("<th scope=\"row\">{}</th>", escape(text)),
                _ => format!("<td{}>{}</td>", class(column), lines(text)),
            };
            row.iter().enumerate().map(cell).collect()
        };
        let head = |(column, text): (usize, &String)| {
            format!("<th scope=\"col\"{}>{}</th>", class(column), escape(text))
        };
        let head: String = self.head.iter().enumerate().map(head).collect();
        let rows: String =
            self.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row))).collect();
        let caption = escape(&self.caption);
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{caption}\"><table><caption>{caption}</caption>\
             <thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
        )
    }

    fn html(&self) -> String {
        let (table, caption) = (self.open_html(), escape(&self.caption));
        if self.rows.len() <= LONG {
            return table;
        }
        format!(
            "<details><summary>{caption} ({} rows)</summary>{table}</details>\n",
            self.rows.len()
        )
    }
}

#[derive(Clone, Debug)]
pub enum Block {
    /// Figures that stand beside each other when there is room.
    Figures(Vec<Figure>),
    Table(Table),
    Text(String),
    /// Something the reader must not overlook.
    Warning(String),
}

impl Block {
    pub fn html(&self) -> String {
        match self {
            Block::Figures(figures) => {
                let narrow = figures.iter().all(|figure| figure.scene.width < 640.0);
                let class = if narrow && figures.len() > 1 { "pair" } else { "single" };
                let figures: String = figures.iter().map(Figure::html).collect();
                format!("<div class=\"{class}\">\n{figures}</div>\n")
            }
            Block::Table(table) if table.rows.is_empty() => String::new(),
            Block::Table(table) => table.html(),
            Block::Text(text) => format!("<p>{}</p>\n", escape(text)),
            Block::Warning(text) => format!("<p class=\"warning\">{}</p>\n", escape(text)),
        }
    }
}

/// "6.50 ms – 6.60 ms", or a dash below three samples.
pub fn interval(estimate: &Estimate, unit: Unit) -> String {
    estimate.interval.map_or_else(
        || "–".into(),
        |(low, high)| format!("{} – {}", unit.write(low), unit.write(high)),
    )
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

    #[test]
    fn a_table_is_a_table_and_escapes() {
        let mut table = Table::new("cap<tion", &["engine", "value"], 1);
        table.rows.push(vec!["<b>".into(), "1 & 2".into()]);
        let html = Block::Table(table.clone()).html();
        for part in [
            "<caption>cap&lt;tion</caption>",
            "<th scope=\"row\">&lt;b&gt;</th>",
            "<td class=\"n\">1 &amp; 2</td>",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(!html.contains("<details>"));
        table.rows = vec![table.rows[0].clone(); 40];
        assert!(Block::Table(table.clone()).html().contains("(40 rows)"));
        table.rows.clear();
        assert_eq!(Block::Table(table).html(), "");
    }

    #[test]
    fn figures_name_their_files() {
        let figure = Figure::new("latency", "a < b", Scene::new(100.0, 50.0, "t", "a"));
        let html = Block::Figures(vec![figure]).html();
        assert!(html.contains("plots/latency.svg") && html.contains("plots/latency.png"));
        assert!(html.contains("a &lt; b") && html.contains("<title id=\"plot-latency-t\">"));
    }

    #[test]
    fn a_plot_cannot_leave_its_folder() {
        assert_eq!(file_name("../a b/<c>.d"), "---a-b--c--d");
        assert_eq!(file_name(&"x".repeat(400)).len(), 80);
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
