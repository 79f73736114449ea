use super::*;
use crate::time::Time;

/// An instance of a test: what it knows of the room, and whether it uses what it gets.
struct Instance {
    name: &'static str,
    room: u64,
    uses: bool,
    held: u64,
}

/// What each instance was granted over so many rounds of turns, as a keeper takes them.
fn rounds(instances: &mut [Instance], rounds: i64) -> Vec<u64> {
    let mut book = PermitBook::default();
    let mut granted = vec![0; instances.len()];
    for round in 0..rounds {
        for (place, Instance { name, room, uses, held }) in instances.iter_mut().enumerate() {
            let unused = if *uses { 0 } else { *held };
            let want = if *uses && *held > 0 { MOST } else { 6 };
            let turn = PermitTurn {
                route: "email",
                service: None,
                room: Some(*room),
                want,
                unused,
                recent: 0,
                rate: None,
                slow: 1.0,
                took: (0, 0),
            };
            let now = Time::default().plus(550 * round);
            *held = book.turn(name, &turn, &mut Registry::default(), (now, LEASE)).permits;
            granted[place] += *held;
        }
    }
    granted
}

fn instance(name: &'static str, room: u64, uses: bool) -> Instance {
    Instance { name, room, uses, held: 0 }
}

#[test]
fn idle_instances_leave_permits_to_one_that_knows_of_less_room() {
    let granted = rounds(&mut [instance("idle", 1_500, false), instance("busy", 3, true)], 40);
    assert!(granted[1] >= 10, "it takes part, every fourth turn at the least: {granted:?}");
}

#[test]
fn the_only_permit_comes_round_to_the_instance_that_uses_it() {
    for order in [[0, 1, 2], [0, 2, 1], [2, 0, 1]] {
        let mut instances = order.map(|place| instance(["a", "b", "c"][place], 1, place == 2));
        let granted = rounds(&mut instances, 40);
        let busy = order.iter().position(|place| *place == 2).unwrap();
        assert!(granted[busy] >= 10, "{order:?}: {granted:?}");
    }
}

#[test]
fn reported_times_are_in_the_mean_of_a_service_that_is_known() {
    let (mut book, now) = (PermitBook::default(), (Time::default(), LEASE));
    let mut turn = |registry: &mut Registry, service, took| {
        let turn = PermitTurn {
            route: "email",
            service,
            room: None,
            want: 1,
            unused: 0,
            recent: 0,
            rate: None,
            slow: 1.0,
            took,
        };
        book.turn("a", &turn, registry, now).processing_ms
    };
    let mut known = Registry { is_known: true, ..Registry::default() };
    let service = Some("hedwig");
    assert_eq!(turn(&mut known, service, (0, 0)), None);
    assert_eq!(turn(&mut known, service, (2, 300)), Some(150));
    assert_eq!(turn(&mut known, service, (0, 0)), Some(150), "they are counted once");
    assert_eq!(turn(&mut known, service, (20, 1_000)), Some(100), "as if 20 had been before");
    assert_eq!(turn(&mut known, None, (20, 1_000)), None, "the route has no service");
    assert_eq!(turn(&mut Registry::default(), service, (2, 300)), None, "nobody has registered");
}
