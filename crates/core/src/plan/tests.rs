//! Cases computed by hand, what must not fall when something rises, and what cannot be given.

use proptest::prelude::*;

use super::*;
use crate::{document::Format, policy_file::parse_policy};

const GIB: f64 = 1_073_741_824.0;

/// Round figures, so that the cases can be checked with pen and paper.
fn measured() -> Measured {
    let curve = |points: &[(f64, f64)]| Curve::new(points.iter().copied()).unwrap();
    Measured {
        user_bytes: curve(&[(1.0, 50.0), (4.0, 110.0), (8.0, 190.0)]),
        redis_us_by_sends: curve(&[(1.0, 4.0), (4.0, 5.0), (8.0, 6.0)]),
        redis_us_by_caps: curve(&[(1.0, 4.5), (2.0, 5.0), (4.0, 6.0)]),
        resident_ratio: 1.1,
        empty_node_bytes: 1e6,
        redis_in_bytes: 60.0,
        redis_out_bytes: 20.0,
        lane_per_s: 100_000.0,
        worker_us: 5.0,
        worker_bytes: 100e6,
        rebuild_us: 5.0,
        headers_bytes: 200.0,
        envelope_bytes: 500.0,
    }
}

fn given() -> Given {
    Given {
        users: 1e6,
        sends: Some(4.0),
        rate: 1000.0,
        peak: 100_000.0,
        approved: 0.75,
        caps: 4.0,
        segments: 4.0,
        most_sends: None,
        history_s: 8.0 * 86_400.0,
        replicas: 1.0,
        node_bytes: 1e9,
        memory_share: 0.5,
        redis_load: 0.5,
        shards: 1024.0,
        lane_load: 0.5,
        lanes_an_instance: 4.0,
        partitions: None,
        batch: 10_000.0,
        key_bytes: 10.0,
        value_bytes: 290.0,
        replication: 3.0,
        round_trip_s: 0.01,
        timeout_s: 10.0,
        processing_s: 0.5,
        blast: 1e7,
        rebuild_cores: 2.0,
    }
}

#[track_caller]
fn has(given: &Given, expected: &[(&str, f64)]) {
    let plan = Plan::new(given, &measured()).unwrap();
    for (id, value) in expected {
        let found = plan.value(id).unwrap_or_else(|| panic!("no line {id}"));
        assert!((found - value).abs() <= value.abs() * 1e-9, "{id} is {found} and should be {value}");
    }
}

#[test]
fn a_plan_is_what_pen_and_paper_say() {
    has(
        &given(),
        &[
            ("redis_user_bytes", 110.0),
            ("redis_histories", 110e6),
            ("redis_resident", 121e6),
            // 5 us at 4 sends, and 6 - 5 for 4 caps in place of 2.
            ("redis_decision_us", 6.0),
            ("redis_cores", 0.6),
            ("redis_primaries_by_cpu", 2.0),
            // 121e6 / (1e9 x 0.5 - 1e6) is less than one.
            ("redis_primaries_by_memory", 1.0),
            // Two do not make a cluster.
            ("redis_primaries", 3.0),
            ("redis_nodes", 6.0),
            ("redis_all_memory", 248e6),
            // 10,000 / (5 x 0.01 s) allow 200,000/s; measured are 100,000.
            ("lane_per_s", 100_000.0),
            ("lanes", 2.0),
            ("instances", 1.0),
            ("worker_cores", 0.5),
            // 4 x 16 x 8192 B would be 524,288; 2 B a user are more.
            ("segments_memory", 524_288.0),
            ("instance_memory", 400e6 + 1_048_576.0),
            ("partitions", 4.0),
            ("kafka_read", 30e6),
            // 0.75 x 500 + 0.25 x 800
            ("kafka_write", 57.5e6),
            ("redis_in", 6e6),
            ("redis_out", 2e6),
            // 750/s x 500 B x 691,200 s x 3
            ("approved_disk", 777.6e9),
            // 2 lanes; Redis could do 3 / 6 us = 500,000.
            ("drain_per_s", 200_000.0),
            ("blast", 1e7 / 199_000.0),
            ("rebuild_per_s", 200_000.0),
            // 4e6 sends at 2 x 200,000/s
            ("rebuild", 10.0),
            ("queue_wait", 9.48),
            ("queue_size", 1_896_000.0),
        ],
    );
}

#[test]
fn a_large_one_too() {
    let large = Given { users: 270e6, sends: Some(6.0), caps: 2.0, node_bytes: 10.0 * GIB, ..given() };
    has(
        &large,
        &[
            // On the line from 110 at 4 to 190 at 8.
            ("redis_user_bytes", 150.0),
            ("redis_resident", 44.55e9),
            ("redis_decision_us", 5.5),
            // 44.55e9 / (5 GiB - 1 MB) = 8.30
            ("redis_primaries_by_memory", 9.0),
            ("redis_primaries", 9.0),
            ("redis_all_memory", 2.0 * (44.55e9 + 9e6)),
            ("segments_memory", 4.0 * 4120.0 * 8192.0),
            // 1.62e9 sends at 400,000/s
            ("rebuild", 4050.0),
        ],
    );
    // Round trips of 50 ms: 10,000 / 0.25 s.
    has(&Given { round_trip_s: 0.05, ..given() }, &[("lane_per_s", 40_000.0), ("lanes", 5.0), ("instances", 2.0)]);
}

#[test]
fn sends_come_from_the_rate_where_nothing_bounds_them() {
    let derived = Given { sends: None, ..given() };
    // 750/s x 691,200 s / 1e6
    has(&derived, &[("sends_a_user", 518.4)]);
    let most = Some(Most { sends: 3.0, because: "new: weekly 3 x 1".into() });
    has(&Given { most_sends: most.clone(), ..derived }, &[("sends_a_user", 3.0)]);
    // What is given is not argued with.
    has(&Given { most_sends: most, ..given() }, &[("sends_a_user", 4.0)]);
    // Half a send a user: every other one has one.
    has(&Given { sends: Some(0.5), ..given() }, &[("redis_user_bytes", 25.0), ("redis_decision_us", 5.0)]);
}

#[test]
fn a_policy_bounds_the_sends_by_the_segment_that_gets_most() {
    let most = |caps: &str, days: i64| {
        let text = format!(
            "version = \"1\"\n[segments.a]\ncaps = {caps}\n[default]\ncaps = [{{ name = \"d\", limit = 1, window = \"24h\" }}]\n"
        );
        let policy = parse_policy("policy.toml", &text, Format::Toml, 40 * 86_400_000).unwrap();
        most_sends(&policy, days * 86_400_000).map(|most| most.sends)
    };
    let cases = [
        (r#"[{ name = "w", limit = 5, window = "7d" }]"#, 14, Some(14.0)),
        (r#"[{ name = "w", limit = 5, window = "7d" }]"#, 8, Some(10.0)),
        (r#"[{ name = "w", limit = 30, window = "7d" }, { name = "d", limit = 2, window = "24h" }]"#, 8, Some(16.0)),
        // A day may have 23 hours, and the history begins within one.
        (r#"[{ name = "d", limit = 3, per = "day" }]"#, 8, Some(30.0)),
        // Caps on some sends bound those alone.
        (r#"[{ name = "p", limit = 1, window = "24h", channel = "push" }]"#, 8, None),
        (r#"[{ name = "p", limit = 1, window = "24h", each = "campaign" }]"#, 8, None),
        (r#""unlimited""#, 8, None),
    ];
    for (caps, days, expected) in cases {
        assert_eq!(most(caps, days), expected, "{caps}");
    }
}

#[test]
fn too_few_partitions_and_too_few_shards_are_told() {
    let plan = Plan::new(&Given { partitions: Some(1.0), ..given() }, &measured()).unwrap();
    assert_eq!((plan.value("lanes"), plan.value("lanes_needed")), (Some(1.0), Some(2.0)));
    assert!(plan.remarks.iter().any(|remark| remark.contains("1 partitions feed no more than 1 lanes")));
    let plan = Plan::new(&Given { shards: 2.0, ..given() }, &measured()).unwrap();
    assert!(plan.remarks.iter().any(|remark| remark.contains("redis.shards")), "{:?}", plan.remarks);
    // What comes in is more than what one lane drains.
    let drowned = Given { partitions: Some(1.0), rate: 100_000.0, sends: Some(1.0), ..given() };
    let plan = Plan::new(&drowned, &measured()).unwrap();
    assert_eq!(plan.value("blast"), None);
    assert!(plan.remarks.iter().any(|remark| remark.contains("without end")), "{:?}", plan.remarks);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let cases: [(&str, Given); 15] = [
        ("--users", Given { users: 0.0, ..given() }),
        ("--users", Given { users: 1e30, ..given() }),
        ("--users", Given { users: f64::NAN, ..given() }),
        ("--rate", Given { rate: 0.0, ..given() }),
        ("--peak", Given { peak: f64::INFINITY, ..given() }),
        ("--peak", Given { peak: 10.0, ..given() }),
        ("--sends", Given { sends: Some(1e9), ..given() }),
        ("--sends", Given { sends: Some(0.0), ..given() }),
        ("--rate makes 6,912,000 sends a user", Given { sends: None, approved: 1.0, rate: 1e5, users: 1e4, ..given() }),
        ("--approved", Given { approved: 1.5, ..given() }),
        ("--approved", Given { approved: 0.0, ..given() }),
        ("--memory-share", Given { memory_share: 0.0, ..given() }),
        ("--partitions", Given { partitions: Some(0.0), ..given() }),
        ("--delivery-timeout", Given { timeout_s: 0.02, ..given() }),
        ("--node-memory", Given { node_bytes: 64.0 * 1024.0 * 1024.0, memory_share: 0.01, ..given() }),
    ];
    for (name, given) in cases {
        let error = Plan::new(&given, &measured()).unwrap_err().to_string();
        assert!(error.starts_with(name), "{name}: {error}");
    }
}

#[test]
fn a_curve_never_falls_and_goes_on_straight() {
    let curve = Curve::new([(1.0, 10.0), (2.0, 9.0), (4.0, 30.0)]).unwrap();
    let values = [(0.0, 10.0), (1.0, 10.0), (1.5, 10.0), (2.0, 10.0), (3.0, 20.0), (4.0, 30.0), (6.0, 50.0)];
    for (place, value) in values {
        assert_eq!(curve.at(place), value, "at {place}");
    }
    for bad in [vec![], vec![(1.0, 1.0)], vec![(2.0, 1.0), (1.0, 1.0)], vec![(1.0, 1.0), (2.0, f64::NAN)]] {
        assert_eq!(Curve::new(bad), Err(BadCurve));
    }
}

#[test]
fn numbers_are_shown_as_people_read_them() {
    let cases = [
        (Unit::Count, 270e6, "270,000,000"),
        (Unit::Count, 2.5, "2.5"),
        (Unit::Bytes, 110.4, "110 B"),
        (Unit::Bytes, 1.5 * GIB, "1.5 GiB"),
        (Unit::BytesPerSecond, 57.5e6, "57.5 MB/s"),
        (Unit::Seconds, 0.0105, "10.5 ms"),
        (Unit::Seconds, 100.0, "100 s"),
        (Unit::Seconds, 100_000.0, "1 d 3 h"),
        (Unit::Seconds, 4050.0, "1 h 7 min"),
        (Unit::Cores, 0.6, "0.6 cores"),
    ];
    for (unit, value, text) in cases {
        assert_eq!(unit.show(value), text);
    }
}

prop_compose! {
    fn any_given()(
        (users, rate, extra) in (1.0..1e10_f64, 0.01..1e7_f64, 1.0..10.0_f64),
        sends in proptest::option::of(0.001..10_000.0_f64),
        (approved, caps, replicas) in (0.001..=1.0_f64, 0_u8..=255, 0_u8..=5),
        (node_gib, partitions) in (0.5..1000.0_f64, proptest::option::of(1_u16..)),
        (round_trip_s, value_bytes) in (0.0..1.0_f64, 1.0..1e6_f64),
    ) -> Given {
        Given {
            users, rate, peak: rate * extra, sends, approved,
            caps: f64::from(caps),
            replicas: f64::from(replicas),
            node_bytes: node_gib * GIB,
            partitions: partitions.map(f64::from),
            round_trip_s, value_bytes,
            ..given()
        }
    }
}

proptest! {
    #[test]
    fn every_plan_is_of_numbers(given in any_given()) {
        let plan = match Plan::new(&given, &measured()) {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert!(given.sends.is_none() && error.to_string().starts_with("--rate makes"), "{}", error);
                return Ok(());
            }
        };
        for line in &plan.lines {
            prop_assert!(line.value.is_finite() && line.value >= 0.0, "{line:?}");
            prop_assert!(!line.unit.show(line.value).contains("NaN"));
        }
    }

    #[test]
    fn more_never_takes_less(given in any_given(), factor in 1.0..3.0_f64) {
        // A share of the rate is what each of more users gets less of; so sends are fixed.
        let given = Given { sends: Some(given.sends.unwrap_or(5.0)), ..given };
        let memory: &[&str] = &["redis_histories", "redis_primaries", "redis_nodes", "redis_all_memory", "rebuild"];
        let load: &[&str] = &["redis_cores", "redis_primaries", "lanes", "worker_cores", "kafka_read", "kafka_write"];
        let more: [(Given, &[&str]); 6] = [
            (Given { users: (given.users * factor).min(1e10), ..given.clone() }, memory),
            (Given { sends: given.sends.map(|sends| (sends * factor).min(1e4)), ..given.clone() }, &memory[..4]),
            (Given { peak: given.peak * factor, ..given.clone() }, load),
            (Given { replicas: (given.replicas + 1.0).min(5.0), ..given.clone() }, &["redis_nodes", "redis_all_memory"]),
            (Given { caps: (given.caps + 1.0).min(255.0), ..given.clone() }, &["redis_cores", "redis_primaries"]),
            (Given { timeout_s: given.timeout_s * factor, ..given.clone() }, &["queue_wait", "queue_size"]),
        ];
        let before = Plan::new(&given, &measured()).unwrap();
        for (more, ids) in more {
            let after = Plan::new(&more, &measured()).unwrap();
            for id in ids {
                // More users may need more primaries, and those rebuild faster.
                if *id == "rebuild" && before.value("redis_primaries") != after.value("redis_primaries") {
                    continue;
                }
                prop_assert!(after.value(id) >= before.value(id), "{id}: {:?} {:?}", before.value(id), after.value(id));
            }
        }
    }
}
