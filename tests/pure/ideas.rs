//! The ideas of core, as ARCHITECTURE.md lists them: none refers to one that is after it.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    docs::{quoted, read, repository},
    tidy::{bracketed, code, is_test, parts, sources, without_comments},
};

const CORE: &str = "crates/core/src";

/// The rows of core's ideas in the table of modules, in their order: the name, and the row.
fn ideas() -> Vec<(String, String)> {
    let page = read("ARCHITECTURE.md");
    let (_, rows) = page.split_once(&format!("\n| `{CORE}/` | ")).expect("the ideas of core");
    let others = rows.lines().skip(1).map_while(|row| row.strip_prefix("| | "));
    let rows = rows.lines().take(1).chain(others);
    rows.map(|row| (quoted(row).next().unwrap().to_owned(), row.to_owned())).collect()
}

fn first_name(path: &str) -> &str {
    path.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').next().unwrap_or_default()
}

/// The modules of the root that a text names, where it stands in a module so many levels below the root.
fn named(text: &str, depth: usize) -> BTreeSet<String> {
    let text = text.replace(&"super::".repeat(depth), "crate::");
    let paths = text.match_indices("crate::").map(|(at, root)| &text[at + root.len()..]);
    let names = paths.flat_map(|path| match bracketed(path).strip_prefix('{') {
        Some(tree) => parts(&tree[..tree.len() - 1]),
        None => vec![path],
    });
    names.map(|path| first_name(path).to_owned()).collect()
}

/// How many levels below the root the module of a file is.
fn depth(file: &Path) -> usize {
    let inside = file.strip_prefix(CORE).unwrap();
    inside.components().count() - usize::from(file.ends_with("mod.rs"))
}

#[test]
fn names_of_the_root_are_found_in_trees_and_alone() {
    let text =
        "use crate::{a::{B, c}, d};\nuse super::super::e::F;\nuse super::g;\npub use crate::h;\nlet i = crate::i::j();";
    assert_eq!(named(text, 2).into_iter().collect::<String>(), "adehi");
    assert_eq!(depth(Path::new("crates/core/src/a/b.rs")), 2);
    assert_eq!(depth(Path::new("crates/core/src/a/mod.rs")), 1);
}

#[test]
fn no_idea_of_core_refers_to_a_later_one() {
    let ideas: Vec<String> = ideas().into_iter().map(|(idea, _)| idea).collect();
    let place = |name: &str| ideas.iter().position(|idea| idea == name);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, text) in sources(CORE) {
        let inside = path.strip_prefix(CORE).unwrap();
        let Some(own) = place(first_name(&inside.display().to_string())).filter(|_| !is_test(&path)) else { continue };
        let names = named(&without_comments(code(&text)), depth(&path));
        seen += names.len();
        let later = names.iter().filter(|name| place(name.as_str()).is_some_and(|place| place > own));
        wrong.extend(
            later.map(|name| format!("{} refers to `{name}`, which is after `{}`", path.display(), ideas[own])),
        );
    }
    assert!(ideas.len() > 5 && seen > 200, "{ideas:?}, {seen} paths: the test looks in the wrong place");
    assert!(wrong.is_empty(), "by the order of ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

#[test]
fn architecture_has_every_module_of_an_idea() {
    let mut missing = Vec::new();
    for (idea, row) in ideas() {
        // One that is a file alone has none.
        let text = fs::read_to_string(repository(&format!("{CORE}/{idea}/mod.rs"))).unwrap_or_default();
        let modules = text.lines().filter_map(|line| line.strip_prefix("pub")?.split_once("mod ")?.1.strip_suffix(';'));
        missing
            .extend(modules.filter(|name| !row.contains(&format!("`{name}`"))).map(|name| format!("{idea}::{name}")));
    }
    assert!(missing.is_empty(), "the rows of core in ARCHITECTURE.md lack {missing:?}");
}
