//! Which files of a crate import each other.
//!
//! Owns reading `crate::`, `super::` and `self::` paths from source text, without tests and
//! comments, and finding circles. A folder's front file (`x.rs` or `x/mod.rs`) and the files in the
//! folder `x` count as one: what the front file owns, its files may use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module as the words of its path; the crate's root is empty.
type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Sets of files that import each other, each sorted, as `folder/file`.
pub fn circles(source: &Path) -> Vec<Vec<String>> {
    let mut texts = BTreeMap::new();
    collect(source, &mut Vec::new(), &mut texts);
    let graph: Graph = texts
        .iter()
        .map(|(module, text)| {
            let imported = paths(text, module).into_iter().map(|path| owner(path, &texts));
            let others = imported.filter(|other| counts(module, other, &texts));
            (module.clone(), others.collect())
        })
        .collect();
    let named = |circle: &BTreeSet<Module>| circle.iter().map(|one| one.join("/")).collect();
    let found: BTreeSet<_> = graph.keys().map(|one| circle_of(one, &graph)).collect();
    found.iter().filter(|circle| circle.len() > 1).map(named).collect()
}

/// Texts without tests; headers stay.
fn collect(folder: &Path, at: &mut Module, texts: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            at.push(stem);
            collect(&path, at, texts);
            at.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut module = at.clone();
            if !["lib", "main", "mod"].contains(&stem.as_str()) {
                module.push(stem);
            }
            let text = fs::read_to_string(&path).expect("a source file is text");
            let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
            texts.insert(module, text[..end].to_owned());
        }
    }
}

/// An import that may be part of a circle: not of the root, nor inside of a folder's front file,
/// nor declared to be of one thing.
fn counts(one: &Module, other: &Module, texts: &BTreeMap<Module, String>) -> bool {
    let is_front = other.starts_with(one) || one.starts_with(other);
    let declared = |of: &Module, with: &Module| {
        let name = with.last().map_or("", String::as_str);
        let header = texts[of].lines().take_while(|line| line.starts_with("//!"));
        let header: String = header.map(|line| line.trim_start_matches("//!")).collect();
        header.contains(&format!("One thing with `{name}.rs`: "))
    };
    !other.is_empty() && !is_front && !declared(one, other) && !declared(other, one)
}

/// The module that holds an item: the longest part of its path that is a file.
fn owner(mut path: Module, texts: &BTreeMap<Module, String>) -> Module {
    while !texts.contains_key(&path) && path.pop().is_some() {}
    path
}

/// Every path in the text that starts in this crate.
fn paths(text: &str, module: &Module) -> Vec<Module> {
    let code: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (word, base) in
        [("crate", 0), ("super", module.len().saturating_sub(1)), ("self", module.len())]
    {
        for (start, _) in code.match_indices(&format!("{word}::")) {
            let before = code[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let (mut rest, mut base) = (&code[start + word.len() + 2..], module[..base].to_vec());
            while let Some(more) = rest.strip_prefix("super::") {
                base.pop();
                rest = more;
            }
            tree(rest, &base, &mut found);
        }
    }
    found
}

/// Follows `a::b`, `{a, b::c}` and `*`; gives what comes behind.
fn tree<'a>(text: &'a str, base: &Module, found: &mut Vec<Module>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut inner) = text.strip_prefix('{') {
        loop {
            inner = inner.trim_start_matches([' ', '\n', ',']);
            match inner.strip_prefix('}') {
                Some(behind) => return behind,
                None if inner.is_empty() => return inner,
                None => inner = behind_alias(tree(inner, base, found)),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, behind) = text.split_at(end);
    if name.is_empty() {
        found.push(base.clone());
        return text.get(1..).unwrap_or_default();
    }
    let path = [&base[..], &[name.to_owned()]].concat();
    match behind.strip_prefix("::") {
        Some(more) => tree(more, &path, found),
        None => {
            found.push(path);
            behind
        }
    }
}

fn behind_alias(text: &str) -> &str {
    let Some(alias) = text.trim_start().strip_prefix("as ") else { return text };
    alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
}

/// The modules that `one` reaches and that reach it, itself included.
fn circle_of(one: &Module, graph: &Graph) -> BTreeSet<Module> {
    let forth = reached(one, graph);
    let back = forth.into_iter().filter(|other| reached(other, graph).contains(one));
    back.chain([one.clone()]).collect()
}

fn reached(from: &Module, graph: &Graph) -> BTreeSet<Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        for other in graph.get(next).into_iter().flatten() {
            if seen.insert(other.clone()) {
                open.push(other);
            }
        }
    }
    seen
}

#[test]
fn paths_are_read_from_trees() {
    let module = vec!["a".to_owned(), "b".to_owned()];
    let text = "use crate::{x, y::{z as w, v}};\nuse super::c::D; // crate::not\n\
        let _ = super::super::e(xcrate::no);";
    let found: Vec<String> = paths(text, &module).iter().map(|path| path.join("/")).collect();
    assert_eq!(found, ["x", "y/z", "y/v", "a/c/D", "e"]);
}
