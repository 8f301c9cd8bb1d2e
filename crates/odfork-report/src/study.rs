//! The chapter about page replacement: curves, tables and claims that `odfork page compare` hands
//! over.
//!
//! Owns the file between the two commands (`paging.json`), the chapter's layout, and its form as
//! Markdown. What is simulated and how claims are judged is the caller's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::axis::{Axis, Kind};
pub use crate::blocks::Table as Grid;
use crate::blocks::{Block, Chapter, Content, Figure};
use crate::chart::{Chart, Join, Series, Style};
use crate::colour::Colour;
use crate::drawing::MARKS;
use crate::output::write;
use odfork_samples::unit::Unit;

/// Name of the file in the folder of samples.
pub const FILE: &str = "paging.json";
const SCHEMA: u32 = 1;

/// One plot: series of (memory, value).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Name of its files, without extension.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What stands below it.
    pub caption: String,
    /// Name of the axis to the right.
    pub x: String,
    /// Name of the axis upwards.
    pub y: String,
    /// Name and points of each series.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// A sentence of the paper, and what the numbers say to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Its number: C1, C2 ...
    pub name: String,
    /// The sentence.
    pub claim: String,
    /// "confirmed", "refuted", or both with what for.
    pub verdict: String,
    /// The numbers that speak for or against it, a line each.
    pub numbers: Vec<String>,
}

/// All that the chapter shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Version of the format, now 1.
    pub schema: u32,
    /// Paragraphs before everything.
    pub intro: Vec<String>,
    /// The claims, in the paper's order.
    pub claims: Vec<Claim>,
    /// The plots.
    pub curves: Vec<Curves>,
    /// The tables.
    pub grids: Vec<Grid>,
}

const TITLE: &str = "Page replacement without reference bits";
const QUESTION: &str = "Which policy costs least when reference bits must be simulated, and which \
                        claims of the paper hold?";
const PUBLISHED: &str =
    "the clock close to LRU, and more robust than the fixed partition of VMS (Babaoglu and Joy \
     1981)";

impl Study {
    /// Writes `paging.json`, `paging.md` and the plots as SVG; returns the Markdown's path.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let plots = folder.join("plots");
        fs::create_dir_all(&plots).with_context(|| {
            format!("cannot make {}; name a folder that can be written with --dir", plots.display())
        })?;
        let study = Study { schema: SCHEMA, ..self.clone() };
        write(&folder.join(FILE), serde_json::to_string(&study)?.as_bytes())?;
        for curves in &self.curves {
            let path = plots.join(&curves.name).with_extension("svg");
            write(&path, figure(curves).drawing.file().as_bytes())?;
        }
        let markdown = folder.join("paging.md");
        write(&markdown, self.markdown().as_bytes())?;
        Ok(markdown)
    }

    /// `None` where there is no such file.
    pub(crate) fn read(folder: &Path) -> Result<Option<Study>> {
        let path = folder.join(FILE);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
        let study: Study = serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged; run `odfork page compare` again", path.display())
        })?;
        anyhow::ensure!(
            study.schema == SCHEMA,
            "{} has schema {}, this version reads {SCHEMA}; run `odfork page compare` again",
            path.display(),
            study.schema
        );
        Ok(Some(study))
    }

    fn markdown(&self) -> String {
        let mut text = format!("# {TITLE}\n\n{QUESTION}\n");
        for paragraph in &self.intro {
            text += &format!("\n{paragraph}\n");
        }
        text += "\n## Claims\n\n";
        let rows: Vec<Vec<String>> = self.claims.iter().map(claim_row).collect();
        text += &markdown_table(&CLAIM_HEAD.map(str::to_owned), &rows);
        text += "\n## Tables\n";
        for grid in &self.grids {
            text += &format!("\n{}\n\n{}", grid.caption, markdown_table(&grid.head, &grid.rows));
        }
        text += "\n## Curves\n";
        for curves in &self.curves {
            let Curves { title, name, caption, .. } = curves;
            text += &format!("\n![{title}](plots/{name}.svg)\n\n{caption}\n");
        }
        text
    }

    pub(crate) fn chapter(&self) -> Chapter {
        let mut blocks: Vec<Block> = self.intro.iter().cloned().map(Block::Text).collect();
        let claims = Grid::new("Claims of the paper", &CLAIM_HEAD, CLAIM_HEAD.len());
        blocks.push(claims.with(self.claims.iter().map(claim_row)).into());
        blocks.push(Block::Figures(self.curves.iter().map(figure).collect()));
        blocks.extend(self.grids.iter().cloned().map(Block::Table));
        let headline = |claim: &Claim| (claim.name.clone(), claim.verdict.clone());
        Chapter {
            id: "paging".into(),
            title: TITLE.into(),
            question: QUESTION.into(),
            published: PUBLISHED.into(),
            content: Content { blocks, headlines: self.claims.iter().map(headline).collect() },
        }
    }
}

const CLAIM_HEAD: [&str; 4] = ["claim", "of the paper", "here", "numbers"];

fn claim_row(claim: &Claim) -> Vec<String> {
    let numbers = claim.numbers.join("\n");
    vec![claim.name.clone(), claim.claim.clone(), claim.verdict.clone(), numbers]
}

fn markdown_table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> =
            cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', "<br>")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = head.iter().map(|_| "---".to_owned()).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(head) + &line(&rule) + &body
}

fn figure(curves: &Curves) -> Figure {
    const COLOURS: [Colour; 6] = [
        Colour::Series(4),
        Colour::Series(0),
        Colour::Series(1),
        Colour::Series(2),
        Colour::Series(3),
        Colour::Configuration(5),
    ];
    let series = curves.series.iter().enumerate().map(|(at, (label, points))| {
        let style = Style { colour: COLOURS[at % COLOURS.len()], mark: MARKS[at % MARKS.len()] };
        let again = at >= COLOURS.len();
        let join = if again { Join::Dashed } else { Join::Solid };
        let series = Series::new(label, style).joined(join).through(points.iter().copied());
        Series { hollow: again, ..series }
    });
    Chart {
        name: curves.name.clone(),
        title: curves.title.clone(),
        about: curves.caption.clone(),
        caption: curves.caption.clone(),
        x: Axis::new(&curves.x, Kind::Linear, Unit::Share),
        y: Axis::log(&curves.y, Unit::Number),
        series: series.collect(),
        ..Chart::default()
    }
    .figure()
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::Render;

    fn study() -> Study {
        Study {
            schema: SCHEMA,
            intro: vec!["Two traces.".into()],
            claims: vec![Claim {
                name: "C1".into(),
                claim: "close <to> LRU".into(),
                verdict: "confirmed".into(),
                numbers: vec!["1.04".into(), "a|b".into()],
            }],
            curves: vec![Curves {
                name: "paging-sort".into(),
                title: "sort".into(),
                caption: "Faults.".into(),
                x: "memory".into(),
                y: "faults".into(),
                series: (0..8)
                    .map(|i| (format!("p{i}"), vec![(0.1, 100.0), (0.5, 10.0 + f64::from(i))]))
                    .collect(),
            }],
            grids: vec![Grid {
                caption: "Sizes".into(),
                head: vec!["trace".into(), "pages".into()],
                rows: vec![vec!["sort".into(), "7".into()]],
                words: 1,
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_and_shown() {
        let folder = std::env::temp_dir().join(format!("odfork-policy-{}", std::process::id()));
        let path = study().write(&folder).unwrap();
        let markdown = fs::read_to_string(path).unwrap();
        assert!(
            markdown.contains("| C1 | close <to> LRU | confirmed | 1.04<br>a\\|b |"),
            "{markdown}"
        );
        assert!(markdown.contains("![sort](plots/paging-sort.svg)"));
        assert!(fs::read_to_string(folder.join("plots/paging-sort.svg")).unwrap().contains("<svg"));
        assert_eq!(Study::read(&folder).unwrap(), Some(study()));
        let html: String =
            study().chapter().content.blocks.iter().map(|block| block.render().0).collect();
        assert!(html.contains("close &lt;to&gt; LRU") && html.contains("<svg"));
        fs::write(folder.join(FILE), "{").unwrap();
        assert!(Study::read(&folder).unwrap_err().to_string().contains("is damaged"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Study::read(&folder).unwrap(), None);
    }
}
