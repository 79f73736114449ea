//! Cases calculated by hand, bounds, and what is printed.

use clap::Parser;
use weir_core::{basis::document::Format, policy::file::parse_policy};

use super::*;

/// A command line of its own; a flag given again replaces the first.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Cli {
    #[command(flatten)]
    plan: PlanArgs,
}

fn inputs(args: &str) -> PlanArgs {
    let base = "plan --users 1M --rate 1000 --peak 100k --sends 4 --approved-share 75% --node-memory 1GB --intent-size 300 \
                --round-trip 10ms --delivery-timeout 10s --processing 500ms";
    Cli::try_parse_from(base.split_whitespace().chain(args.split_whitespace())).unwrap().plan
}

/// Round figures, so that the cases can be checked with pen and paper.
fn constants() -> Measured {
    let curve = |points: &[(f64, f64)]| Curve::new(points.to_vec()).unwrap();
    Measured {
        user_bytes: curve(&[(1.0, 50.0), (4.0, 110.0), (8.0, 190.0)]),
        redis_us_by_sends: curve(&[(1.0, 4.0), (4.0, 5.0), (8.0, 6.0)]),
        redis_us_by_caps: curve(&[(1.0, 4.5), (2.0, 5.0), (4.0, 6.0)]),
        resident_ratio: 1.1,
        empty_node_bytes: 1e6,
        lane_per_s: 100_000.0,
        worker_us: 5.0,
        rebuild_us: 5.0,
        headers_bytes: 200.0,
        envelope_bytes: 500.0,
    }
}

#[track_caller]
fn has(inputs: &PlanArgs, policy: Option<&PolicyFigures>, expected: &[(&str, f64)]) {
    let plan = Estimate::new(inputs, policy, &constants()).unwrap();
    for (id, value) in expected {
        let found = plan.value(id).unwrap_or_else(|| panic!("no line {id}"));
        assert!((found - value).abs() <= value.abs() * 1e-9, "{id} is {found} and should be {value}");
    }
}

#[test]
fn a_plan_is_what_pen_and_paper_give() {
    let policy = PolicyFigures { caps: 4.0, most_sends: None, routes: Vec::new(), totals: 0.0 };
    let expected = [
        ("redis_user_bytes", 110.0),
        ("redis_resident", 121e6),
        // 5 us for 4 sends, and 6 - 5 for 4 caps instead of 2.
        ("redis_decision_us", 6.0),
        ("redis_cores", 0.6),
        ("redis_primaries_by_cpu", 1.0),
        ("redis_primaries_by_memory", 1.0),
        ("redis_nodes", 2.0),
        ("redis_all_memory", 244e6),
        // 10,000 / (5 x 0.01 s) allow 200,000/s; 100,000 are measured.
        ("lane_per_s", 100_000.0),
        // 100,000 / (100,000 x 0.7)
        ("lanes", 2.0),
        ("instances", 1.0),
        ("worker_cores", 0.5),
        ("partitions", 4.0),
        ("kafka_read", 30e6),
        // 0.75 x 500 + 0.25 x 800
        ("kafka_write", 57.5e6),
        // 750/s x 500 B x 691,200 s x 3
        ("approved_disk", 777.6e9),
        // Redis: 1 / 6 us; lanes would do 200,000.
        ("drain_per_s", 1e6 / 6.0),
        ("queue_wait", 9.48),
        ("queue_size", 1_580_000.0),
    ];
    has(&inputs(""), Some(&policy), &expected);
    let large = [
        // On the line from 110 at 4 to 190 at 8.
        ("redis_user_bytes", 150.0),
        ("redis_decision_us", 5.5),
        // 270e6 x 150 x 1.1 / (10 GB x 0.6 - 1 MB) = 7.4
        ("redis_primaries", 8.0),
        // 1.62e9 sends at 4 cores / 5 us = 800,000/s
        ("rebuild", 2025.0),
    ];
    has(&inputs("--users 270M --sends 6 --node-memory 10GB"), None, &large);
    // Round trips of 50 ms: 10,000 / 0.25 s; 100,000 / 28,000.
    has(&inputs("--round-trip 50ms"), None, &[("lane_per_s", 40_000.0), ("lanes", 4.0)]);
    // Half a send per user: every other one has one.
    has(&inputs("--sends 0.5"), None, &[("redis_user_bytes", 25.0), ("redis_decision_us", 4.0)]);
}

#[test]
fn each_campaign_has_its_totals_up_to_the_bound() {
    let policy = PolicyFigures { caps: 4.0, most_sends: None, routes: Vec::new(), totals: 2.0 };
    // 20,000 x 1,100; histories are 121 MB, and there are two nodes of 1 MB besides.
    has(&inputs("--campaigns 10k"), Some(&policy), &[("redis_totals", 22e6), ("redis_all_memory", 288e6)]);
    has(&inputs("--campaigns 10M"), Some(&policy), &[("redis_totals", 110e6)]);
    let none = Estimate::new(&inputs("--campaigns 10k"), None, &constants()).unwrap();
    assert_eq!(none.value("redis_totals"), None);
}

#[test]
fn sends_come_from_the_rate_unless_the_policy_bounds_them() {
    let derived = PlanArgs { sends: None, ..inputs("") };
    // 750/s x 691,200 s / 1e6
    has(&derived, None, &[("sends_a_user", 518.4)]);
    let most = |caps: &str, days: i64| {
        let text = format!(
            "version = \"1\"\n[segments.a]\ncaps = {caps}\n[default]\ncaps = [{{ name = \"d\", limit = 1, window = \"24h\" }}]\n"
        );
        let policy = parse_policy("policy.toml", &text, Format::Toml, 40 * 86_400_000).unwrap();
        PolicyFigures::of(&policy, days * 86_400_000)
    };
    let cases = [
        (r#"[{ name = "w", limit = 5, window = "7d" }]"#, 14, Some(14.0)),
        (r#"[{ name = "w", limit = 5, window = "7d" }]"#, 8, Some(10.0)),
        (r#"[{ name = "w", limit = 30, window = "7d" }, { name = "d", limit = 2, window = "24h" }]"#, 8, Some(16.0)),
        // A day may have 23 hours, and the history begins within one.
        (r#"[{ name = "d", limit = 3, per = "day" }]"#, 8, Some(30.0)),
        // Caps on some sends bound only those.
        (r#"[{ name = "p", limit = 1, window = "24h", channel = "push" }]"#, 8, None),
        (r#"[{ name = "p", limit = 1, window = "24h", each = "campaign" }]"#, 8, None),
        (r#""unlimited""#, 8, None),
    ];
    for (caps, days, expected) in cases {
        let figures = most(caps, days);
        assert_eq!(figures.most_sends.as_ref().map(|(most, _)| *most), expected, "{caps}");
        has(&derived, Some(&figures), &[("sends_a_user", expected.unwrap_or(518.4))]);
    }
}

#[test]
fn what_does_not_suffice_is_remarked() {
    let remarks = |args: &str, word: &str| {
        let plan = Estimate::new(&inputs(args), None, &constants()).unwrap();
        assert!(plan.remarks.iter().any(|remark| remark.contains(word)), "{args}: {:?}", plan.remarks);
        plan
    };
    let plan = remarks("--partitions 1", "1 partitions feed at most 1 lanes");
    assert_eq!((plan.value("lanes"), plan.value("lanes_needed")), (Some(1.0), Some(2.0)));
    let plan = remarks("--partitions 1 --rate 100k --sends 1", "without end");
    assert_eq!(plan.value("blast"), None);
}

#[test]
fn wrong_input_is_named() {
    let few = "--users 1M --rate 10 --peak 10";
    let cases = [
        ("--rate 5 --peak 10", "--users"),
        ("--users 0 --rate 5 --peak 10", "from 1 to 10000000000"),
        ("--users NaN --rate 5 --peak 10", "270M"),
        ("--users 1M --rate 50 --peak 10", "--peak is 10"),
        ("--users 10k --rate 100k --peak 100k", "--rate gives 6912000 sends per user"),
        (&format!("{few} --sends 1G"), "--sends"),
        (&format!("{few} --approved-share 0"), "75%"),
        (&format!("{few} --delivery-timeout 50ms"), "--delivery-timeout leaves no time"),
        (&format!("{few} --node-memory 5apples"), "16GiB"),
        (&format!("{few} --policy nowhere.toml"), "nowhere.toml: cannot be read"),
    ];
    for (args, word) in cases {
        let cli = Cli::try_parse_from(["plan"].into_iter().chain(args.split_whitespace()));
        let outcome = cli.map_err(anyhow::Error::from).and_then(|cli| run(&cli.plan, &mut Vec::new()));
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(word), "{args}: {error}");
    }
}

#[test]
fn both_forms_have_every_line_with_its_formula() {
    let run = |output: &str| {
        let args = ["plan", "--users", "270M", "--rate", "10k", "--peak", "100k", "--output", output];
        let mut out = Vec::new();
        super::run(&Cli::try_parse_from(args).unwrap().plan, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let (text, report) = (run("text"), serde_json::from_str::<serde_json::Value>(&run("json")).unwrap());
    let lines = report["lines"].as_array().unwrap();
    assert!(lines.len() >= 22, "{report}");
    for line in lines {
        for part in ["section", "name", "text", "formula"].map(|part| line[part].as_str().unwrap()) {
            assert!(!part.is_empty() && text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(report["inputs"]["users"], serde_json::json!(270e6));
    assert_eq!(lines[0]["unit"], "count");
}

#[test]
fn a_curve_never_falls_and_continues_straight() {
    let curve = Curve::new(vec![(1.0, 10.0), (2.0, 9.0), (4.0, 30.0)]).unwrap();
    assert_eq!([0.0, 1.5, 2.0, 3.0, 6.0].map(|place| curve.at(place)), [10.0, 10.0, 10.0, 20.0, 50.0]);
}

#[test]
fn a_route_with_a_rate_has_its_longest_queue() {
    let text = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n[[routes]]\nname = \"email\"\nrate = 500\nnetwork = \"100ms\"\n\
                [[routes]]\nname = \"push\"\nconsumer_group = \"g\"\n";
    let policy = parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap();
    let policy = PolicyFigures::of(&policy, 86_400_000);
    // 10 s - 2 x 0.1 s - 0.5 s; times 500; 1M / 500.
    let expected = [("route_rate", 500.0), ("route_wait", 9.3), ("route_queue", 4_650.0), ("route_blast", 2_000.0)];
    has(&inputs("--blast 1M"), Some(&policy), &expected);
    let plan = Estimate::new(&inputs("--delivery-timeout 600ms"), Some(&policy), &constants()).unwrap();
    assert_eq!(plan.value("route_queue"), Some(0.0));
    assert!(plan.remarks.iter().any(|remark| remark.starts_with("Route email: --delivery-timeout leaves no time")));
}
