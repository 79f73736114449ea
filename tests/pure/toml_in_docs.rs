//! Each example in TOML is one that weir takes, and each setting that a page names exists.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use weir::config::keys::SETTINGS;
use weir_core::{
    basis::document::Format,
    policy::file::{parse_policy, schema_text},
};

use super::docs::{pages, quoted, read};
use crate::support::SMALLEST;

const HISTORY_MS: i64 = 8 * 24 * 60 * 60 * 1000;
/// What examples of a part of a policy leave out.
const POLICY: &str = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n";
/// The files with secrets that examples name.
const SECRETS: [&str; 4] = ["api-secret", "connection-string", "kafka-password", "redis-password"];
/// Where examples have files that production has.
const FOLDER: &str = "/etc/weir/";
/// Keys that a page shows and weir does not know: a channel of `[kafka.approved_by_channel]`.
const FREE_KEYS: [&str; 1] = ["email"];

/// The lines outside of fences, and the blocks in TOML.
fn taken_apart(page: &str) -> (String, Vec<String>) {
    let (mut prose, mut blocks) = (String::new(), Vec::new());
    let mut block: Option<(bool, String)> = None;
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            match block.take() {
                None => block = Some((language.trim() == "toml", String::new())),
                Some((is_toml, text)) => blocks.extend(is_toml.then_some(text)),
            }
            continue;
        }
        let text = block.as_mut().map_or(&mut prose, |(_, text)| text);
        text.push_str(line);
        text.push('\n');
    }
    (prose, blocks)
}

/// Puts the entries of one table over those of another.
fn put_over(table: &mut toml::Table, part: &toml::Table) {
    for (key, value) in part {
        if let (Some(inner), Some(part)) = (table.get_mut(key).and_then(toml::Value::as_table_mut), value.as_table()) {
            put_over(inner, part);
            continue;
        }
        table.insert(key.clone(), value.clone());
    }
}

fn over(base: &str, part: &toml::Table) -> String {
    let mut table: toml::Table = base.parse().unwrap();
    put_over(&mut table, part);
    table.to_string()
}

/// Why a block is neither a policy nor a configuration, nor a part of one.
fn refusal(block: &str, folder: &Path) -> Option<String> {
    let part = match block.replace(FOLDER, "").parse::<toml::Table>() {
        Ok(part) => part,
        Err(error) => return Some(error.to_string()),
    };
    let policy = if part.contains_key("version") { block.to_owned() } else { over(POLICY, &part) };
    let policy = parse_policy("policy.toml", &policy, Format::Toml, HISTORY_MS).err()?;
    let configuration = weir::config::parse("weir.toml", &over(SMALLEST, &part), folder, []).err()?;
    Some(format!("as a policy:\n{policy}\nas a configuration:\n{configuration}"))
}

#[test]
fn every_example_in_toml_is_a_policy_or_a_configuration_or_a_part_of_one() {
    let folder = testkit::folder();
    for name in SECRETS {
        fs::write(folder.path().join(name), "secret\n").unwrap();
    }
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in pages() {
        for block in taken_apart(&read(&page)).1 {
            seen += 1;
            wrong.extend(refusal(&block, folder.path()).map(|why| format!("{page}:\n{block}{why}")));
        }
    }
    assert!(seen > 15, "only {seen} blocks were found: the test looks for another form");
    assert!(wrong.is_empty(), "weir does not take these examples:\n{}", wrong.join("\n\n"));
}

/// The names of all members in a schema.
fn members(schema: &Value, into: &mut BTreeSet<String>) {
    match schema {
        Value::Object(parts) => {
            let properties = parts.get("properties").and_then(Value::as_object);
            into.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
            parts.values().for_each(|part| members(part, into));
        }
        Value::Array(parts) => parts.iter().for_each(|part| members(part, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_setting_that_a_page_gives_a_value_exists() {
    let mut names = BTreeSet::new();
    members(&serde_json::from_str(&schema_text()).unwrap(), &mut names);
    names.extend(SETTINGS.iter().filter_map(|setting| Some(setting.key.rsplit_once('.')?.1.to_owned())));
    let is_section = |name: &str| SETTINGS.iter().any(|setting| setting.key.split('.').next() == Some(name));
    let is_known = |key: &str| match key.split_once('.') {
        Some((section, _)) if is_section(section) => SETTINGS.iter().any(|setting| setting.key == key),
        // A property of librdkafka.
        Some(_) => true,
        None => names.contains(key) || FREE_KEYS.contains(&key),
    };
    let is_key = |key: &str| key.chars().all(|sign| sign.is_ascii_lowercase() || "_.".contains(sign));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let (prose, _) = taken_apart(&read(&page));
        let keys = quoted(&prose).filter_map(|text| text.split_once(" = ")).map(|(key, _)| key);
        for key in keys.filter(|key| is_key(key)) {
            seen += 1;
            if !is_known(key) {
                wrong.push(format!("{page}: `{key} = ...`"));
            }
        }
    }
    assert!(seen > 30, "only {seen} were found: the test looks for another form");
    assert!(wrong.is_empty(), "neither the configuration nor the policy has these: {}", wrong.join(", "));
}
