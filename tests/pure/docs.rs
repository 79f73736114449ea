//! The docs say what the code does: every header and reason is in them, and every path, module and link leads somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use weir_core::{dead_letter::DeadLetterReason, header::HeaderName, verdict::SuppressReason};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
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

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
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

#[test]
fn every_path_in_readme_and_architecture_exists() {
    let is_path = |word: &&str| {
        let shape = word.chars().all(|sign| sign.is_ascii_alphanumeric() || "/._-".contains(sign));
        shape && word.contains('/') && !word.starts_with('/') && !word.starts_with("target/")
    };
    let mut wrong = Vec::new();
    for page in ["README.md", "ARCHITECTURE.md"] {
        let text = read(page);
        let absent = quoted(&text).filter(is_path).filter(|path| !repository(path).exists());
        wrong.extend(absent.map(|path| format!("{page}: `{path}`")));
    }
    assert!(wrong.is_empty(), "these paths do not exist: {}", wrong.join(", "));
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
    let of_root = names(".").into_iter().filter(|name| name.ends_with(".md"));
    let of_docs = names("docs").into_iter().filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let mut wrong = Vec::new();
    for page in of_root.chain(of_docs).chain(["examples/README.md".to_owned()]) {
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
