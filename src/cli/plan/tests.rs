//! What is printed, and that the constants are there.

use clap::Parser;

use super::*;

/// A command line of its own for the arguments.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    plan: PlanArgs,
}

fn plan(args: &[&str]) -> anyhow::Result<String> {
    let cli = Cli::try_parse_from(["weir plan"].iter().chain(args))?;
    let mut out = Vec::new();
    run(&cli.plan, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

const FEW: [&str; 6] = ["--users", "270M", "--rate", "10k", "--peak", "100k"];

#[test]
fn the_constants_are_in_the_file_of_the_bench() {
    let read = |file: &str| -> Value {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    measured().unwrap_or_else(|error| panic!("{error}"));
    for constant in Constant::ALL {
        let found = at(&read(constant.file()), constant.place());
        assert!(!found.is_empty(), "{} is not in {}", constant.place(), constant.file());
        assert!(found.iter().all(|value| value.as_f64().is_some_and(|value| value > 0.0)), "{constant:?}: {found:?}");
    }
}

/// What a place names: keys, `[]`, and the one select that is used.
fn at(file: &Value, place: &str) -> Vec<Value> {
    if let Some((select, key)) =
        place.strip_prefix(".figures[] | select(.name == \"").and_then(|rest| rest.split_once("\")."))
    {
        let figures = file["figures"].as_array().unwrap();
        return figures.iter().filter(|figure| figure["name"] == select).map(|figure| figure[key].clone()).collect();
    }
    let mut found = vec![file.clone()];
    for key in place.split('.').skip(1) {
        let (name, all) = key.strip_suffix("[]").map_or((key, false), |name| (name, true));
        found = found.into_iter().map(|value| value[name].clone()).collect();
        if all {
            found = found.into_iter().flat_map(|value| value.as_array().cloned().unwrap_or_default()).collect();
        }
    }
    found
}

#[test]
fn a_file_of_another_shape_is_refused() {
    let text = include_str!("../../../benches/measured.json");
    assert!(super::measured::read(text).is_ok());
    for (from, to) in [("user_bytes", "bytes"), ("worker CPU, us an intent", "CPU"), ("\"store\"", "\"stores\"")] {
        assert!(super::measured::read(&text.replace(from, to)).is_err(), "without {from}");
    }
}

#[test]
fn every_line_has_its_formula_and_every_constant_its_place() {
    let text = plan(&FEW).unwrap();
    for line in text.lines().filter(|line| line.starts_with("  ") && !line.starts_with("  [")) {
        assert!(line.contains("  = "), "{line}");
    }
    for constant in Constant::ALL {
        assert!(
            text.contains(&format!("] {}: {} {}", constant.meaning(), constant.file(), constant.place())),
            "{constant:?}:\n{text}"
        );
    }
    let said: Value = serde_json::from_str(&plan(&[&FEW[..], &["--output", "json"]].concat()).unwrap()).unwrap();
    let lines = said["lines"].as_array().unwrap();
    assert!(
        lines.len() >= 25 && lines.iter().all(|line| line["formula"].as_str().is_some_and(|text| !text.is_empty()))
    );
    let histories = lines.iter().find(|line| line["id"] == "redis_user_bytes").unwrap();
    assert_eq!(histories["constants"][0]["place"], ".store.by_sends[].user_bytes");
}

#[test]
fn flags_win_over_the_file_and_the_policy_is_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "version = \"1\"\n[segments.a]\ncaps = [{ name = \"w\", limit = 3, window = \"7d\" }]\n\
                  [segments.b]\ncaps = []\n[default]\ncaps = [{ name = \"d\", limit = 1, window = \"30d\" }]\n";
    std::fs::write(folder.path().join("policy.toml"), policy.replace("[segments.b]\ncaps = []\n", "")).unwrap();
    let inputs = folder.path().join("plan.toml");
    std::fs::write(
        &inputs,
        "users = \"5k\"\nrate = 10\npeak = \"1k\"\nhistory = \"35d\"\npolicy = \"policy.toml\"\napproved = 0.5\n",
    )
    .unwrap();
    let inputs = inputs.to_str().unwrap();
    let text = plan(&["--inputs", inputs]).unwrap();
    // 15.12M sends come in for 5,000 users; the policy lets through 15 of each.
    assert!(text.contains("the policy's most (a: w 3 x 5)") && text.contains("5,000 users"), "{text}");
    let text = plan(&["--inputs", inputs, "--users", "7k"]).unwrap();
    assert!(text.contains("7,000 users"), "{text}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cases: [(Vec<&str>, &[&str]); 8] = [
        (vec![], &["--users is missing"]),
        (vec!["--users", "1M", "--rate", "5"], &["--peak is missing"]),
        (vec!["--users", "0", "--rate", "5", "--peak", "10"], &["--users is 0", "from 1"]),
        (vec!["--users", "many"], &["many", "270M"]),
        (vec!["--users", "99999G", "--rate", "5", "--peak", "10"], &["--users is 99999000000000", "10000000000"]),
        ([&FEW[..], &["--delivery-timeout", "50ms"]].concat(), &["--delivery-timeout leaves no time"]),
        ([&FEW[..], &["--policy", "nowhere.toml"]].concat(), &["nowhere.toml cannot be read"]),
        ([&FEW[..], &["--node-memory", "5 apples"]].concat(), &["5 apples", "16GiB"]),
    ];
    for (args, words) in cases {
        let error = format!("{:#}", plan(&args).unwrap_err());
        assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
    }
    for (text, words) in [("users = \"x\"", ["line 1", "270M"]), ("\nusres = 5", ["line 2", "usres"])] {
        let error = plan(&["--inputs", &file(text)]).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
