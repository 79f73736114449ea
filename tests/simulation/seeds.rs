//! Many seeds, and the report of one that fails.

use std::{sync::atomic::AtomicUsize, time::Instant};

use super::{
    prelude::*,
    run::{Outcome, STUCK, run},
};

/// Number of seeds that a test of a change runs: every change is tested with eight times as many.
const SEEDS: u64 = 15;
/// Number of seeds that have to reach everything that the simulation looks at.
const REACHING: u64 = 500;
/// Number of seeds within which a planted bug must be found where its recorded seed does not show it any more.
const NEXT: u64 = 50;
/// The same where no seed is recorded.
const FOUND_WITHIN: u64 = 1_000;
/// Lines of a trace that are shown.
const SHOWN: usize = 200;
/// So many failing seeds end a run: each is named, and a long run is not begun again for each.
const MOST_BROKEN: usize = 10;

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn tell(seed: u64, sabotage: Sabotage) -> String {
    let Outcome { broken, trace, .. } = run(seed, sabotage, Tracing::On);
    let from = if number("WEIR_SIM_SEED").is_some() { 0 } else { trace.len().saturating_sub(SHOWN) };
    let outcome = if broken.is_empty() { "holds".to_owned() } else { format!("breaks:\n  {}", broken.join("\n  ")) };
    format!(
        "seed {seed} {outcome}\n\nits end, oldest first (all of it: cargo xtask simulate --seed {seed}):\n{}",
        trace[from..].join("\n")
    )
}

fn on_all_cores(work: impl Fn() + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

/// Runs seeds until so many have failed; returns those.
fn broken(seeds: Range<u64>, sabotage: Sabotage, most: usize, each: impl Fn(u64, &Outcome) + Sync) -> BTreeSet<u64> {
    let (next, broken) = (AtomicU64::new(seeds.start), Mutex::<BTreeSet<u64>>::default());
    on_all_cores(|| {
        while lock(&broken).len() < most {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = run(seed, sabotage, Tracing::Off);
            each(seed, &outcome);
            if !outcome.broken.is_empty() {
                lock(&broken).insert(seed);
            }
        }
    });
    broken.into_inner().unwrap()
}

/// A test for each part.
macro_rules! parts {
    ($of:ident: $($name:ident $number:literal),*) => {$(
        #[test]
        fn $name() {
            $of($number);
        }
    )*};
}

mod nothing_is_lost_nothing_twice_and_no_cap_exceeded_whatever_breaks {
    use super::*;

    parts! {
        keep_part:
        in_part_1 0, in_part_2 1, in_part_3 2, in_part_4 3, in_part_5 4, in_part_6 5, in_part_7 6, in_part_8 7
    }

    #[test]
    #[ignore = "cargo xtask simulate runs it, with the seeds in the environment"]
    fn in_chosen_seeds() {
        let from = number("WEIR_SIM_FROM").unwrap_or(0);
        keep_all_promises(match number("WEIR_SIM_SEED") {
            Some(seed) => {
                println!("{}", tell(seed, Sabotage::None));
                seed..seed + 1
            }
            None => from..from + number("WEIR_SIM_SEEDS").unwrap_or(SEEDS),
        });
    }
}

/// Those of a change.
fn keep_part(part: u64) {
    keep_all_promises(part * SEEDS..(part + 1) * SEEDS);
}

#[expect(clippy::print_stdout, reason = "cargo xtask simulate shows how far it is")]
fn keep_all_promises(seeds: Range<u64>) {
    let began = Instant::now();
    let slowest = AtomicU64::new(0);
    let tale = Mutex::new(Tale::default());
    let said = AtomicU64::new(0);
    let all = seeds.end - seeds.start;
    let broken = broken(seeds, Sabotage::None, MOST_BROKEN, |seed, outcome| {
        if let Some(first) = outcome.broken.first() {
            println!("seed {seed} breaks: {first}");
        }
        slowest.fetch_max(u64::try_from(outcome.recovered_in.as_millis()).unwrap(), Relaxed);
        lock(&tale).add(&outcome.tale);
        let done = said.fetch_add(1, Relaxed) + 1;
        if done.is_multiple_of(1_000) {
            let left = began.elapsed().as_secs_f64() / done as f64 * (all - done) as f64;
            println!("{done} of {all} seeds, {left:.0} s left");
        }
    });
    if let Some(seed) = broken.first() {
        panic!("seeds {broken:?} break; {}", tell(*seed, Sabotage::None));
    }
    let slowest = Duration::from_millis(slowest.into_inner());
    let tale = tale.into_inner().unwrap();
    println!("{tale:?}");
    if all >= REACHING {
        assert_eq!(tale.unreached(), Vec::<&str>::new(), "seeds that do not reach these prove nothing about them");
    }
    println!("{all} seeds in {:.1?}; the slowest was done {slowest:.1?} after its last fault", began.elapsed());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..3 {
        // What weir logs is left out: whether it is built depends on the threads beside, since `tracing` remembers that for all.
        let told = |line: &String| !line.contains("  weir: ");
        let [first, second] =
            [(); 2].map(|()| run(seed, Sabotage::None, Tracing::On).trace.into_iter().filter(told).collect::<Vec<_>>());
        assert!(first.len() > 50, "there is something to compare");
        assert_eq!(first, second);
    }
}

/// These planted bugs; one, where the environment names it.
fn planted(of: impl Iterator<Item = Sabotage>) -> impl Iterator<Item = Sabotage> {
    let only = std::env::var("WEIR_SIM_PLANTED").ok();
    of.filter(move |sabotage| only.as_ref().is_none_or(|only| *only == format!("{sabotage:?}")))
}

/// How a seed shows a planted bug; `None` if it does not.
fn shown(sabotage: Sabotage, seed: u64) -> Option<String> {
    let broken = run(seed, sabotage, Tracing::Off).broken.into_iter().next()?;
    assert!(!broken.starts_with(STUCK), "{sabotage:?} is not found, but seed {seed} is {broken}");
    Some(broken)
}

mod every_planted_bug_is_found {
    use super::*;

    parts! { find: in_part_1 0, in_part_2 1, in_part_3 2, in_part_4 3, in_part_5 4, in_part_6 5 }
}

#[expect(clippy::print_stdout, reason = "it says by which seeds")]
fn find(part: usize) {
    let bugs = planted(Sabotage::ALL.into_iter().skip(part).step_by(6));
    let bugs: Vec<(Sabotage, u64)> = bugs.filter_map(|sabotage| Some((sabotage, sabotage.seed()?))).collect();
    let next = AtomicUsize::new(0);
    on_all_cores(|| {
        while let Some(&(sabotage, recorded)) = bugs.get(next.fetch_add(1, Relaxed)) {
            let found = std::iter::once(recorded).chain(0..NEXT).find_map(|seed| Some((seed, shown(sabotage, seed)?)));
            let (seed, broken) = found.unwrap_or_else(|| {
                panic!(
                    "neither seed {recorded} nor the first {NEXT} show {sabotage:?}: record another one in sabotage.rs, by \
                     WEIR_SIM_PLANTED={sabotage:?} cargo test -p weir-simulation -- --ignored --nocapture every_planted"
                )
            });
            println!("{sabotage:?}: seed {seed}: {broken}");
        }
    });
}

#[test]
#[ignore = "looks for each planted bug from the first seed on, for ten minutes: cargo xtask ci --extent everything"]
fn every_planted_bug_is_found_by_the_first_seeds() {
    for sabotage in planted(Sabotage::ALL.into_iter()) {
        let found = broken(0..FOUND_WITHIN, sabotage, 1, |_, _| {}).pop_first();
        let seed = found.unwrap_or_else(|| panic!("{sabotage:?} was not found within {FOUND_WITHIN} seeds"));
        println!("{sabotage:?}: seed {seed}: {}", shown(sabotage, seed).expect("it has shown it"));
    }
}
