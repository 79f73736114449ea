//! Loading and asking a set of 270 million users in four u32 segments: `cargo bench --bench segments`.
//!
//! The users of `Scattered` are spread at random, which is the largest that such a set can be (134 MB); those of
//! `InRuns` have their segments in runs of a hundred thousand, with gaps.

#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up should say so and end")]

use std::{fs, hint::black_box, sync::Arc};

use divan::{Bencher, counter::ItemsCount};
use roaring::RoaringBitmap;
use sha2::Digest;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use weir::{
    domain::segment::{LookupScratch, Manifest, ManifestSegment, Members, ObjectKey, SegmentSet, Sha256, UserIdKind},
    edge::{
        object_store::{Location, S3Options, StoredObject},
        segments::{SegmentSource, write_members},
    },
};

const USERS: u32 = 270_000_000;
const BATCH: u32 = 10_000;
const SEGMENTS: usize = 4;

fn main() {
    divan::main();
}

/// How users are spread over segments.
#[derive(Debug, Clone, Copy)]
enum Spread {
    Scattered,
    InRuns,
}

impl Spread {
    fn segment(self, user: u32) -> Option<usize> {
        match self {
            Self::Scattered => Some(mix(user) as usize % SEGMENTS),
            Self::InRuns => Some(user as usize / 100_000 % 5).filter(|&run| run < SEGMENTS && !user.is_multiple_of(7)),
        }
    }
}

/// Numbers without a pattern, the same in every run.
fn mix(number: u32) -> u32 {
    let mixed = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    u32::try_from(mixed >> 32).unwrap_or_default()
}

fn write_set(spread: Spread) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut bits = vec![vec![0_u8; USERS as usize / 8 + 1]; SEGMENTS];
    for user in 0..USERS {
        if let Some(segment) = spread.segment(user) {
            bits[segment][user as usize / 8] |= 1 << (user % 8);
        }
    }
    let entry = |(number, bits): (usize, Vec<u8>)| {
        let mut bitmap = RoaringBitmap::from_lsb0_bytes(0, &bits);
        bitmap.optimize();
        let cardinality = bitmap.len();
        let mut bytes = Vec::new();
        write_members(&Members::U32(bitmap), &mut bytes).unwrap();
        let name = format!("segment-{number}");
        fs::write(folder.path().join(&name), &bytes).unwrap();
        let object = ObjectKey::parse(&name).unwrap();
        let sha256 = Sha256(sha2::Sha256::digest(&bytes).into());
        ManifestSegment { name, object, bytes: bytes.len() as u64, sha256, cardinality }
    };
    let segments = bits.into_iter().enumerate().map(entry).collect();
    let manifest = Manifest { version: "bench".to_owned(), user_id: UserIdKind::U32, segments };
    fs::write(folder.path().join("manifest.json"), manifest.to_json()).unwrap();
    folder
}

fn load(runtime: &Runtime, folder: &TempDir) -> Arc<SegmentSet> {
    runtime.block_on(async {
        let manifest = Location::File(folder.path().join("manifest.json"));
        let manifest = StoredObject::connect(&manifest, &S3Options::default()).await;
        SegmentSource::new(manifest, "").load().await.unwrap().unwrap()
    })
}

/// Reading, hashing, checking and comparing all objects.
#[divan::bench(args = [Spread::Scattered, Spread::InRuns], sample_count = 5, sample_size = 1)]
fn load_270_million_users(bencher: Bencher<'_, '_>, spread: Spread) {
    let folder = write_set(spread);
    let runtime = Runtime::new().unwrap();
    bencher.bench_local(|| load(&runtime, &folder));
}

/// Batches of users of whom nothing is in the cache.
#[divan::bench(args = [Spread::Scattered, Spread::InRuns], sample_count = 100, sample_size = 1)]
fn look_up_a_batch_of_10_000(bencher: Bencher<'_, '_>, spread: Spread) {
    let folder = write_set(spread);
    let set = load(&Runtime::new().unwrap(), &folder);
    let (mut scratch, mut found, mut round) = (LookupScratch::default(), Vec::new(), 0);
    let batch = move || {
        round += 1;
        let user = |at: u32| mix(at * 7919 + round * 104_729) % USERS;
        (0..BATCH).map(|at| user(at).to_string()).collect::<Vec<_>>()
    };
    bencher.counter(ItemsCount::new(BATCH)).with_inputs(batch).bench_local_values(|ids| {
        set.lookup_many(ids.iter().map(String::as_str), &mut scratch, &mut found);
        black_box(found.len())
    });
}
