//! Twenty million users: the set stays near its size on disk, and every answer is right.
//! What a set of 270 million takes is measured in benches/segments.rs.

use weir_core::segment::{Blocks, LookupScratch, Members, UserIdKind};

use super::support::{entry, load, manifest, object, put, source};

const USERS: u32 = 20_000_000;
const NAMES: [&str; 4] = ["new", "active", "dormant", "staff"];

/// Users come in runs of 1000; every fifth run is in no segment, and of the others every user that 7 divides.
fn segment_of(user: u32) -> Option<usize> {
    let run = user / 1000 % 5;
    (run < 4 && !user.is_multiple_of(7)).then_some(run as usize)
}

#[tokio::test]
async fn twenty_million_users_stay_near_one_bit_a_user_and_segment_and_are_found() {
    let mut bits = NAMES.map(|_| vec![0_u8; USERS as usize / 8]);
    for (user, segment) in (0..USERS).filter_map(|user| Some((user, segment_of(user)?))) {
        bits[segment][user as usize / 8] |= 1 << (user % 8);
    }
    let folder = testkit::folder();
    let mut entries = Vec::new();
    let mut total_bytes = 0;
    for (name, bits) in NAMES.into_iter().zip(bits) {
        let ids: Blocks = (0..USERS).filter(|user| bits[*user as usize / 8] & 1 << (user % 8) != 0).collect();
        let users = ids.len();
        let bytes = object(&Members::U32(ids));
        total_bytes += bytes.len();
        entries.push(entry(name, &bytes, users));
        put(folder.path(), &[(format!("{name}.roaring"), bytes)]);
    }
    assert!(total_bytes < USERS as usize / 8 * 4 * 21 / 20, "{total_bytes} bytes");
    let json = manifest("v1", UserIdKind::U32, entries).to_json().into_bytes();
    put(folder.path(), &[("manifest.json".to_owned(), json)]);

    let set = load(&mut source(folder.path()).await).await;
    let asked: Vec<u32> = (0..10_000).map(|n| n * 1999 % (USERS + 1000)).collect();
    let ids: Vec<String> = asked.iter().map(u32::to_string).collect();
    let mut found = Vec::new();
    set.lookup_many(ids.iter().map(|id| set.number(id)), &mut LookupScratch::default(), &mut found);
    for (user, found) in asked.into_iter().zip(found) {
        let expected = if user < USERS { segment_of(user) } else { None };
        assert_eq!(found.segment(), expected, "user {user}");
    }
}
