//! The promised figures: the tables of the terminal, each verdict with its numbers.

use crate::blocks::{Block, Content, Table};
use odfork_samples::promises::words::{row, summary, HEADINGS};
use odfork_samples::promises::{figures, judge, Finding, Section, Verdict};
use odfork_samples::samples::Recording;
use odfork_samples::stats::Rng;

/// Columns of words.
const WORDS: usize = 2;

/// Of what was measured.
pub fn build(recording: &Recording) -> Content {
    let mut rng = Rng::with_seed(1);
    let judged = figures().into_iter().map(|figure| judge(figure, recording, &mut rng));
    let found: Vec<Finding> = judged.filter(|finding| finding.subject.is_some()).collect();
    if found.is_empty() {
        return Content::default();
    }
    let table = |section: Section| {
        let rows = found.iter().filter(|finding| finding.figure.section == section);
        Table::new(section.title(), &HEADINGS, WORDS).with(rows.map(|one| row(one).to_vec()))
    };
    let lead = std::iter::once(Block::Lead(lead(&found)));
    let blocks = lead.chain(Section::ALL.map(|section| table(section).into())).collect();
    Content { blocks, headlines: vec![("promised figures".into(), summary(&found))] }
}

/// The counts, and who misses.
fn lead(found: &[Finding]) -> String {
    let is_missed = |finding: &&Finding| matches!(finding.verdict, Verdict::Missed { .. });
    let missed: Vec<&str> = found.iter().filter(is_missed).map(|one| one.figure.name).collect();
    match missed.is_empty() {
        true => format!("{}.", summary(found)),
        false => format!("{}. Missed: {}.", summary(found), missed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chapters::chapter;
    use odfork_samples::samples::read;

    fn recording() -> Recording {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../odfork-bench/tests/golden");
        read(&std::path::Path::new(folder).join("promises-full.jsonl")).unwrap()
    }

    #[test]
    fn every_measured_figure_has_a_row_and_misses_are_named() {
        let chapter = chapter(&recording(), "");
        let text: String =
            chapter.content.blocks.iter().map(|it| maud::Render::render(it).0).collect();
        let figure = |name: &str| text.contains(&format!("<th scope=\"row\">{name}</th>"));
        assert!(figure("fork-1g") && figure("read-1g") && figure("full-1g"), "{text}");
        assert!(text.contains("Missed: ") && text.contains("MISSED"), "{text}");
        assert_eq!(chapter.title, "The promised figures");
        assert!(chapter.content.headlines[0].1.contains(" met, "));
    }

    #[test]
    fn nothing_measured_says_nothing() {
        assert!(build(&Recording::default()).blocks.is_empty());
    }
}
