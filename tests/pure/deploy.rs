//! What people copy is right: the compose file, the image, the README's figures.

use std::{fs, path::Path};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// What stands behind each `before` up to the next white space or quote.
fn behind<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    let ends = |sign: char| sign.is_whitespace() || sign == '\'' || sign == '"';
    text.split(before).skip(1).map(|rest| rest.split(ends).next().unwrap()).collect()
}

#[test]
fn the_token_of_the_compose_files_example_is_the_one_that_it_sets() {
    let compose = file("docker-compose.yml");
    let set = behind(&compose, "WEIR__HTTP__TOKEN: ");
    let shown = behind(&compose, "Authorization: Bearer ");
    assert!(set.len() == 1 && !shown.is_empty() && shown.iter().all(|token| *token == set[0]), "{set:?} {shown:?}");
}

#[test]
fn what_compose_creates_is_kept_for_as_long_as_the_history() {
    let compose = file("docker-compose.yml");
    let approved = compose.lines().find(|line| line.contains("create --topic send-approved")).unwrap();
    let kept: i64 = behind(approved, "retention.ms=")[0].parse().unwrap();
    let default = weir::config::keys::SETTINGS.iter().find(|setting| setting.key == "redis.history").unwrap();
    let weir::config::keys::Otherwise::Is(history) = default.default else { panic!("it has a default") };
    let history = humantime::parse_duration(history).unwrap().as_millis();
    assert!(kept >= i64::try_from(history).unwrap(), "{kept} ms for a history of {history} ms");
}

#[test]
fn the_images_user_is_a_number_and_not_root() {
    let image = file("Dockerfile");
    let user = behind(&image, "\nUSER ")[0];
    let ids: Vec<u32> = user.split(':').map(|id| id.parse().unwrap_or_else(|_| panic!("USER {user}"))).collect();
    assert!(!ids.is_empty() && !ids.contains(&0), "USER {user}");
}

#[test]
fn the_readme_counts_the_fuzz_targets() {
    let targets = file("fuzz/Cargo.toml").matches("[[bin]]").count();
    let words = ["seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"];
    let readme = file("README.md");
    let said = words.iter().position(|word| readme.contains(&format!("({word} targets"))).unwrap() + 7;
    assert_eq!(said, targets);
}
