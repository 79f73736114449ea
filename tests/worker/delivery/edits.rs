//! Policies that change while intents wait: what was known of a route before denies no intent, and opens no route wide; and what waits is
//! decided by the policy of when it has its turn.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{kafka::Record, wait_for, wait_until};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use super::{
    AHEAD_S, Post, delivered, looking, mails, outputs, pace::fastest_second, paced, route, routed, wait_decided, waits,
};
use crate::support::{DEADLINE, Scene, http::metric, outcome::intent, unlimited};

/// An intent of the blast's campaign that expires in 100 s.
fn short_lived(name: &str, number: usize) -> Record {
    let expires_at = SystemClock.now().plus(100_000);
    intent(name, number, json!({"channel": "email", "campaign": "blast", "expires_at": expires_at}))
}

#[test]
fn an_intent_is_not_expired_by_what_was_known_of_its_route_before_it_was_removed() {
    // What waits takes 300 s of it.
    const MAILS: usize = 6_000;
    let scene = routed("route-again", (4, 32), &paced(20));
    let worker = looking(&scene, "weir-0");
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "they wait", || waits(&worker) > MAILS as u64 * 9 / 10);
    // Once it is counted what waits, the rate denies those that would expire meanwhile.
    let mut late = 0;
    let expired = wait_for(DEADLINE, || {
        scene.publish([short_lived(&format!("late-{late}"), late)]);
        late += 1;
        scene.wait_until_drained();
        scene.output("suppressed").pop()
    });
    let expired = expired.expect("an intent has expired at once").value_text();
    assert!(expired.contains(r#""reason":"expired""#), "{expired}");

    scene.write_policy(&unlimited(2, ""));
    wait_decided(&scene, MAILS + late);
    let [_, denied] = outputs(&scene);
    scene.write_policy(&unlimited(3, &paced(20)));
    let publisher = scene.kafka.publisher(&scene.topic("intents")).unwrap();
    let mut fresh = 0;
    // As many come as the route takes, from before its rule is in force until it has been looked at again.
    wait_until(DEADLINE, "the route has been looked at", || {
        for _ in 0..4 {
            publisher.send(&short_lived(&format!("fresh-{fresh}"), fresh)).unwrap();
            fresh += 1;
            publisher.serve(Instant::now() + Duration::from_millis(50));
        }
        let in_force = metric(&worker, "weir_version_info", "source=\"policy\",version=\"3\"") == Some(1.0);
        in_force && route(&worker)["members"].as_u64() >= Some(1)
    });
    publisher.finish().unwrap();
    let all = MAILS + late + fresh;
    wait_decided(&scene, all);
    assert_eq!(outputs(&scene), [all - denied, denied], "each has one record, and no other was denied");
}

#[test]
fn a_change_of_the_route_approves_no_more_than_delivery_takes() {
    const TAKES: u32 = 300;
    const STANDS: usize = 18_000;
    const RULE: &str = "rate = 2400";
    let post = Post::new("changed", RULE);
    let other = |number: usize| Record::new(number.to_string(), "{}");
    post.scene.kafka.publish(&post.scene.topic("approved"), (0..STANDS).map(other)).unwrap();
    let worker = looking(&post.scene, "weir-0");
    // Its consumers begin at the end, and pass what stands with their first records: they have delivered none of it.
    let mut delivery = post.delivery_from_its_end(TAKES);
    let mut first = mails("first", usize::MAX);
    wait_until(DEADLINE, "some are delivered, and the route is open", || {
        post.scene.publish(first.next());
        let lag = route(&worker)["lag"].as_u64();
        !delivery.delivered().is_empty() && lag.is_some_and(|lag| lag < u64::from(TAKES))
    });
    post.scene.publish(mails("blast", 40 * TAKES as usize));
    let published = Instant::now();
    wait_until(DEADLINE, "the route has settled", || {
        published.elapsed() >= Duration::from_secs(3 * AHEAD_S) && route(&worker)["why"] == "delivery takes no more"
    });
    let rule = delivered(&post.group, &format!("{RULE}\nmax_attempts = 4"));
    post.scene.change_policy(&worker, "2", &unlimited(2, &rule));
    let settled = delivery.delivered().len();
    wait_until(DEADLINE, "more is delivered", || {
        let lag = post.lag();
        // As before a change: see `a_blast_is_approved_no_faster_than_it_is_delivered`.
        let most = (1.2 * AHEAD_S as f64 + 1.0) * fastest_second(delivery.delivered()) as f64;
        assert!((lag as f64) < most, "{lag} undelivered of at most {most}");
        delivery.delivered().len() > settled + 8 * TAKES as usize
    });
    assert!(waits(&worker) > 0, "the blast lasts");
}

#[test]
fn a_campaign_that_waits_can_be_stopped_and_caps_count_what_was_approved_alone() {
    const EACH: usize = 300;
    let mut scene = Scene::new("stopped-waiting", 4, "");
    let write = |scene: &Scene, version: &str, rate: u32, more: &str| {
        let caps = "[default]\ncaps = [{ name = \"day\", limit = 1, window = \"24h\" }]\n";
        scene.write_policy(&format!("version = \"{version}\"\n{caps}{}{more}", paced(rate)));
    };
    write(&scene, "1", 1, "");
    scene.wait_for_routes(&["email"]);
    let worker = looking(&scene, "weir-0");
    // Both campaigns go to the same users. Each user may have one mail a day.
    scene.publish(mails("spring", EACH).chain(mails("summer", EACH)));
    wait_until(DEADLINE, "they wait", || waits(&worker) > 2 * EACH as u64 * 9 / 10);
    write(&scene, "2", 1_000, "[[stop]]\ncampaign = \"spring\"\n");
    wait_decided(&scene, 2 * EACH);
    assert_eq!(outputs(&scene).iter().sum::<usize>(), 2 * EACH, "each has one record");
    let decisions = scene.decisions();
    for number in 0..EACH {
        let of = |campaign: &str| decisions[&format!("{campaign}-{number}")].reason();
        // Some have their turns before the stop: the first one of a user is approved, and the other one capped.
        let found = (of("spring"), of("summer"));
        let expected = [("stopped", "approved"), ("approved", "cap"), ("cap", "approved")];
        assert!(expected.contains(&found), "{number}: {found:?}");
    }
    let stopped = decisions.values().filter(|decision| decision.reason() == "stopped").count();
    assert!(stopped > EACH / 2, "{stopped} of {EACH}");
}
