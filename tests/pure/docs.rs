//! The docs say what the code does: every header, reason and right stands in them.

use std::{fs, path::Path};

use weir_core::{dead_letter::DeadLetterReason, header::HeaderName, verdict::SuppressReason};

fn doc(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
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
