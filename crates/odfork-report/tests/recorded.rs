//! The report of a real recording says the same as before: each table, sentence, and label of a
//! plot.
//!
//! Owns the way from a page to plain text. The samples in `recorded/` are thinned recordings of
//! `odfork bench --quick`; `report.txt` beside them is the expectation. Set ODFORK_BLESS to write
//! it anew, and read the difference.

use std::fs;
use std::path::Path;

/// Line breaks, separators of cells, and nothing: how a closing tag is written as text.
fn separator(tag: &str) -> &'static str {
    match tag {
        "/td" | "/th" | "/text" | "/dt" => " | ",
        "br/" | "br" => " / ",
        "/p" | "/tr" | "/h1" | "/h2" | "/h3" | "/caption" | "/li" | "/summary" | "/dd"
        | "/figcaption" | "/label" | "/svg" | "/title" | "/desc" => "\n",
        _ => "",
    }
}

/// All text of a page, without its style; a line for each row, sentence and plot.
fn text_of(html: &str) -> String {
    let (mut text, mut rest) = (String::new(), html);
    while let Some(start) = rest.find('<') {
        text += &rest[..start].replace('\n', "");
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag == "style" {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
        text += separator(tag.split(' ').next().unwrap());
    }
    let lines =
        text.lines().map(|line| line.trim_end_matches([' ', '|'])).filter(|l| !l.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_real_recording_gives_the_same_text_as_before() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let out = std::env::temp_dir().join(format!("odfork-recorded-{}", std::process::id()));
    let written = odfork_report::report(&recorded, &out).unwrap();
    let seen = text_of(&fs::read_to_string(&written.page).unwrap());
    let expected = recorded.join("report.txt");
    if std::env::var_os("ODFORK_BLESS").is_some() {
        fs::write(&expected, &seen).unwrap();
    }
    let before = fs::read_to_string(&expected).unwrap();
    let difference = before.lines().zip(seen.lines()).find(|(before, seen)| before != seen);
    assert_eq!(difference, None, "the first line that differs");
    assert_eq!(before.lines().count(), seen.lines().count());
    fs::remove_dir_all(out).unwrap();
}
