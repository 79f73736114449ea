//! The promise: one intent, one record, whatever crashes; and no cap exceeded.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::{
    DEADLINE, POLICY, Scene,
    model::{Sent, check},
};
use testkit::{kafka::Record, process::Exit, wait_until};

const INTENTS: usize = 50_000;
const USERS: u64 = 5_000;

/// A small generator of reproducible numbers (PCG's multiplier): the test needs spread, not randomness.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

fn intents(count: usize, seed: u64) -> Vec<Sent> {
    let mut numbers = Numbers(seed);
    (0..count)
        .map(|index| Sent {
            id: format!("i-{seed}-{index}"),
            user: numbers.below(USERS),
            channel: numbers.pick(&[Some("push"), Some("email"), Some("in-app"), None]),
            category: numbers.pick(&[Some("promo"), Some("partner"), Some("news"), Some("transactional"), None]),
            campaign: numbers.pick(&[Some("spring"), Some("summer"), None]).map(str::to_owned),
            cost: numbers.pick(&[1, 1, 1, 1, 2, 3]),
        })
        .collect()
}

fn records(sent: &[Sent]) -> impl Iterator<Item = Record> + '_ {
    sent.iter().map(|sent| Record::new(sent.user.to_string(), sent.json()))
}

/// Every intent has one record, each verdict is the model's, and what was not suppressed is more than nothing.
fn verify(scene: &Scene, sent: &[Sent]) {
    let approved = check(sent, &scene.decisions());
    assert!(scene.output("dead").is_empty());
    assert!(approved > sent.len() / 10 && approved < sent.len(), "{approved} of {} approved", sent.len());
}

#[test]
fn two_instances_share_the_load_while_one_joins_and_one_leaves() {
    let scene = Scene::new("share", 8, POLICY);
    let sent = intents(INTENTS, 1);
    let mut first = scene.worker("first");
    scene.publish(records(&sent[..INTENTS / 4]));
    wait_until(DEADLINE, "the first instance works", || scene.done() > 0);

    let _second = scene.worker("second");
    scene.publish(records(&sent[INTENTS / 4..INTENTS / 2]));
    wait_until(DEADLINE, "half is done", || scene.done() >= INTENTS as i64 / 2);
    let _third = scene.worker("third");
    scene.publish(records(&sent[INTENTS / 2..]));
    first.terminate();
    let exit = first.wait_exit(DEADLINE).unwrap();
    assert_eq!(exit, Exit::Code(0), "a worker that is asked to stop drains and exits 0");
    scene.wait_until_drained();
    verify(&scene, &sent);
}

#[test]
fn a_worker_killed_three_times_loses_nothing_and_sends_nothing_twice() {
    let scene = Scene::new("kill", 8, POLICY);
    let sent = intents(INTENTS, 2);
    scene.publish(records(&sent));
    let _steady = scene.worker("steady");
    for kill in 1..=3 {
        let mut worker = scene.worker("victim");
        let target = INTENTS as i64 * kill / 5;
        wait_until(DEADLINE, "the next kill is due", || scene.done() >= target);
        worker.kill();
    }
    scene.wait_until_drained();
    verify(&scene, &sent);
}

#[test]
fn at_least_once_loses_nothing() {
    let mut scene = Scene::new("at-least-once", 4, POLICY);
    scene.delivery = "at_least_once";
    let sent = intents(5_000, 3);
    scene.publish(records(&sent));
    let _worker = scene.worker("only");
    scene.wait_until_drained();
    verify(&scene, &sent);
}
