//! The page: self-contained, whole, and harmless whatever things are called.

use serde_json::json;

use super::runs::{Folder, HOUR_MS, intent};
use crate::support::contains_all;

const HOSTILE: &str = "<script>alert('x')</script>";

fn page(args: &[&str]) -> String {
    let folder = Folder::new();
    for (file, limit) in [("a.toml", 1), ("b.toml", 3)] {
        let policy = format!(
            "version = \"{HOSTILE}\"\n[default]\ncaps = [{{ name = \"{HOSTILE}\", limit = {limit}, window = \"24h\" }}]\n"
        );
        folder.write(file, &policy);
    }
    let intents = (0..40).map(|at| {
        let class = json!({"user_id": format!("{HOSTILE}{}", at % 4), "channel": HOSTILE, "category": "a&b\"c"});
        intent(&format!("i{at}"), at * HOUR_MS, class)
    });
    folder.write_lines("intents", intents);
    let all = ["--policy", "a.toml", "--intents", "intents", "--no-segments", "--html", "page.html"];
    folder.says(&[&all[..], args].concat());
    std::fs::read_to_string(folder.path("page.html")).unwrap()
}

#[test]
fn the_page_needs_nothing_else_and_its_names_are_harmless() {
    for args in [&[][..], &["--against", "b.toml"]] {
        let page = page(args);
        for word in ["http://", "https://", "<script", "src=", "href=", "@import", "url(", "javascript:"] {
            assert!(!page.contains(word), "{word} in {page}");
        }
        assert!(page.contains("&lt;script&gt;") || page.contains("&#60;script&#62;"));
        assert!(page.contains("default-src 'none'"), "and the browser is told so");
    }
}

#[test]
fn the_page_is_well_formed_has_the_figures_and_tells_its_plots_in_words() {
    let page = page(&["--against", "b.toml"]);
    is_well_formed(&page);
    assert_eq!(page.matches("<svg").count(), 4);
    for part in ["role=\"img\"", "<title id=", "<desc id="] {
        assert_eq!(page.matches(part).count(), 4, "{part}");
    }
    assert!(page.matches("<table>").count() >= 6 && page.matches("scope=\"row\"").count() > 10);
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("lang=\"en\"") && page.contains("viewport"));
    // Four users with an intent every four hours for 40 hours: one a day under the first, three under the second.
    contains_all(&page, &["<strong>8</strong> sent, <strong>32</strong> suppressed", "40 records of 4 users"]);
    contains_all(&page, &["0 users get more under the policy, 4 fewer"]);
}

/// Every element that is opened is closed, in order, and no sign stands where markup could begin.
fn is_well_formed(page: &str) {
    const EMPTY: [&str; 2] = ["meta", "!doctype"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert!(!tag.contains('<'), "{tag}");
        let name = tag.trim_end_matches('/').split_whitespace().next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !EMPTY.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}
