//! What reviewers would repeat: who may import whom, how long a file may be, where `unsafe` is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Longest file, in lines; tests that live in a file of their own are not counted.
const LONGEST_FILE: usize = 400;

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "lua") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root).unwrap().to_owned(), text));
        }
    }
    assert!(!found.is_empty(), "no sources under {folder}: the test looks in the wrong place");
    found
}

/// The part of a file that is not its test module.
fn code(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests") || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn rooms_import_only_what_they_may() {
    let forbidden: &[(&str, &[&str])] = &[
        (
            "src/domain",
            &[
                "crate::edge",
                "crate::worker",
                "crate::cli",
                "crate::config",
                "crate::metrics",
                "tokio",
                "std::fs",
                "std::net",
                "std::io",
                "std::thread",
                "std::env",
                "SystemTime",
                "Instant",
                "tracing",
                "rdkafka",
                "redis::",
                "rand::",
                "async fn",
                ".await",
            ],
        ),
        ("src/edge", &["crate::cli", "crate::config"]),
        ("src/worker", &["crate::edge", "crate::cli", "crate::config", "rdkafka", "redis::", "aws_sdk_s3"]),
        ("src/config", &["crate::worker", "crate::edge", "crate::cli", "rdkafka::", "use redis"]),
    ];
    let mut wrong = Vec::new();
    for (folder, words) in forbidden {
        for (path, text) in sources(folder).into_iter().filter(|(path, _)| !is_test(path)) {
            for (number, line) in code(&text).lines().enumerate() {
                let line = line.split("//").next().unwrap_or("");
                for word in words.iter().filter(|word| line.contains(**word)) {
                    wrong.push(format!("{}:{}: {folder} must not use {word}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_longer_than_one_can_read() {
    let mut wrong = Vec::new();
    for folder in ["src", "lua", "testkit", "xtask"] {
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
fn unsafe_code_is_in_one_place() {
    let mut wrong = Vec::new();
    for (path, text) in sources("src") {
        let has = code(&text).lines().any(|line| line.split("//").next().unwrap_or("").contains("unsafe "));
        if has && path != Path::new("src/edge/kafka/native.rs") && !path.starts_with("src/edge/kafka/native") {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "unsafe outside of src/edge/kafka/native: {}", wrong.join(", "));
}

#[test]
fn nothing_names_a_machine() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut wrong = Vec::new();
    for (path, text) in ["src", "lua", "testkit", "xtask", "tests"].iter().flat_map(|folder| sources(folder)) {
        if text.contains(root) || text.contains(concat!("/ro", "ot/")) {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "an absolute path of a machine is in: {}", wrong.join(", "));
}
