//! Page-reference traces as text.

use odfork_policy::trace::{Batch, Malformed, Parser, Summary};

/// Reads the text in pieces of this size; what was left over goes in front of the next piece.
fn read(text: &[u8], piece: usize) -> Result<(Batch, Parser), Malformed> {
    let (mut parser, mut batch, mut rest) = (Parser::new(), Batch::default(), Vec::new());
    for part in text.chunks(piece) {
        rest.extend_from_slice(part);
        let used = parser.feed(&rest, &mut batch)?;
        rest.drain(..used);
    }
    parser.finish(&rest, &mut batch)?;
    Ok((batch, parser))
}

pub fn run(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let whole = read(text, usize::MAX);
    let parts = read(text, usize::from(first) + 1);
    match (whole, parts) {
        (Ok((batch, parser)), Ok((again, other))) => {
            assert_eq!(batch, again);
            assert_eq!(parser.lines(), other.lines());
            check(&batch, &parser);
        }
        (Err(one), Err(other)) => assert_eq!(one, other),
        (whole, parts) => panic!("in one piece {:?}, in parts {:?}", whole.err(), parts.err()),
    }
}

/// Pages are numbered without gaps, in the order of their first appearance.
fn check(batch: &Batch, parser: &Parser) {
    let mut known = 0;
    for reference in &batch.references {
        assert!(reference.page() <= known, "page {} before page {known}", reference.page());
        known = known.max(reference.page() + 1);
    }
    assert_eq!((known as usize, known), (batch.new_pages.len(), parser.pages()));
    assert!(batch.marks.iter().all(|mark| mark.at <= batch.references.len()));
    let mut summary = Summary::default();
    summary.add(batch);
    assert_eq!(summary.pages(), u64::from(known));
    assert_eq!(summary.references, batch.references.len() as u64);
}
