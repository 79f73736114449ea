//! The portable Roaring formats, as other libraries write them, and as nobody should.

use proptest::prelude::*;
use roaring::{RoaringBitmap, RoaringTreemap};
use weir_core::segment::{
    Members, UserIdKind,
    format::{FormatError, read_members},
};

use super::support::{members, object};

const KINDS: [UserIdKind; 3] = [UserIdKind::U32, UserIdKind::U64, UserIdKind::Hash64];

fn read(kind: UserIdKind, mut bytes: &[u8]) -> Result<Members, FormatError> {
    read_members(kind, Some(bytes.len() as u64), &mut bytes)
}

#[test]
fn bitmaps_as_small_as_they_get_and_hashes_that_share_parts_are_read() {
    let cases: [Vec<u64>; 7] = [
        vec![],
        vec![7],
        (0..100).collect(),
        (1 << 40..(1 << 40) + 3).collect(),
        vec![1, 2, 65_536, 1 << 32, (1 << 32) + 1, u64::MAX],
        (0..4000).collect(),
        (0..5000).map(|n| (n * n) << 20).collect(),
    ];
    for (kind, numbers) in
        [UserIdKind::U64, UserIdKind::Hash64].into_iter().flat_map(|kind| cases.iter().map(move |of| (kind, of)))
    {
        let made = members(kind, numbers.iter().copied());
        assert_eq!(read(kind, &object(&made)), Ok(made), "{kind}: {numbers:?}");
    }
    // As other libraries write them, each part a run: 19 bytes.
    let mut parts = RoaringTreemap::from_iter((0..3_u64).flat_map(|part| part << 32..(part << 32) + 50));
    parts.optimize();
    let mut bytes = Vec::new();
    parts.serialize_into(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 8 + 3 * 19);
    assert_eq!(read(UserIdKind::U64, &bytes), Ok(Members::U64(parts)));
}

/// <https://github.com/RoaringBitmap/RoaringBitmap/issues/452>; the part of 0, which was not there, in
/// <https://github.com/RoaringBitmap/CRoaring/pull/398>.
#[test]
fn parts_that_other_libraries_leave_without_members_are_read_as_nothing() {
    let cases: [(Vec<u64>, Vec<u32>); 5] = [
        // {7, 2^32 + 1, 2^32 + 2, 3 * 2^32 + 5} without {2^32 + 1, 2^32 + 2}.
        (vec![7, (3 << 32) + 5], vec![1]),
        (vec![], vec![0]),
        (vec![], (0..100).collect()),
        (vec![5 << 32], vec![4, 6, u32::MAX]),
        ((0..40).map(|n| n << 33).collect(), (0..200).collect()),
    ];
    for (kept, emptied) in cases {
        let made: RoaringTreemap = kept.iter().copied().collect();
        let none = emptied.iter().map(|part| (*part, RoaringBitmap::new()));
        let all = none.chain(made.bitmaps().map(|(part, bitmap)| (part, bitmap.clone())));
        let mut bytes = Vec::new();
        RoaringTreemap::from_bitmaps(all).serialize_into(&mut bytes).unwrap();
        for kind in [UserIdKind::U64, UserIdKind::Hash64] {
            let found = read(kind, &bytes).unwrap();
            assert_eq!(found, members(kind, kept.iter().copied()), "{kind}");
            assert_eq!(found.len(), kept.len() as u64);
            assert!(object(&found).len() < bytes.len(), "they are not written again");
        }
    }
}

/// Such a container is none: <https://github.com/RoaringBitmap/CRoaring/pull/560>. Where a library writes one all the same
/// (<https://github.com/RoaringBitmap/RoaringBitmap/issues/260>), what comes behind it must not be taken for its members.
#[test]
fn a_container_that_a_library_has_left_without_members_refuses_the_object() {
    // Cookie, number of containers, key and cardinality less one of each, where each begins.
    for heads in [[2_u32 << 16, 0xFFFF_0001, 24, 30], [0xFFFF_0000, 2 << 16 | 1, 24, 24]] {
        let words = [12_346, 2].into_iter().chain(heads);
        let mut bitmap: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bitmap.extend([1, 0, 2, 0, 3, 0]);
        let wide = [&1_u64.to_le_bytes()[..], &0_u32.to_le_bytes(), &bitmap].concat();
        for (kind, bytes) in [(UserIdKind::U32, &bitmap), (UserIdKind::U64, &wide), (UserIdKind::Hash64, &wide)] {
            let error = read(kind, bytes).unwrap_err().to_string();
            assert!(error.contains("it ends too early"), "{kind}: {error}");
        }
    }
}

/// As many containers as there can be, as in <https://github.com/RoaringBitmap/roaring/issues/325>; and as many values as a container lists at
/// most, and one more, as in <https://github.com/databendlabs/databend/pull/20210>.
#[test]
fn the_most_containers_and_the_most_listed_values_are_read() {
    let listed = [4_095, 4_096, 4_097].map(|values: u64| (0..values).collect::<Vec<u64>>());
    let everywhere: Vec<u64> = (0..65_536).map(|container| container << 16).collect();
    for numbers in listed.into_iter().chain([everywhere]) {
        for kind in KINDS {
            let mut bytes = Vec::new();
            match kind {
                UserIdKind::U32 => {
                    let ids: RoaringBitmap = numbers.iter().map(|&id| u32::try_from(id).unwrap()).collect();
                    ids.serialize_into(&mut bytes).unwrap();
                }
                UserIdKind::U64 | UserIdKind::Hash64 => {
                    let ids: RoaringTreemap = numbers.iter().copied().collect();
                    ids.serialize_into(&mut bytes).unwrap();
                }
            }
            let found = read(kind, &bytes).unwrap_or_else(|error| panic!("{} of {kind}: {error}", numbers.len()));
            assert!(found == members(kind, numbers.iter().copied()), "{} of {kind}", numbers.len());
        }
    }
}

#[test]
fn a_few_bytes_cannot_make_us_hold_many_hashes() {
    // All 2^32 numbers of one part, in run containers: half a megabyte that would be 32 GiB of hashes.
    let mut everything = roaring::RoaringBitmap::full();
    everything.optimize();
    let mut bytes = Vec::from(1_u64.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    everything.serialize_into(&mut bytes).unwrap();
    let error = read(UserIdKind::Hash64, &bytes).unwrap_err().to_string();
    assert!(error.contains("not hashes"), "{error}");
}

#[test]
fn a_count_that_the_bytes_do_not_bear_out_is_refused_at_once() {
    for parts in [3_u64, 1 << 20, 1 << 40, u64::MAX] {
        let mut bytes = Vec::from(parts.to_le_bytes());
        bytes.resize(40, 0);
        for kind in [UserIdKind::U64, UserIdKind::Hash64] {
            let error = read(kind, &bytes).unwrap_err().to_string();
            assert!(error.contains("counts more parts"), "{error}");
        }
    }
}

/// {7, 2^32 + 1} as `Roaring64NavigableMap.serialize` writes it in Java: <https://github.com/RoaringBitmap/RoaringBitmap/pull/551>.
#[test]
fn the_format_that_java_writes_by_default_is_refused_with_the_call_that_writes_the_portable_one() {
    // Whether numbers are signed, and then each part with its key, big-endian.
    let mut bytes = vec![0, 0, 0, 0, 2];
    for (key, member) in [(0_u32, 7_u32), (1, 1)] {
        bytes.extend(key.to_be_bytes());
        RoaringBitmap::from_iter([member]).serialize_into(&mut bytes).unwrap();
    }
    for kind in [UserIdKind::U64, UserIdKind::Hash64] {
        let error = read(kind, &bytes).unwrap_err().to_string();
        assert!(error.contains("serializePortable writes this one"), "{kind}: {error}");
    }
}

proptest! {
    /// Whatever is done to a bitmap, it is refused or is another bitmap; nothing panics.
    #[test]
    fn damaged_bitmaps_do_no_harm(
        numbers in prop::collection::btree_set(0..200_000_u64, 0..6000),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for kind in KINDS {
            let mut bytes = object(&members(kind, numbers.iter().copied()));
            for (at, value) in &damage {
                let at = at.index(bytes.len().min(64));
                bytes[at] = *value;
            }
            let _ = read(kind, &bytes);
            let _ = read(kind, &bytes[..cut.index(bytes.len())]);
        }
    }
}

#[test]
fn bitmaps_of_every_kind_of_container_are_read_as_the_library_reads_them_and_written_as_it_writes_them() {
    let scattered = |block: u32| (block << 16..(block + 1) << 16).filter(|id| id % 3 == 0);
    let run = |block: u32| (block << 16) + 5..(block << 16) + 60_000;
    let mut bitmaps = Vec::new();
    for blocks in [vec![], vec![0], vec![7, 8], vec![1, 2, 4], vec![0, 1, 9, 65_535], (0..40).collect::<Vec<u32>>()] {
        for kinds in 0..6 {
            let mut bitmap = RoaringBitmap::new();
            for (at, &block) in (0_u32..).zip(&blocks) {
                // All of one kind, or in turn.
                match if kinds < 3 { kinds } else { (at + kinds) % 3 } {
                    0 => bitmap.extend([block << 16, (block << 16) + 9]),
                    1 => bitmap.extend(scattered(block)),
                    _ => bitmap.extend(run(block)),
                }
            }
            bitmaps.push(bitmap.clone());
            bitmap.optimize();
            bitmaps.push(bitmap);
        }
    }
    // The ranges of <https://github.com/RoaringBitmap/roaring/issues/467>, where a check took runs up to the end of their container for
    // wrong.
    let mut bitmap: RoaringBitmap =
        [0_u32..44_247, 45_576..67_247, 68_819..89_413, 92_266..132_098].into_iter().flatten().collect();
    bitmap.optimize();
    bitmaps.push(bitmap);
    for bitmap in bitmaps {
        let mut bytes = Vec::new();
        bitmap.serialize_into(&mut bytes).unwrap();
        let Members::U32(ids) = read(UserIdKind::U32, &bytes).unwrap() else { panic!("other members") };
        assert_eq!(ids.to_bitmap(), bitmap);
        assert_eq!(object(&Members::U32(ids)), bytes);
        if !bitmap.is_empty() {
            let (wide, mut bytes) = (RoaringTreemap::from_bitmaps([(7, bitmap)]), Vec::new());
            wide.serialize_into(&mut bytes).unwrap();
            assert_eq!(read(UserIdKind::U64, &bytes), Ok(Members::U64(wide)));
        }
    }
}
