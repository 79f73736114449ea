use std::collections::HashMap;

use super::*;

const USERS: u64 = 200_000;

fn layout() -> Layout {
    Layout::for_users(64, USERS)
}

/// Ids as publishers have them, in their order.
fn populations() -> Vec<(&'static str, Vec<String>)> {
    let ids = |id: fn(u64) -> String| (0..USERS).map(id).collect();
    // A bijection of 64 bits: numbers without an order.
    fn scattered(n: u64) -> u64 {
        let n = (n ^ n >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
    }
    vec![
        ("dense", ids(|n| n.to_string())),
        ("dense from a million on", ids(|n| (1_000_000 + n).to_string())),
        ("every third", ids(|n| (3 * n).to_string())),
        ("every tenth", ids(|n| (10 * n).to_string())),
        ("every thousandth", ids(|n| (1000 * n).to_string())),
        ("every 2^10th", ids(|n| (n << 10).to_string())),
        ("every 2^22th", ids(|n| (n << 22).to_string())),
        ("every 2^32th", ids(|n| (n << 32).to_string())),
        ("snowflakes, 7 ms apart, of 4 machines", ids(|n| (((n * 7) << 22) | ((n % 4) << 12) | (n % 3)).to_string())),
        // No two of them are alike: the lower bits are the number's own.
        ("scattered over 2^40", ids(|n| (((scattered(n) >> 42) << 18) | n).to_string())),
        ("scattered over 2^64", ids(|n| scattered(n).to_string())),
        ("names", ids(|n| format!("user-{n}"))),
    ]
}

fn counts<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> Vec<f64> {
    let mut counts = HashMap::<K, u32>::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts.into_values().map(f64::from).collect()
}

#[test]
fn users_of_any_kind_of_id_fill_shards_and_keys_evenly() {
    for (kind, ids) in populations() {
        let places: Vec<Place> = ids.iter().map(|id| layout().place(UserHash::of(id))).collect();
        let shards = counts(places.iter().map(|place| place.shard));
        let mean = USERS as f64 / 64.0;
        let worst = shards.iter().map(|count| (count / mean - 1.0).abs()).fold(0.0, f64::max);
        assert!(shards.len() == 64 && worst < 0.1, "{kind}: {} shards, the worst is {worst} off", shards.len());

        let keys = counts(places.iter().map(|place| (place.shard, place.bucket)));
        let fullest = keys.iter().copied().fold(0.0, f64::max);
        // The key of the mean user: 32 for keys that are all alike, 33 where a hash spreads users one by one, more where
        // neighbours come together.
        let company = keys.iter().map(|count| count * count).sum::<f64>() / USERS as f64;
        assert!(fullest <= 128.0 && company < 56.0, "{kind}: a key of {fullest} users, {company} for the mean user");
    }
}

#[test]
fn neighbourhoods_of_a_key_are_a_turn_apart_and_no_further_than_they_must() {
    for (shards, buckets) in [(1, 1), (1, 2), (1, 7), (51, 4), (128, 15), (256, 8), (256, 4_096), (1024, 1_300)] {
        let layout = Layout::new(shards, buckets);
        let parts = u128::from(shards) * u128::from(buckets);
        // How far neighbourhood `n` is from a multiple of 2^64.
        let distance = |n: u64| n.wrapping_mul(GOLDEN).min(n.wrapping_mul(GOLDEN).wrapping_neg());
        let too_near = |n: &u64| u128::from(distance(*n)) * parts < 1 << 64;
        assert_eq!((1..).find(too_near), Some(layout.turn), "{shards} shards of {buckets} keys");
        // Keys of as many users as they are made for number them with two digits, and some of the third.
        assert!(u128::from(layout.turn) * 5 > parts * 2 || parts < 4, "{layout:?}");
    }
}

#[test]
fn a_user_is_numbered_among_those_of_its_key() {
    let layout = layout();
    let field = |id: &str| layout.place(UserHash::of(id)).field;
    assert_eq!(["0", "31", "32"].map(field), [0, 31, 0].map(HashField::Numbered));
    // One byte in Redis: numbers below 128.
    assert!((0..USERS).all(|number: u64| matches!(field(&number.to_string()), HashField::Numbered(..128))));
    assert!(matches!(field("user-1"), HashField::Hashed(_)));
    assert_ne!(UserHash::of("042"), UserHash::of("42"));
}

#[test]
fn neighbours_share_a_key_and_no_two_users_a_place_whatever_the_layout() {
    let layouts = [layout(), Layout::new(1, 1), Layout::new(3, 5), Layout::new(64, 98), Layout::new(SLOTS, u32::MAX)];
    let populations = populations();
    for layout in layouts {
        for (kind, ids) in &populations {
            let places = ids.iter().step_by(if layout == self::layout() { 1 } else { 7 }).map(|id| {
                let place = layout.place(UserHash::of(id));
                (place.shard, place.bucket, place.field.to_bytes())
            });
            assert!(counts(places).iter().all(|count| *count == 1.0), "{kind} in {layout:?}");
        }
        let field = |id: u64| layout.place(UserHash::of(&id.to_string())).field;
        assert!(matches!(field(u64::MAX), HashField::Numbered(_)), "{layout:?}");
    }
    for (kind, ids) in populations.iter().filter(|(kind, _)| kind.starts_with("dense")) {
        let buckets: Vec<u32> = ids.iter().map(|id| layout().place(UserHash::of(id)).bucket).collect();
        let share = |neighbours: &[u32]| neighbours.iter().all(|bucket| *bucket == neighbours[0]);
        assert!(buckets.chunks(32).all(share), "{kind}");
    }
}

#[test]
fn a_hash_is_not_written_as_a_number_is() {
    assert_eq!(HashField::Hashed(u64::from_be_bytes(*b"12345678")).to_bytes(), b"12345678\0");
    assert_eq!(HashField::Numbered(12_345_678).to_bytes(), b"12345678");
    assert_eq!(HashField::Hashed(1).to_bytes(), [0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(HashField::Numbered(u64::MAX).to_bytes(), u64::MAX.to_string().as_bytes());
}

#[test]
fn tags_are_the_first_numbers_in_their_slots() {
    for shards in [1, 3, 256, 1024, SLOTS] {
        for (shard, tag) in (0..shards).zip(shard_tags(shards)) {
            let slot = |text: &str| crc16::State::<crc16::XMODEM>::calculate(text.as_bytes()) % SLOTS;
            assert_eq!(slot(&tag), slot_of_shard(shard, shards));
        }
    }
    assert_eq!(shard_tags(1024)[..4], ["3560", "4883", "13280", "2631"]);
}

#[test]
fn a_users_shard_is_that_of_its_place() {
    for shards in [1, 6, 128, 256, SLOTS] {
        let layout = Layout::for_users(shards, 10_000_000);
        for user in (0..500).flat_map(|id: u64| [id.to_string(), id.wrapping_mul(GOLDEN).to_string(), format!("u{id}")])
        {
            let user = UserHash::of(&user);
            assert_eq!(user.shard(shards), layout.place(user).shard);
        }
    }
}

/// docs/operations.md tells publishers these: numbers by the formula there, text by XXH3-128's 06b05ab6733a6185 78af5f94892f3950.
#[test]
fn publishers_find_partitions_by_shard_as_the_documentation_says() {
    for (id, expected) in [
        ("0", [0, 0, 0]),
        ("31", [0, 0, 0]),
        ("32", [4, 7, 61]),
        ("42", [4, 7, 61]),
        ("1000", [1, 1, 15]),
        ("123456789", [7, 11, 96]),
        ("18446744073709551615", [0, 0, 3]),
        ("007", [7, 11, 94]),
        ("abc", [0, 0, 2]),
    ] {
        assert_eq!([8, 12, 100].map(|partitions| UserHash::of(id).shard(partitions)), expected, "{id}");
    }
    // Of a user with all bits of a text's hash, so that a wrong half or byte order shows.
    assert_eq!(UserHash::of("abc").0, 0x06b0_5ab6_733a_6185_78af_5f94_892f_3950);
}
