//! What limits gave to intents that a cap denies goes to others of the same batch.

use super::pressure::{RULE, World};
use super::*;

const INTENTS: u64 = 4_000;
const USERS: u64 = 2_100;
const MOST: u64 = 1_500;
const ROUTE: &str = "[[routes]]\nname = \"push\"\nchannel = \"push\"\nconsumer_group = \"g\"\nwhen_full = \"suppress\"";

/// Intents of users in no order.
fn intents() -> Rows {
    let mut random = 1_u64;
    let value = |id| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!(r#"{{"id":"{id}","user_id":"{}","channel":"push"}}"#, (random >> 33) % USERS)
    };
    Rows::of((0..INTENTS).map(value))
}

/// Decides a batch as a lane does: what is settled, and how many are approved.
fn decide<'b>(mut asked: AskedBatch<'b, Rows>) -> (DecidedBatch<'b, Rows>, Settlement, u64) {
    let store = store();
    ask(&store, &mut asked, now());
    let mut offers = 0;
    while asked.offer() {
        assert!(ask(&store, &mut asked, now()) > 0);
        offers += 1;
    }
    assert!(offers > 1, "{offers} offers");
    let (decided, settlement) = asked.finish();
    let approved = approved(&decided, INTENTS as usize).into_iter().map(u64::from).sum();
    (decided, settlement, approved)
}

fn budget(selection: &str) -> String {
    format!("[[budgets]]\nname = \"spring\"\nlimit = {MOST}\ntotal = true\nbest_effort = true\n{selection}")
}

/// The batch by a decider whose budget has [`MOST`] tokens left.
fn funded_batch<'b>(decider: &Decider, records: &'b Rows, decoded: &'b [Decoded<'b>]) -> (AskedBatch<'b, Rows>, Heard) {
    let gated = decider.begin(DecodedBatch { records, decoded }, asking());
    let answers = granted(gated.claim().unwrap(), MOST);
    funded(gated, answers)
}

/// Intents that are sent before.
fn send(decider: &Decider, store: &EmbeddedStore, records: Rows) {
    let decoded = decider.decode(&records);
    let batch = DecodedBatch { records: &records, decoded: &decoded };
    ask(store, &mut decider.begin(batch, Ground::at(now())).ask(None), now());
}

#[test]
fn tokens_that_come_back_in_a_batch_are_spent_in_it() {
    let (decider, records) = (capped(&budget("")), intents());
    let decoded = decider.decode(&records);
    let (asked, heard) = funded_batch(&decider, &records, &decoded);
    let (mut decided, settlement, approved) = decide(asked);
    assert!((1_480..=MOST).contains(&approved), "{approved} of {MOST}");
    // Each token is spent once or goes back, whatever becomes of the commit: all is recorded.
    drop(settlement);
    assert_eq!(heard.back(), MOST - approved);
    let (_, tally) = decided.outputs(&|_| None);
    let [(_, [spent, returned, _])] = &tally.budget_tokens[..] else { panic!("{:?}", tally.budget_tokens) };
    assert_eq!((*spent, *returned), (approved, MOST - approved));
}

#[test]
fn what_gets_tokens_late_is_judged_by_its_own_caps() {
    let caps = ["push", "email"]
        .map(|channel| format!("{{ name = \"{channel}\", limit = 1, window = \"1h\", channel = \"{channel}\" }}"));
    let text = format!("version = \"1\"\ndefault = {{ caps = [{}] }}\n{}", caps.join(", "), budget(""));
    let (decider, store) = (Decider::of(Policy::of(&text)), store());
    send(&decider, &store, Rows::of([to("v", "email", 9)]));
    // The second token comes back to the third intent, and then to the last one. All that the budget denies is looked up, too.
    let sent = [("u", "push"), ("u", "push"), ("v", "email"), ("w", "email")];
    let records = Rows::of(sent.iter().enumerate().map(|(id, (user, channel))| to(user, channel, id)));
    let decoded = decider.decode(&records);
    let ground = Ground { read_before: ReadBefore::All, ..asking() };
    let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, ground);
    let answers = granted(gated.claim().unwrap(), 2);
    let (mut asked, _heard) = funded(gated, answers);
    ask(&store, &mut asked, now());
    for _ in 0..2 {
        assert!(asked.offer());
        ask(&store, &mut asked, now());
    }
    assert_eq!(approved(&asked.finish().0, 4), [true, false, false, true]);
}

#[test]
fn a_batch_that_only_asks_puts_all_its_tokens_back_at_once() {
    let (decider, records) = (capped(&budget("")), intents());
    let decoded = decider.decode(&records);
    let (mut asked, heard) = funded_batch(&decider, &records, &decoded);
    asked.put_back();
    assert_eq!(heard.back(), MOST);
    ask(&store(), &mut asked, now());
    drop(asked.finish());
    assert_eq!(heard.back(), 0, "they are not put back again");
}

#[test]
fn no_intent_takes_from_a_budget_that_nobody_has_asked() {
    let (decider, records) = (capped(&budget("")), intents());
    let decoded = decider.decode(&records);
    let asked = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking()).ask(None);
    assert!((0..decoded.len()).all(|record| asked.fate(record).waits()));
}

/// What is sent to a user on a channel.
fn to(user: &str, channel: &str, id: usize) -> String {
    format!(r#"{{"id":"{id}{channel}","user_id":"{user}","channel":"{channel}"}}"#)
}

/// A world with so many places for users who are not active, in which some have had their one.
fn pressed(places: u64, had: &[&str]) -> World {
    let world = World::of(capped(RULE), places);
    send(&world.decider, &world.store, Rows::of(had.iter().enumerate().map(|(id, user)| to(user, "sms", id))));
    world
}

/// Which of these are approved of a batch of pushes, which is offered once what came back.
fn approved_pushes(World { decider, store, .. }: &World, users: &[&str]) -> Vec<usize> {
    let records = Rows::of(users.iter().enumerate().map(|(id, user)| to(user, "push", id)));
    let decoded = decider.decode(&records);
    let mut asked = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, Ground::at(now())).ask(None);
    ask(store, &mut asked, now());
    assert!(asked.offer());
    ask(store, &mut asked, now());
    assert!(!asked.offer(), "no place is left, or nobody needs one");
    let approved = approved(&asked.finish().0, users.len());
    (0..users.len()).filter(|index| approved[*index]).collect()
}

/// Users who have had their one, and are not active, take places in vain.
#[test]
fn places_that_come_back_in_a_batch_are_taken_in_it() {
    let users: Vec<String> = (0..20).map(|number| format!("u{number}")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let world = pressed(10, &users[..8]);
    assert_eq!(approved_pushes(&world, &users), (8..18).collect::<Vec<_>>());
    assert_eq!((world.state.places.left(), world.state.places.held()), (0, 0));
}

#[test]
fn a_user_who_gets_a_place_that_came_back_needs_one_for_all_intents() {
    let world = pressed(1, &["o"]);
    // The place of the first goes to the second, whose other one a cap denies: no place is left for the third.
    assert_eq!(approved_pushes(&world, &["o", "u", "u", "o", "v"]), [1]);
    assert_eq!((world.state.places.left(), world.state.places.held()), (0, 0));
}

#[test]
fn what_comes_back_of_one_limit_is_not_given_to_an_intent_that_lacks_another() {
    let routes = Routes::new();
    routes.state("push").grant(2, 0, PASSED + Duration::from_secs(3));
    let decider = Decider { held: routed(routes), ..capped(&format!("{}{ROUTE}", budget("campaign = \"a\"\n"))) };
    let value = |(id, (user, campaign)): (usize, &(&str, &str))| {
        format!(r#"{{"id":"{id}","user_id":"{user}","channel":"push","campaign":"{campaign}"}}"#)
    };
    // The second is denied by the cap: its permit comes back, and no token. The third needs one, the last does not.
    let users = [("u", "b"), ("u", "b"), ("v", "a"), ("w", "b")];
    let records = Rows::of(users.iter().enumerate().map(value));
    let decoded = decider.decode(&records);
    let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
    let outcomes = vec![Outcome::Granted; gated.claim().unwrap().wants.len()];
    let (store, (mut asked, _heard)) = (store(), funded(gated, with_outcomes(outcomes, None)));
    ask(&store, &mut asked, now());
    assert!(asked.offer());
    ask(&store, &mut asked, now());
    assert_eq!(approved(&asked.finish().0, 4), [true, false, false, true]);
}

#[test]
fn what_comes_back_is_given_to_no_intent_that_a_later_one_of_its_user_was_asked_before() {
    let routes = Routes::new();
    routes.state("push").grant(1, 0, PASSED + Duration::from_secs(3));
    let decider = Decider { held: routed(routes), ..capped(ROUTE) };
    // The first push of `w` has the permit, and the cap denies it. The sms of `u` needs none.
    let sent = [("w", "sms"), ("w", "push"), ("u", "push"), ("u", "sms"), ("v", "push")];
    let records = Rows::of(sent.iter().enumerate().map(|(id, (user, channel))| to(user, channel, id)));
    let decoded = decider.decode(&records);
    let batch = DecodedBatch { records: &records, decoded: &decoded };
    let (store, mut asked) = (store(), decider.begin(batch, Ground { passed: PASSED, ..Ground::at(now()) }).ask(None));
    assert_eq!(ask(&store, &mut asked, now()), 3);
    assert!(asked.offer());
    assert_eq!(ask(&store, &mut asked, now()), 1);
    assert!(!asked.offer(), "the permit is used");
    assert_eq!(approved(&asked.finish().0, 5), [true, false, false, true, true]);
}

#[test]
fn what_comes_back_is_offered_where_it_is_a_hundredth_of_what_was_given_or_more() {
    let decider = capped(&budget(""));
    for (given, is_offered) in [(100, true), (101, false)] {
        // The second of the first user is denied by the cap, and the last one by the budget.
        let users = (0..given).map(|user: usize| user.saturating_sub(1)).chain([given]);
        let records = Rows::of(users.enumerate().map(|(id, user)| to(&user.to_string(), "push", id)));
        let decoded = decider.decode(&records);
        let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
        let answers = granted(gated.claim().unwrap(), given as u64);
        let (mut asked, heard) = funded(gated, answers);
        ask(&store(), &mut asked, now());
        assert_eq!(asked.offer(), is_offered, "one of {given}");
        drop(asked);
        assert_eq!(heard.back(), 1, "all others are recorded");
    }
}
