//! What reviewers would repeat: how long a file may be, where `unsafe` is. The compiler checks who may import
//! whom: see the crates.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Longest file, in lines; tests that live in a file of their own are not counted.
const LONGEST_FILE: usize = 400;
/// Longest program in examples/, in lines.
const LONGEST_EXAMPLE: usize = 60;
/// The most values that a function takes. `too-many-arguments-threshold` says so of parameters, and counts a tuple as one.
const MOST_VALUES: usize = 5;

/// How often a type may have the same name as others.
const MOST_NAMESAKES: usize = 2;

pub(super) fn sources(folder: &str) -> Vec<(PathBuf, String)> {
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
pub(super) fn code(text: &str) -> &str {
    const TESTS: &str = "\n#[cfg(test)]\nmod ";
    let is_inside = |at: &usize| text[at + TESTS.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
    text.match_indices(TESTS).map(|(at, _)| at).find(is_inside).map_or(text, |at| &text[..at])
}

pub(super) fn is_test(path: &Path) -> bool {
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

/// The text up to the bracket that ends what it begins with.
pub(super) fn bracketed(text: &str) -> &str {
    let (mut depth, mut before) = (0, ' ');
    for (at, sign) in text.char_indices() {
        match sign {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // Not of an arrow.
            '>' if !['-', '='].contains(&before) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..=at];
        }
        before = sign;
    }
    text
}

/// What is between the commas of the text, but for those in brackets.
pub(super) fn parts(mut text: &str) -> Vec<&str> {
    let (mut parts, mut from) = (Vec::new(), 0);
    while let Some(at) = text[from..].find(|sign: char| "([{<,".contains(sign)).map(|at| from + at) {
        if text[at..].starts_with(',') {
            parts.push(&text[..at]);
            (text, from) = (&text[at + 1..], 0);
        } else {
            from = at + bracketed(&text[at..]).len();
        }
    }
    parts.push(text);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// How many values a pattern or a type has: as many as are in a tuple, else one.
fn values(text: &str) -> usize {
    let Some((before, inner)) = text.trim().strip_suffix(')').and_then(|text| text.split_once('(')) else { return 1 };
    let is_reference = |word: &str| word == "mut" || word.starts_with(['&', '\'']);
    if !before.split_whitespace().all(is_reference) {
        return 1;
    }
    parts(inner).into_iter().map(values).sum::<usize>().max(1)
}

/// How many values a parameter has, by its pattern or its type.
fn values_of(parameter: &str) -> usize {
    let mut colons = parameter.match_indices(": ").map(|(at, _)| at);
    // Of a pattern, a colon is in braces.
    let is_outside = |at: &usize| parameter[..*at].matches('{').count() == parameter[..*at].matches('}').count();
    colons.find(is_outside).map_or(1, |at| values(&parameter[..at]).max(values(&parameter[at + 2..])))
}

/// The functions of a text that have a tuple among their parameters: their names, and how many values they take.
fn takes_tuples(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let name = &text[at + 3..];
        let end = name.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(name.len());
        let (name, mut rest) = name.split_at(end);
        if rest.starts_with('<') {
            rest = &rest[bracketed(rest).len()..];
        }
        let Some(parameters) = bracketed(rest).strip_prefix('(') else { continue };
        let values: Vec<usize> = parts(&parameters[..parameters.len() - 1]).into_iter().map(values_of).collect();
        if values.iter().any(|values| *values > 1) {
            found.push((name, values.iter().sum()));
        }
    }
    found
}

/// A text without what is behind `//`.
pub(super) fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn values_are_counted_in_tuples() {
    let text = "fn one<F: Fn(u8) -> (u8, u8)>(&mut self, (a, b): (&str, F), c: &'a (u8, (u8, Vec<(u8, u8)>))) -> u8 {}
        fn two(a: impl Fn((u8, u8), u8) -> u8, Pair { a: b, c }: Pair, Both(d, e): Both, f: [(u8, u8); 2], g: ()) {}
        fn three(\n    (a, b): (u8, u8),\n) {}";
    assert_eq!(takes_tuples(text), [("one", 6), ("three", 2)]);
}

#[test]
fn no_function_takes_more_values_than_it_may_have_parameters() {
    let mut wrong = Vec::new();
    for (path, text) in ["src", "crates"].iter().flat_map(|folder| sources(folder)) {
        if path.extension().is_none_or(|ending| ending != "rs") || is_test(&path) {
            continue;
        }
        let text = without_comments(code(&text));
        for (name, values) in takes_tuples(&text).into_iter().filter(|(_, values)| *values > MOST_VALUES) {
            wrong.push(format!("{}: {name} takes {values} values, {MOST_VALUES} at most", path.display()));
        }
    }
    assert!(wrong.is_empty(), "give what belongs together a name, as a struct:\n{}", wrong.join("\n"));
}

/// The name of the type that a line defines. Those of traits and their implementations are theirs.
fn defined(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(public) => public.split_once(' ')?.1,
        None => item,
    };
    let (keyword, name) = item.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "union"].contains(&keyword) || (keyword == "type" && !is_indented);
    let end = name.find(|sign: char| !sign.is_alphanumeric()).unwrap_or(name.len());
    (is_type && end > 0).then_some(&name[..end])
}

#[test]
fn a_type_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in ["src", "crates"].iter().flat_map(|folder| sources(folder)) {
        if is_test(&path) {
            continue;
        }
        for (number, line) in code(&text).lines().enumerate() {
            if let Some(name) = defined(line) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert_eq!(places.get("SettingRow").map(Vec::len), Some(1), "the test looks in the wrong place");
    places.retain(|_, places| places.len() > MOST_NAMESAKES);
    assert!(places.is_empty(), "say in the name what a type is of: {places:#?}");
}

/// The names that the lines of a Lua file define for all of its script.
fn locals(lua: &str) -> impl Iterator<Item = &str> {
    let defined = lua.lines().filter_map(|line| line.strip_prefix("local "));
    let names = defined.map(|rest| match rest.strip_prefix("function ") {
        Some(function) => function.split('(').next().unwrap_or(function),
        None => rest.split('=').next().unwrap_or(rest),
    });
    names.flat_map(|names| names.split(',')).map(str::trim)
}

#[test]
fn no_script_defines_a_name_twice() {
    let lua: BTreeMap<String, String> =
        files("lua", &["lua"]).into_iter().map(|(path, text)| (path.display().to_string(), text)).collect();
    let (_, scripts) =
        sources("crates/redis/src").into_iter().find(|(path, _)| path.ends_with("script.rs")).expect("the list");
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for script in scripts.split("=> script!(").skip(1) {
        // The first of the quoted words is its flags.
        let files = script.split(')').next().unwrap_or_default().split('"').skip(1).step_by(2).skip(1);
        let (mut defined, mut of) = (BTreeMap::new(), Vec::new());
        for file in ["prelude"].into_iter().chain(files) {
            of.push(file);
            for name in locals(&lua[&format!("lua/{file}.lua")]) {
                if let Some(before) = defined.insert(name, file) {
                    wrong.push(format!("{name} is in lua/{before}.lua and again in lua/{file}.lua: {of:?}"));
                }
            }
        }
        seen += 1;
    }
    assert!(seen > 10, "the test looks in the wrong place");
    assert!(wrong.is_empty(), "Lua would take the later one and say nothing:\n{}", wrong.join("\n"));
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
    let crates = ["core", "oracle", "redis", "schemas", "worker"].map(|name| format!("crates/{name}/src/lib.rs"));
    for path in crates.into_iter().chain(["src/lib.rs", "src/main.rs"].map(str::to_owned)) {
        let text = fs::read_to_string(root.join(&path)).unwrap();
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

/// rdkafka's own one polls until librdkafka has closed it, however long that takes. Clippy cannot tell it from one without a group.
#[test]
fn a_consumer_of_a_group_in_tests_ends_at_a_deadline() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, text) in ["tests", "testkit", "benches"].iter().flat_map(|folder| sources(folder)) {
        let names_a_group = text.contains(concat!("set(\"group", ".id\""));
        seen += usize::from(names_a_group);
        if names_a_group
            && [concat!("Base", "Consumer"), concat!("Stream", "Consumer")].iter().any(|name| text.contains(name))
        {
            wrong.push(path.display().to_string());
        }
    }
    assert!(seen > 5, "the test looks in the wrong place");
    assert!(wrong.is_empty(), "take testkit's BoundedConsumer for all consumers in: {}", wrong.join(", "));
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
