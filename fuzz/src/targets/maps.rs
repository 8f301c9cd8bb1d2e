//! /proc/PID/maps, smaps, smaps_rollup and status, as the runtime and the tools read them.

use odfork::vma::{parse_head, SmapsParser, Vma, SHARED};
use odfork_proc::maps::{self, Mapping};
use odfork_proc::smaps;
use odfork_proc::status::{Rollup, Status};

/// The runtime's mappings of a text that comes in pieces of this size.
fn mappings(text: &[u8], piece: usize) -> Vec<Vma> {
    let (mut parser, mut all) = (SmapsParser::new(), Vec::new());
    for part in text.chunks(piece) {
        parser.feed(part, &mut |vma| all.push(*vma));
    }
    parser.finish(&mut |vma| all.push(*vma));
    all
}

pub fn run(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let all = mappings(text, usize::MAX);
    assert_eq!(all, mappings(text, usize::from(first) + 1));
    for vma in &all {
        assert!(vma.start < vma.end, "an empty mapping: {vma:?}");
        assert!(!(vma.can_freeze() && vma.special));
    }
    let lines = || text.split(|&byte| byte == b'\n');
    let heads = lines().filter(|line| parse_head(&line[..line.len().min(256)]).is_some()).count();
    assert_eq!(heads, all.len());
    lines().for_each(same);
    tools(&String::from_utf8_lossy(text));
}

/// What the runtime and the tools both take for a mapping is the same one.
fn same(line: &[u8]) {
    let line = &line[..line.len().min(256)];
    let tools = std::str::from_utf8(line).ok().and_then(Mapping::parse);
    if let (Some(vma), Some(mapping)) = (parse_head(line), tools) {
        assert_eq!((vma.start as u64, vma.end as u64), (mapping.start, mapping.end));
        assert_eq!((vma.offset, vma.inode), (mapping.offset, mapping.inode));
        assert_eq!(vma.perms & SHARED != 0, mapping.shared);
        assert_eq!(u32::from(vma.perms & !SHARED), mapping.prot);
    }
}

fn tools(text: &str) {
    let usages = smaps::parse(text);
    let all = maps::parse(text);
    assert!(usages.iter().map(|usage| &usage.mapping).eq(&all));
    for mapping in &all {
        assert!(mapping.start <= mapping.end && !mapping.title().is_empty());
        assert_eq!(mapping.file_offset(mapping.start), mapping.offset);
    }
    let _ = (Status::parse(text), Rollup::parse(text));
}
