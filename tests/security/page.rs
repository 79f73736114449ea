//! docs/security.md, as the tests read it.

use std::collections::BTreeMap;

use testkit::kafka::Grant;

const PAGE: &str = include_str!("../../docs/security.md");

/// The fenced block after `<!-- tested: name -->`.
pub fn block(name: &str) -> &'static str {
    let mark = format!("<!-- tested: {name} -->");
    let (_, after) = PAGE.split_once(&mark).unwrap_or_else(|| panic!("docs/security.md has no {mark}"));
    let (_, block) = after.split_once("```").unwrap().1.split_once('\n').unwrap();
    block.split_once("```").unwrap().0
}

/// The blocks with `acl` lines.
pub fn acl_blocks() -> impl Iterator<Item = &'static str> {
    let marked = PAGE.split("<!-- tested: ").skip(1).filter_map(|rest| rest.split(" -->").next());
    marked.filter(|name| !block_lines(name).is_empty())
}

/// The `acl ...` lines of a block, with the names in the page's examples replaced by a test's.
pub fn acl_lines(name: &str, names: &BTreeMap<String, String>) -> Vec<String> {
    let lines: Vec<String> = block_lines(name).into_iter().map(|line| renamed(line, names)).collect();
    assert!(!lines.is_empty(), "{name} has no line that begins with acl");
    lines
}

/// The arguments of a block's `acl` lines, as they stand on the page.
pub fn block_lines(name: &str) -> Vec<&'static str> {
    block(name).lines().filter_map(|line| line.strip_prefix("acl ")).collect()
}

pub fn grants(lines: &[String]) -> Vec<Grant> {
    lines.iter().map(|line| Grant::parse(line).unwrap()).collect()
}

/// Replaces whole words.
fn renamed(line: &str, names: &BTreeMap<String, String>) -> String {
    let word = |word| names.get(word).map_or(word, String::as_str);
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The words after `ACL SETUSER` and the user on the page, with another prefix and password.
pub fn redis_rights(name: &str, prefix: &str, password: &str) -> Vec<String> {
    let line = block(name).trim().strip_prefix("ACL SETUSER weir").expect("the page's line");
    let (_, line) = line.split_once(' ').expect("rights behind the user");
    let word = |word: &str| match word {
        ">password" => format!(">{password}"),
        "~weir:*" => format!("~{prefix}:*"),
        other => other.to_owned(),
    };
    line.split_whitespace().map(word).collect()
}
