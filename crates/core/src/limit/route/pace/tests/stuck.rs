//! A route of twelve partitions, of which consumers stop passing one, or all.

use super::*;

const PARTITIONS: usize = 12;
const AHEAD_S: f64 = 30.0;
/// What the consumer of a partition takes per second, and what those of all, and of all but one.
const EACH: f64 = 40.0;
const ALL: f64 = 12.0 * EACH;
const OTHERS: f64 = 11.0 * EACH;
/// Steps of a second.
const STEPS: u32 = 20;
/// Each consumer commits every 5 s, at its own time.
const COMMIT_STEPS: usize = 100;

/// What the consumer of each partition takes per second, by time.
type Takes<'t> = &'t dyn Fn(usize, f64) -> f64;

#[derive(Debug, Clone, Copy, Default)]
struct Partition {
    end: f64,
    taken: f64,
    committed: f64,
}

/// A second, of all partitions or of all but the first.
#[derive(Debug)]
struct Seen {
    at: f64,
    approved: f64,
    undelivered: f64,
    undelivered_others: f64,
    taken_others: f64,
    behind: Vec<usize>,
    measured_per_s: Option<f64>,
}

/// A blast on such a route; weir starts again at some time, if it does.
fn run(seconds: u32, restarts: Option<u32>, takes: Takes<'_>) -> Vec<Seen> {
    let mut partitions = [Partition::default(); PARTITIONS];
    let (mut controller, mut delivered) = (Controller::new(30_000, 0), Delivered::default());
    let mut seen = Vec::new();
    let mut ticks = 0_usize;
    for second in 0..seconds {
        let at = f64::from(second);
        if restarts == Some(second) {
            let kept = controller.to_keep();
            (controller, delivered) = (Controller::new(30_000, 0), Delivered::default());
            controller.recall(kept, kept);
        }
        let lags = partitions.map(|Partition { end, committed, .. }| {
            let committed = whole(committed);
            PartitionLag { committed: Some(committed), undelivered: whole(end).saturating_sub(committed) }
        });
        let found = delivered.look(lags.into_iter().enumerate());
        let pace = controller.turn(&sample(second.into(), Some(found.lag), None));
        let permits = to_f64(pace.room).min(2.0 * to_f64(pace.most));
        let taken_before: f64 = partitions[1..].iter().map(|partition| partition.taken).sum();
        for step in 0..STEPS {
            let then = at + f64::from(step) / f64::from(STEPS);
            for (place, partition) in partitions.iter_mut().enumerate() {
                let could = takes(place, then);
                partition.end += permits / f64::from(STEPS) / 12.0;
                partition.taken = (partition.taken + could / f64::from(STEPS)).min(partition.end);
                if could > 0.0 && (ticks + 8 * place).is_multiple_of(COMMIT_STEPS) {
                    partition.committed = partition.taken;
                }
            }
            ticks += 1;
        }
        let others = &partitions[1..];
        seen.push(Seen {
            at,
            approved: permits,
            undelivered: partitions.iter().map(|partition| partition.end - partition.taken).sum(),
            undelivered_others: others.iter().map(|partition| partition.end - partition.taken).sum(),
            taken_others: others.iter().map(|partition| partition.taken).sum::<f64>() - taken_before,
            measured_per_s: pace.measured_per_s,
            behind: found.behind.iter().map(|behind| behind.partition).collect(),
        });
    }
    seen
}

/// The promises, for all partitions but the first: they have no more than 1.2 x ahead x what delivery takes, and their consumers are
/// never without intents for more than 5% of what they could take.
fn check_others(seconds: &[Seen], drain: f64) {
    for second in seconds {
        assert!(second.undelivered_others <= 1.2 * AHEAD_S * drain + 1.0, "{second:?}");
    }
    let taken: f64 = seconds.iter().map(|second| second.taken_others).sum();
    let could: f64 = seconds.iter().map(|_| OTHERS).sum();
    assert!(taken >= 0.95 * could, "{taken} of {could}");
}

#[test]
fn one_partition_of_twelve_that_its_consumer_never_passes_costs_the_others_nothing() {
    // From 700 s on it is passed, and caught up with.
    let takes = |place: usize, at: f64| match place {
        0 if (200.0..700.0).contains(&at) => 0.0,
        0 if at >= 700.0 => 4.0 * EACH,
        _ => EACH,
    };
    let seconds = run(1_100, None, &takes);
    check_others(&seconds[90..700], OTHERS);
    check_others(&seconds[700..], ALL);
    assert!(seconds[..200].iter().all(|second| second.behind.is_empty()), "all go on");
    assert!(seconds[240..750].iter().all(|second| second.behind == [0]), "it is named");
    assert!(seconds[950..].iter().all(|second| second.behind.is_empty()), "it has caught up");
    // What is approved into it meanwhile is its part of what is approved.
    let approved: f64 = seconds[290..700].iter().map(|second| second.approved).sum();
    assert!(approved <= 1.1 * ALL * 410.0, "{approved}");
}

#[test]
fn consumers_that_are_slower_than_the_others_hold_them_to_their_own_speed_and_no_longer_than_they_are() {
    for (count, slow, restarts) in [(1, 0.3, None), (1, 0.5, Some(700)), (1, 0.9, None), (4, 0.5, None), (5, 0.7, None)]
    {
        let takes = |place: usize, at: f64| match place {
            ..5 if place < count && (200.0..1_000.0).contains(&at) => slow * EACH,
            ..5 if place < count && at >= 1_000.0 => 4.0 * EACH,
            _ => EACH,
        };
        let seconds = run(1_300, restarts, &takes);
        assert!(seconds.iter().all(|second| second.behind.is_empty()), "{count} {slow}");
        for second in &seconds[200..1_000] {
            assert!(second.undelivered <= 1.2 * AHEAD_S * ALL, "{count} {slow}: {second:?}");
            assert!(second.measured_per_s.is_none_or(|rate| rate >= 0.75 * ALL), "{count} {slow}: {second:?}");
        }
        let taken: f64 = seconds[300..1_000].iter().map(|second| second.taken_others).sum();
        assert!(taken >= 0.9 * slow * OTHERS * 700.0, "{slow} {restarts:?}: {taken}");
        if count == 1 {
            check_others(&seconds[1_100..], ALL);
        }
    }
}

#[test]
fn where_all_partitions_stand_the_route_falls_to_its_floor_also_if_one_did_before() {
    for stuck_before in [false, true] {
        let stands = |at: f64| (300.0..900.0).contains(&at);
        let takes =
            |place: usize, at: f64| if stands(at) || (stuck_before && place == 0 && at >= 200.0) { 0.0 } else { EACH };
        let seconds = run(1_200, None, &takes);
        let named: &[usize] = if stuck_before { &[0] } else { &[] };
        assert!(seconds[240..].iter().all(|second| second.behind == named), "no other one: {stuck_before}");
        for second in &seconds[330..900] {
            assert!(second.approved <= 0.02 * ALL, "{stuck_before}: {second:?}");
        }
        let resumed = seconds.iter().find(|second| second.at >= 900.0 && second.approved > 100.0).unwrap();
        assert!(resumed.at <= 930.0, "what was probed is delivered first: {stuck_before}: {resumed:?}");
        check_others(&seconds[1_000..], ALL);
    }
}

#[test]
fn weir_that_starts_again_finds_the_partition_by_the_floor_that_it_approves() {
    let takes = |place: usize, at: f64| if place == 0 && at >= 200.0 { 0.0 } else { EACH };
    let seconds = run(1_000, Some(500), &takes);
    assert!(seconds[600..].iter().all(|second| second.behind == [0]), "it is named again");
    check_others(&seconds[700..], OTHERS);
}
