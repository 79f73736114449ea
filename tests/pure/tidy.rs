//! What reviewers would repeat: who may import whom, how long a file may be, where `unsafe` is.

use std::{
    collections::BTreeSet,
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

/// The part of a file that is not its test module, where that is in the file itself.
fn code(text: &str) -> &str {
    const TESTS: &str = "\n#[cfg(test)]\nmod ";
    let is_inside = |at: &usize| text[at + TESTS.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
    text.match_indices(TESTS).map(|(at, _)| at).find(is_inside).map_or(text, |at| &text[..at])
}

fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests") || path.components().any(|part| part.as_os_str() == "tests")
}

/// What each room may import of this crate, by the beginning of the path.
const ROOMS: [(&str, &[&str]); 6] = [
    ("src/domain", &["domain"]),
    ("src/edge", &["domain", "edge", "document", "authorities", "worker::ports"]),
    ("src/worker", &["domain", "worker"]),
    ("src/config", &["config", "document", "domain", "authorities"]),
    ("src/document", &["document"]),
    ("src/metrics", &["metrics", "domain"]),
];

/// Imports that a room should not have and has today: crates with these borders will not allow them. None is to be added.
const EXCEPTIONS: [(&str, &[&str]); 26] = [
    ("src/edge/http/connections.rs", &["metrics"]),
    ("src/edge/http/decisions.rs", &["worker::inquiry"]),
    ("src/edge/http/inquiries.rs", &["worker::inquiry"]),
    ("src/edge/http/measure.rs", &["metrics"]),
    ("src/edge/http/mod.rs", &["metrics", "worker::inquiry", "worker::refresh", "worker::vitals"]),
    ("src/edge/http/openapi.rs", &["worker::inquiry"]),
    ("src/edge/http/page/events.rs", &["worker::clock", "worker::vitals"]),
    ("src/edge/http/router.rs", &["metrics"]),
    ("src/edge/http/server.rs", &["metrics"]),
    ("src/edge/http/users.rs", &["worker::inquiry"]),
    ("src/edge/kafka/client.rs", &["worker::limits", "worker::record"]),
    ("src/edge/kafka/limits.rs", &["worker::record"]),
    ("src/edge/kafka/native.rs", &["worker::record"]),
    ("src/edge/kafka/native/produce.rs", &["worker::record"]),
    ("src/edge/kafka/outbox.rs", &["worker::record"]),
    ("src/edge/kafka/range.rs", &["worker::record"]),
    ("src/edge/kafka/sink.rs", &["worker::record"]),
    ("src/edge/kafka/read_before.rs", &["worker::record"]),
    ("src/edge/kafka/source.rs", &["worker::record"]),
    ("src/edge/kafka/span.rs", &["worker::record"]),
    ("src/edge/kafka/waves.rs", &["worker::record"]),
    ("src/edge/policy_file/source.rs", &["worker::refresh"]),
    ("src/edge/redis/health.rs", &["worker::vitals"]),
    ("src/edge/redis/refunds.rs", &["worker::refunds"]),
    ("src/edge/segments.rs", &["worker::refresh"]),
    ("src/metrics.rs", &["worker::ports"]),
];
/// Files of the worker that count by themselves, or describe themselves to OpenAPI: the same.
const WORKER_EXCEPTIONS: [(&str, &[&str]); 9] = [
    ("src/worker/desk.rs", &["metrics"]),
    ("src/worker/inquiry.rs", &["metrics"]),
    ("src/worker/inquiry/view.rs", &["utoipa"]),
    ("src/worker/lane.rs", &["metrics"]),
    ("src/worker/lane/owed.rs", &["metrics"]),
    ("src/worker/lane/serving.rs", &["metrics"]),
    ("src/worker/output.rs", &["metrics"]),
    ("src/worker/refunds.rs", &["metrics"]),
    ("src/worker/vitals.rs", &["metrics"]),
];

/// Words of other crates, and of the standard library, that a room must not have.
const WORDS: [(&str, &[&str]); 3] = [
    (
        "src/domain",
        &[
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
    ("src/worker", &["rdkafka", "redis::", "aws_sdk_s3", "utoipa"]),
    ("src/config", &["rdkafka::", "use redis"]),
];

/// A file without comments and its test module.
fn bare(text: &str) -> String {
    code(text).lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The paths that a tree of imports stands for: `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let (mut all, mut depth, mut begin) = (Vec::new(), 0_i32, 0);
    for (at, sign) in inside.char_indices().chain([(inside.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inside[begin..at].trim();
                all.extend(paths(part).iter().filter(|_| !part.is_empty()).map(|path| format!("{before}{path}")));
                begin = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// What a file uses of this crate: `worker::ports::Store`.
fn uses(text: &str) -> Vec<String> {
    let text = bare(text);
    let mut all = Vec::new();
    for part in text.split("crate::").skip(1) {
        let end = part.find([';', '(', ')', '<', '>', ' ', ',']).unwrap_or(part.len());
        // A tree goes on to its end; a path within code ends where a path ends.
        let tree = if part[..end].contains('{') { part.split(';').next().unwrap_or(part) } else { &part[..end] };
        all.extend(paths(tree));
    }
    all
}

#[test]
fn trees_of_imports_are_seen_through() {
    let text = "use crate::{\n    domain::{a::B, c::{self, D}},\n    metrics::Metrics, // crate::cli\n};\nimpl crate::worker::X for Y {}";
    assert_eq!(uses(text), ["domain::a::B", "domain::c::self", "domain::c::D", "metrics::Metrics", "worker::X"]);
}

#[test]
fn rooms_import_only_what_they_may() {
    let is_in = |path: &str, of: &str| path == of || path.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"));
    let mut unused: BTreeSet<(&str, &str)> = EXCEPTIONS
        .iter()
        .chain(&WORKER_EXCEPTIONS)
        .flat_map(|(file, words)| words.iter().map(move |word| (*file, *word)))
        .collect();
    let excepted: BTreeSet<(&str, &str)> = unused.clone();
    let mut wrong = Vec::new();
    for (folder, allowed) in ROOMS {
        let file = sources("src").into_iter().filter(|(path, _)| *path == Path::new(&format!("{folder}.rs")));
        for (path, text) in sources(folder).into_iter().chain(file).filter(|(path, _)| !is_test(path)) {
            let path = path.display().to_string();
            for found in uses(&text).iter().filter(|found| !allowed.iter().any(|allowed| is_in(found, allowed))) {
                match excepted.iter().find(|(file, word)| *file == path && is_in(found, word)) {
                    Some(exception) => _ = unused.remove(exception),
                    None => wrong.push(format!("{path}: {folder} must not use crate::{found}")),
                }
            }
        }
    }
    for (folder, words) in WORDS {
        for (path, text) in sources(folder).into_iter().filter(|(path, _)| !is_test(path)) {
            let (path, text) = (path.display().to_string(), bare(&text));
            for word in words.iter().filter(|word| text.contains(**word)) {
                match excepted.iter().find(|(file, excepted)| *file == path && excepted == word) {
                    Some(exception) => _ = unused.remove(exception),
                    None => wrong.push(format!("{path}: {folder} must not use {word}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "take these exceptions off the list, they are none any more: {unused:?}");
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

#[test]
fn rules_are_cited_where_readers_find_them() {
    // Others' words for it, and the words of a test of it.
    let cites = ["the contract", "contract section", "(contract", "contract's", "contract.md"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.chain([root.join("README.md"), root.join("ARCHITECTURE.md")]).filter(|path| path.is_file());
    let docs = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let docs = docs.map(|path| (path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
    let code = ["src", "tests", "testkit", "xtask"].iter().flat_map(|folder| sources(folder));
    let mut wrong = Vec::new();
    for (path, text) in docs.chain(code).filter(|(path, _)| *path != Path::new("tests/pure/tidy.rs")) {
        let lines =
            text.lines().enumerate().filter(|(_, line)| cites.iter().any(|cite| line.to_lowercase().contains(cite)));
        wrong.extend(lines.map(|(number, line)| format!("{}:{}: {line}", path.display(), number + 1)));
    }
    assert!(wrong.is_empty(), "cite the project's own docs instead:\n{}", wrong.join("\n"));
}

/// Every file and folder of the repository that is ours, relative.
fn everything() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut waiting, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = waiting.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // What is built, installed or the version control's.
            if name.starts_with('.') || name == "target" {
                continue;
            }
            found.push(path.strip_prefix(root).unwrap().display().to_string());
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    found
}

#[test]
fn the_architecture_names_what_is_there_and_nothing_else() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let everything = everything();
    let words: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let mut wrong = Vec::new();
    for word in &words {
        let path = word.trim_end_matches('/');
        let is_path = word.contains('/') && !word.starts_with('/') && !word.contains("://")
            || [".rs", ".lua", ".md", ".toml", ".yml"].iter().any(|ending| word.ends_with(ending));
        let is_there = || everything.iter().any(|there| there == path || there.ends_with(&format!("/{path}")));
        if is_path && !word.contains(' ') && !is_there() {
            wrong.push(format!("names `{word}`, which is not there"));
        }
    }
    for folder in everything.iter().filter(|path| !path.contains('/') && Path::new(path).extension().is_none()) {
        let is_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).is_dir();
        if is_folder
            && !words.iter().any(|word| word.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/')))
        {
            wrong.push(format!("omits the folder {folder}/"));
        }
    }
    for room in ["src", "src/domain", "src/edge", "src/worker", "src/cli"] {
        let modules = everything.iter().filter_map(|path| path.strip_prefix(&format!("{room}/")));
        let modules = modules.filter(|rest| !rest.contains('/') && rest.ends_with(".rs") && *rest != "mod.rs");
        let modules: BTreeSet<&str> = modules.map(|rest| rest.trim_end_matches(".rs")).collect();
        let named = |module: &str| {
            words.iter().any(|word| {
                *word == module || word.trim_end_matches('/').trim_end_matches(".rs").ends_with(&format!("/{module}"))
            })
        };
        wrong.extend(modules.iter().filter(|module| !named(module)).map(|module| format!("omits {room}/{module}.rs")));
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md\n{}", wrong.join("\n"));
}
