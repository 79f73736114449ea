//! What reviewers would repeat: how long a file may be, where `unsafe` is. The compiler checks who may import
//! whom: see the crates.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Longest file, in lines; tests that live in a file of their own are not counted.
const LONGEST_FILE: usize = 400;
/// Longest program in examples/, in lines.
const LONGEST_EXAMPLE: usize = 60;

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    files(folder, &["rs", "lua"])
}

/// The files with such names in a folder, and in those within it.
fn files(folder: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root).unwrap().to_owned(), text));
        }
    }
    assert!(!found.is_empty(), "no sources under {folder}: the test looks in the wrong place");
    found
}

/// The part of a file that is not its test module, where that is in the file itself.
fn code(text: &str) -> &str {
    const TESTS: &str = "\n#[cfg(test)]\nmod ";
    let is_inside = |at: &usize| text[at + TESTS.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
    text.match_indices(TESTS).map(|(at, _)| at).find(is_inside).map_or(text, |at| &text[..at])
}

fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests") || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn no_file_is_longer_than_one_can_read() {
    let mut wrong = Vec::new();
    for folder in ["src", "crates", "lua", "testkit", "xtask"] {
        for (path, text) in sources(folder) {
            let lines = code(&text).lines().count();
            if lines > LONGEST_FILE && !is_test(&path) {
                wrong.push(format!("{} has {lines} lines, {LONGEST_FILE} at most", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_example_is_read_in_a_minute() {
    let languages = [("python", "py"), ("java", "java"), ("go", "go"), ("node", "js")];
    let mut wrong = Vec::new();
    for (folder, ending) in languages {
        let programs = files(&format!("examples/{folder}"), &[ending]);
        for (path, text) in programs.iter().filter(|(_, text)| text.lines().count() > LONGEST_EXAMPLE) {
            wrong.push(format!("{} has {} lines, {LONGEST_EXAMPLE} at most", path.display(), text.lines().count()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_is_in_the_kafka_edge_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = [
        "src/lib.rs",
        "src/main.rs",
        "crates/core/src/lib.rs",
        "crates/redis/src/lib.rs",
        "crates/schemas/src/lib.rs",
        "crates/worker/src/lib.rs",
    ];
    for path in crates {
        let text = fs::read_to_string(root.join(path)).unwrap();
        assert!(text.contains("\n#![forbid(unsafe_code)]\n"), "{path} does not forbid unsafe code");
    }
    let mut wrong = Vec::new();
    for (path, text) in sources("crates/kafka/src") {
        let has = code(&text).lines().any(|line| line.split("//").next().unwrap_or("").contains("unsafe "));
        if has && path != Path::new("crates/kafka/src/native.rs") && !path.starts_with("crates/kafka/src/native") {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "unsafe outside of crates/kafka/src/native: {}", wrong.join(", "));
}

#[test]
fn nothing_names_a_machine() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut wrong = Vec::new();
    for (path, text) in ["src", "crates", "lua", "testkit", "xtask", "tests"].iter().flat_map(|folder| sources(folder))
    {
        if text.contains(root) || text.contains(concat!("/ro", "ot/")) {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "an absolute path of a machine is in: {}", wrong.join(", "));
}

#[test]
fn rules_are_cited_where_readers_find_them() {
    // Others' words for it, and the words of a test of it.
    let cites = ["the contract", "contract section", "(contract", "contract's", "contract.md"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.chain([root.join("README.md"), root.join("ARCHITECTURE.md")]).filter(|path| path.is_file());
    let docs = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let docs = docs.map(|path| (path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
    let code = ["src", "crates", "tests", "testkit", "xtask"].iter().flat_map(|folder| sources(folder));
    let mut wrong = Vec::new();
    for (path, text) in docs.chain(code).filter(|(path, _)| *path != Path::new("tests/pure/tidy.rs")) {
        let lines =
            text.lines().enumerate().filter(|(_, line)| cites.iter().any(|cite| line.to_lowercase().contains(cite)));
        wrong.extend(lines.map(|(number, line)| format!("{}:{}: {line}", path.display(), number + 1)));
    }
    assert!(wrong.is_empty(), "cite the project's own docs instead:\n{}", wrong.join("\n"));
}
