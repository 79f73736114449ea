//! What the kit makes go wrong does, and nothing else.

use testkit::kafka::{Api, Fate, Kafka, Moment, Record, Trap};

#[test]
fn a_tap_cuts_the_request_that_it_is_set_for_once_and_a_topic_is_open_again_once_its_denial_is_lifted() {
    let kafka = Kafka::start_tapped(1).unwrap();
    kafka.create_topic("cut", 1).unwrap();
    let tapped = kafka.tapped_client();
    for moment in [Moment::Request, Moment::Reply] {
        kafka.tap(0).arm(Trap { api: Api::EndTransaction, moment, fate: Fate::Cut });
        tapped.publish("cut", [Record::keyless("another kind of request")]).unwrap();
        assert!(!kafka.tap(0).is_sprung());
        kafka.tap(0).arm(Trap { api: Api::Produce, moment, fate: Fate::Cut });
        // An idempotent producer sends again, and the broker knows what it has.
        tapped.publish("cut", [Record::keyless("cut off")]).unwrap();
        assert!(kafka.tap(0).is_sprung());
    }
    assert_eq!(kafka.client().read_committed("cut").unwrap().len(), 4);

    kafka.create_topic("closed", 1).unwrap();
    let denial = kafka.deny_writing("closed").unwrap();
    assert!(kafka.client().publish("closed", [Record::keyless("no")]).is_err());
    denial.lift().unwrap();
    kafka.client().publish("closed", [Record::keyless("yes")]).unwrap();
}
