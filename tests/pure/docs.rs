//! The docs say what the code does: every header and reason is in them, and every path, module and link leads somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use weir_core::{basis::header::HeaderName, decision::verdict::SuppressReason, intent::dead_letter::DeadLetterReason};

pub(super) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(super) fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// Compares a file with what the code makes of it, or writes it where UPDATE is set.
#[track_caller]
pub(super) fn is_current(path: &str, made: impl Fn(&str) -> String) {
    let found = fs::read_to_string(repository(path)).unwrap_or_default();
    let made = made(&found);
    if std::env::var_os("UPDATE").is_some() {
        return fs::write(repository(path), &made).unwrap();
    }
    assert!(found == made, "{path} is not what the code says: UPDATE=1 cargo test --test pure writes it");
}

fn doc(name: &str) -> String {
    read(&format!("docs/{name}"))
}

/// The names in a folder, without hidden ones and what builds leave.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(repository(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.') && name != "target").collect()
}

/// Every page that people read: of the root, of `docs/`, and beside the examples, the chart and the benches.
pub(super) fn pages() -> Vec<String> {
    let pages = |folder: &str| names(folder).into_iter().filter(|name| name.ends_with(".md"));
    let of_docs = pages("docs").map(|name| format!("docs/{name}"));
    let beside = ["examples/README.md", "deploy/helm/weir/README.md", "benches/NOTEBOOK.md"].map(str::to_owned);
    pages(".").chain(of_docs).chain(beside).collect()
}

/// The words in backticks.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn header_rows() -> String {
    let row = |name: HeaderName| {
        let (on, says) = name.meaning();
        format!("| `{}` | {on} | {says} |\n", name.as_str())
    };
    HeaderName::ALL.into_iter().map(row).collect()
}

#[test]
fn records_lists_every_header_as_the_code_has_it() {
    let rows = header_rows();
    assert!(doc("records.md").contains(&rows), "docs/records.md should have these rows:\n{rows}");
}

#[test]
fn records_lists_every_reason() {
    let doc = doc("records.md");
    let suppressed = SuppressReason::ALL.iter().map(|reason| reason.as_str());
    let dead = DeadLetterReason::ALL.iter().map(|reason| reason.as_str());
    let missing: Vec<&str> = suppressed.chain(dead).filter(|word| !doc.contains(&format!("| `{word}` |"))).collect();
    assert!(missing.is_empty(), "docs/records.md lacks {missing:?}");
}

/// Whether a word is a path within the repository, and not one that builds leave, of a server's, or in an example.
fn is_path(word: &str) -> bool {
    let is_source = word.ends_with(".rs") || word.ends_with(".lua");
    let is_inside = |first: &str| !["", ".", "..", "target", ".weir"].contains(&first) && repository(first).is_dir();
    word.chars().all(|sign| sign.is_ascii_alphanumeric() || "/._-".contains(sign))
        && word.split_once('/').is_some_and(|(first, rest)| is_source || !rest.is_empty() && is_inside(first))
}

#[test]
fn every_path_that_a_page_names_exists() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let text = read(&page);
        let words = quoted(&text).flat_map(str::split_whitespace);
        for path in words.map(|word| word.trim_end_matches(['.', ',', ':', ';'])).filter(|word| is_path(word)) {
            seen += 1;
            if !repository(path).exists() {
                wrong.push(format!("{page}: `{path}`"));
            }
        }
    }
    assert!(seen > 200, "only {seen} paths were found: the test looks in the wrong place");
    assert!(wrong.is_empty(), "these paths do not exist: {}", wrong.join(", "));
}

/// The files of a text and the names that follow each in parentheses: `` `file` (`name`, `name`) ``.
pub(super) fn files_and_names(text: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut found, mut before) = (Vec::new(), None::<&str>);
    for part in text.split("` (`") {
        if let Some(file) = before.and_then(|before| before.rsplit('`').next()) {
            let names = part.split(')').next().unwrap_or_default();
            found.push((file, names.split('`').step_by(2).filter(|name| !name.is_empty()).collect()));
        }
        before = Some(part);
    }
    found
}

#[test]
fn every_name_that_architecture_places_in_a_file_is_there() {
    let page = read("ARCHITECTURE.md");
    let pairs = files_and_names(&page);
    assert!(pairs.len() > 5, "only {} were found: the test looks for another form", pairs.len());
    let mut wrong = Vec::new();
    for (file, names) in pairs {
        let text = fs::read_to_string(repository(file)).unwrap_or_default();
        wrong.extend(names.iter().filter(|name| !text.contains(*name)).map(|name| format!("{file}: {name}")));
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md names what is not there: {}", wrong.join(", "));
}

#[test]
fn architecture_has_every_folder_and_crate() {
    let page = read("ARCHITECTURE.md");
    let folders = names(".").into_iter().chain(names("crates").into_iter().map(|name| format!("crates/{name}")));
    let folders = folders.filter(|name| repository(name).is_dir() && name != "crates");
    let missing: Vec<String> = folders.filter(|name| !page.contains(&format!("| `{name}/` |"))).collect();
    assert!(missing.is_empty(), "the components in ARCHITECTURE.md lack {missing:?}");
}

/// The files and folders of modules in a folder of sources; unit tests and the crate's root need no mention.
fn modules(folder: &str) -> BTreeSet<String> {
    let module = |name: String| name.strip_suffix(".rs").map(str::to_owned).or((!name.contains('.')).then_some(name));
    names(folder).into_iter().filter_map(module).filter(|name| name != "tests" && name != "lib").collect()
}

#[test]
fn architecture_has_every_module_and_no_other() {
    let page = read("ARCHITECTURE.md");
    let (_, table) = page.split_once("\n## Modules\n").expect("the table of modules");
    let (table, _) = table.split_once("\n## ").unwrap();
    let (mut folder, mut named) = (String::new(), BTreeSet::new());
    for row in table.lines().filter(|line| line.starts_with("| `") || line.starts_with("| |")) {
        let mut cells = row.split('|').skip(1);
        folder = quoted(cells.next().unwrap()).next().map_or(folder, str::to_owned);
        named.extend(quoted(cells.next().unwrap()).map(|module| format!("{folder}{module}")));
    }
    let crates = names("crates").into_iter().map(|name| format!("crates/{name}/src/"));
    let sources = crates.chain(["src/".to_owned()]);
    let there: BTreeSet<String> = sources
        .flat_map(|folder| modules(&folder).into_iter().map(move |module| format!("{folder}{module}")))
        .collect();
    let missing: Vec<&String> = there.difference(&named).collect();
    let wrong: Vec<&String> = named.difference(&there).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "ARCHITECTURE.md lacks {missing:?} and names {wrong:?}");
}

/// The anchors that a page's headings get.
pub(super) fn anchors(page: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let headings = page.lines().filter(|line| {
        in_code ^= line.trim_start().starts_with("```");
        !in_code && line.starts_with('#')
    });
    let anchor = |heading: &str| {
        let kept = |sign: &char| sign.is_alphanumeric() || "-_ ".contains(*sign);
        heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = read(&page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { repository(&page) } else { repository(&page).parent().unwrap().join(file) };
            let leads =
                file.exists() && (anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor));
            if !leads {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "these links lead nowhere: {}", wrong.join(", "));
}
