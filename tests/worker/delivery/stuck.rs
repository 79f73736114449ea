//! A partition of the approved topic that its consumer never passes.

use testkit::{SLOW_INTERVAL, wait_until, wait_until_every};

use super::{AHEAD_S, Post, all_approved, looking, mails, route};
use crate::support::{DEADLINE, SEGMENTS, Scene, http::degraded};

#[test]
fn a_partition_that_its_consumer_never_passes_holds_up_no_other_and_is_named() {
    const TAKES: u32 = 400;
    // A fourth of them is more than may stand undelivered. Once it stands, what is left takes longer at the floor than a test may.
    const MAILS: usize = 8 * AHEAD_S as usize * TAKES as usize;
    let scene = Scene::bare("poisoned", 4, "");
    // One partition of intents keeps them in the order in which they are published. Of several, a broker gives some thousand of one at a
    // time: where so many for the partition that stands are next, it fills the room, and no other shows meanwhile that it goes on.
    scene.create_topics([1, 4, 4, 4]);
    scene.build_segments(&SEGMENTS);
    let post = Post::of(scene, &format!("rate = {}", 5 * TAKES));
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery_of_all_but(TAKES, 0);
    post.scene.publish(mails("blast", MAILS));
    let named = format!("partition 0 of {}", post.scene.topic("approved"));
    wait_until(DEADLINE, "it is named", || {
        route(&worker)["why"].as_str().is_some_and(|words| words.contains(&named) && !words.contains("partition 1"))
    });
    assert!(degraded(&worker).iter().any(|(what, _)| what == "route"), "{:?}", degraded(&worker));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || post.scene.count("approved") >= MAILS);
    let approved = all_approved(&post.scene, MAILS);
    let stands = approved.iter().filter(|record| record.partition == 0).count();
    assert!(stands > 6 * (AHEAD_S as usize * TAKES as usize) / 5, "by itself it has more than may stand: {stands}");
    wait_until(DEADLINE, "the others are delivered", || delivery.delivered().len() > MAILS - stands);
}
