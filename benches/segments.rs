//! Loading, asking and refreshing sets of 270 million users in four u32 segments: `cargo bench --bench segments` (`-- COUNT` for
//! another number of users, a million at least; the last one given counts).
//!
//! Three sets: `scattered`, users assigned by a hash, which is the largest that such a set can be (134 MB of bitmaps);
//! `in runs`, ranges of a hundred thousand ids with gaps; and `mixed`, two segments by hash at densities of their own, a
//! range of new users, and a thin segment of one in two thousand. Each is loaded by a process of its own, so that memory
//! is that of the set. Nothing here passes or fails by time.

#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up should say so and end")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to the person who started it")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use procfs::{Current as _, LoadAverage, process::Process};
use roaring::RoaringBitmap;
use sha2::Digest;
use testkit::process::printed_within;
use tokio::runtime::Runtime;
use weir::{
    object_store::{Location, S3Options, StoredObject},
    segments::SegmentSource,
};
use weir_core::segment::{
    Blocks, LookupScratch, Manifest, ManifestSegment, Members, ObjectKey, SegmentSet, Sha256, UserIdKind,
    format::write_members,
};
use weir_worker::refresh::{Refreshed, refresh};

const USERS: u32 = 270_000_000;
/// With fewer, a segment of a set may be empty.
const FEWEST_USERS: u32 = 1_000_000;
const DEADLINE: Duration = Duration::from_secs(3_600);
const BATCH: u32 = 10_000;
const SEGMENTS: usize = 4;
/// Number of batches for the median.
const BATCHES: u32 = 300;
/// Ids in one container of a bitmap.
const BLOCK: u32 = 65_536;
/// Marks the process that measures.
const FOLDER: &str = "WEIR_BENCH_SEGMENTS";

#[derive(Debug, Clone, Copy)]
enum Spread {
    Scattered,
    InRuns,
    Mixed,
}

impl Spread {
    /// The segment of one of so many users in a version of the set.
    fn segment(self, user: u32, users: u32, version: u32) -> Option<usize> {
        let drawn = mix(user ^ version.rotate_right(4));
        match self {
            Self::Scattered => Some(drawn as usize % SEGMENTS),
            Self::InRuns => {
                Some((user + version) as usize / 100_000 % 5).filter(|&run| run < SEGMENTS && !user.is_multiple_of(7))
            }
            Self::Mixed => match (user, drawn % 2000) {
                (_, 0) => Some(3),
                (user, _) if user > users / 10 * 9 => Some(0),
                (_, 1..600) => Some(1),
                (_, 600..1500) => Some(2),
                _ => None,
            },
        }
    }
}

/// Numbers without a pattern, the same in every run.
fn mix(number: u32) -> u32 {
    let mixed = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    u32::try_from(mixed >> 32).unwrap_or_default()
}

fn main() {
    let users = env::args().rev().find_map(|arg| arg.parse().ok()).unwrap_or(USERS).max(FEWEST_USERS);
    if let Some(folder) = env::var_os(FOLDER) {
        return measure(&PathBuf::from(folder), users);
    }
    let load = LoadAverage::current().unwrap().one;
    println!("{users} users in {SEGMENTS} segments, batches of {BATCH}, load {load:.2}");
    for (name, spread) in [("scattered", Spread::Scattered), ("in runs", Spread::InRuns), ("mixed", Spread::Mixed)] {
        let folder = testkit::folder();
        for version in [1, 2] {
            write_set(folder.path(), (spread, users), version);
        }
        println!("\n{name}:");
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(users.to_string()).env(FOLDER, folder.path());
        print!("{}", printed_within(DEADLINE, &mut command).unwrap());
    }
}

fn write_set(folder: &Path, (spread, users): (Spread, u32), version: u32) {
    let mut segments = vec![Blocks::default(); SEGMENTS];
    for first in (0..users).step_by(BLOCK as usize) {
        let mut bits = vec![vec![0_u8; BLOCK as usize / 8]; SEGMENTS];
        for user in first..(first + BLOCK).min(users) {
            if let Some(segment) = spread.segment(user, users, version) {
                bits[segment][(user - first) as usize / 8] |= 1 << (user % 8);
            }
        }
        for (ids, bits) in segments.iter_mut().zip(bits) {
            // None of a segment in a block is nothing to add.
            let _ = ids.push(RoaringBitmap::from_lsb0_bytes(first, &bits));
        }
    }
    let entry = |(number, mut ids): (usize, Blocks)| {
        ids.optimize();
        let (cardinality, mut bytes) = (ids.len(), Vec::new());
        write_members(&Members::U32(ids), &mut bytes).unwrap();
        let name = format!("segment-{number}-{version}");
        fs::write(folder.join(&name), &bytes).unwrap();
        let object = ObjectKey::parse(&name).unwrap();
        let sha256 = Sha256(sha2::Sha256::digest(&bytes).into());
        ManifestSegment { name: format!("segment-{number}"), object, bytes: bytes.len() as u64, sha256, cardinality }
    };
    let segments = segments.into_iter().enumerate().map(entry).collect();
    let manifest = Manifest { version: version.to_string(), user_id: UserIdKind::U32, segments };
    fs::write(folder.join(format!("manifest-{version}.json")), manifest.to_json()).unwrap();
}

fn publish(folder: &Path, version: u32) {
    fs::rename(folder.join(format!("manifest-{version}.json")), folder.join("manifest.json")).unwrap();
}

fn measure(folder: &Path, users: u32) {
    publish(folder, 1);
    let runtime = Runtime::new().unwrap();
    let (mut source, empty_mb) = runtime.block_on(async {
        let manifest = Location::File(folder.join("manifest.json"));
        let manifest = StoredObject::connect(&manifest, &S3Options::default()).await;
        (SegmentSource::new(manifest, ""), resident_mb()[0])
    });
    // The operating system has the files in memory: they were written just now.
    let began = Instant::now();
    let set = runtime.block_on(source.load()).unwrap().unwrap();
    goal("read, hashed, checked and compared, s", began.elapsed().as_secs_f64(), 1.0);
    goal("memory of the set, MB", resident_mb()[0] - empty_mb, 150.0);
    goal("the same at its most while loading, MB", resident_mb()[1] - empty_mb, 150.0);
    let mut times: Vec<_> = Lane::of(users).batches(BATCHES, || Arc::clone(&set)).map(|turn| turn.looking).collect();
    times.sort_unstable();
    goal("look-ups of a batch, median, ms", times[times.len() / 2].as_secs_f64() * 1e3, 1.5);
    measure_refresh((folder, users), &runtime, &mut source, set);
}

/// A lane looks up batches while the set is replaced by one that has no object in common with it.
fn measure_refresh((folder, users): (&Path, u32), runtime: &Runtime, source: &mut SegmentSource, set: Arc<SegmentSet>) {
    let refreshed = Refreshed::new(set);
    let done = AtomicBool::new(false);
    let turns = thread::scope(|scope| {
        let (refreshed, done) = (&refreshed, &done);
        let lane = scope.spawn(move || {
            let turns = Lane::of(users).batches(u32::MAX, || refreshed.current());
            turns.take_while(|_| !done.load(Ordering::Relaxed)).collect::<Vec<_>>()
        });
        publish(folder, 2);
        runtime.block_on(async {
            refresh(source, refreshed).await;
            assert_eq!(refreshed.current().version(), "2");
            // Until the old set is freed.
            tokio::time::sleep(Duration::from_millis(500)).await;
        });
        done.store(true, Ordering::Relaxed);
        lane.join().unwrap()
    });
    let longest = turns.iter().map(|turn| turn.swapping).max().unwrap_or_default();
    println!("  a lane during a refresh: {} batches", turns.len());
    goal("taking a set and letting go of it in a refresh, longest, ms", longest.as_secs_f64() * 1e3, 1.0);
}

/// One batch of a lane.
struct Turn {
    /// Taking the set, and releasing it at the end.
    swapping: Duration,
    looking: Duration,
}

struct Lane {
    scratch: LookupScratch,
    users: u32,
}

impl Lane {
    fn of(users: u32) -> Self {
        Self { scratch: LookupScratch::default(), users }
    }

    /// Looks up batches of users that are not in the cache.
    fn batches(mut self, count: u32, set: impl Fn() -> Arc<SegmentSet>) -> impl Iterator<Item = Turn> {
        let mut found = Vec::new();
        (0..count).map(move |round| {
            let user = |at: u32| mix(at.wrapping_mul(7919).wrapping_add(round.wrapping_mul(104_729))) % self.users;
            let ids: Vec<String> = (0..BATCH).map(|at| user(at).to_string()).collect();
            let began = Instant::now();
            let set = set();
            let got = began.elapsed();
            set.lookup_many(ids.iter().map(|id| set.number(id)), &mut self.scratch, &mut found);
            let looked = began.elapsed();
            drop(set);
            Turn { swapping: began.elapsed() - looked + got, looking: looked - got }
        })
    }
}

fn goal(what: &str, measured: f64, at_most: f64) {
    let verdict = if measured <= at_most { "met" } else { "not met" };
    println!("  goal 6: {what}: {measured:.2}, wanted at most {at_most}: {verdict}");
}

/// What this process has resident now, and the most that it had.
fn resident_mb() -> [f64; 2] {
    let status = Process::myself().unwrap().status().unwrap();
    [status.vmrss, status.vmhwm].map(|kib| kib.unwrap() as f64 * 1024.0 / 1e6)
}
