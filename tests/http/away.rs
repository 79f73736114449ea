//! What is answered while Redis cannot.

use serde_json::json;
use testkit::wait_until;

use crate::{
    client::Client,
    support::{DEADLINE, POLICY, Scene},
};

#[test]
fn while_redis_is_away_or_has_lost_its_history_it_is_said_and_when_to_ask_again() {
    let (mut redis, mut scene) = Scene::with_redis("away", 1, POLICY);
    scene.set("WEIR__REDIS__TIMEOUT", "500ms");
    let (_worker, client) = Client::ready(&scene, "away");
    let intent = json!({"id": "i", "user_id": 7});
    assert_eq!(client.decide("", &intent).json()["verdict"], "approved");

    redis.freeze();
    for reply in [client.get("/v1/users/7"), client.decide("", &intent), client.decide("?dry_run=true", &intent)] {
        reply.problem(503, "store_away");
        assert_eq!(reply.headers["retry-after"], "1");
    }
    // What needs no Redis goes on.
    client.get("/v1/segments/new/members/7").json();
    assert_eq!(client.get("/livez").status, 200);
    redis.thaw();
    wait_until(DEADLINE, "users are answered again", || client.get("/v1/users/7").status == 200);
    assert_eq!(client.decide("", &intent).json()["verdict"], "approved", "it was recorded once");

    redis.restart().unwrap();
    for path in ["/v1/users/7", "/v1/users/8"] {
        let mut reply = client.get(path);
        // The first request may find the old connection.
        wait_until(DEADLINE, "the loss is noticed", || {
            reply = client.get(path);
            reply.body.contains("history_lost")
        });
        reply.problem(503, "history_lost");
        assert_eq!(reply.headers["retry-after"], "30");
    }
    client.decide("", &intent).problem(503, "history_lost");
}
