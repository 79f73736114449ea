//! What limits gave to intents that a cap denies goes to others of the same batch.

use super::*;
use crate::{
    embedded::EmbeddedStore,
    history::HistoryBounds,
    lease::{Claimed, Leases, Outcome, Ticket},
    ledger::{CountId, TakeAnswer},
    pressure::PressureState,
    routes::{Pool, Routes, Taken},
};

const INTENTS: u64 = 4_000;
const USERS: u64 = 2_100;
const MOST: u64 = 1_500;
const PASSED: Duration = Duration::from_secs(100);
const PATIENCE: Patience = Patience { unavailable_after: None, may_defer: false };

fn now() -> Time {
    Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap()
}

/// One per user.
fn capped(limits: &str) -> Decider {
    let caps = "default = { caps = [{ name = \"once\", limit = 1, window = \"1h\" }] }";
    let policy =
        parse_policy("p.toml", &format!("version = \"1\"\n{caps}\n{limits}"), Format::Toml, 86_400_000).unwrap();
    Decider { policy: Current::new(Arc::new(policy)), ..decider("") }
}

/// Intents of users in no order.
fn intents() -> Campaigns {
    let mut random = 1_u64;
    let value = |id| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!(r#"{{"id":"{id}","user_id":"{}","channel":"push"}}"#, (random >> 33) % USERS)
    };
    Campaigns((0..INTENTS).map(value).collect())
}

fn store() -> EmbeddedStore {
    EmbeddedStore::new(HistoryBounds { retention_ms: 86_400_000, max_entries: 100 })
}

/// Asks the store what it has not answered yet, as a lane does.
fn ask(store: &EmbeddedStore, gated: &mut GatedBatch<'_, Campaigns>) -> usize {
    let open: Vec<RequestIndex> = gated.unanswered().collect();
    let answers = store.admit_each(&gated.part(&open), &vec![now(); open.len()]);
    gated.answer_part(&open, answers);
    gated.asked(&open);
    open.len()
}

/// Decides a batch as a lane does.
fn decide<'b>(
    begun: &mut BatchDecision,
    records: &'b Campaigns,
    decoded: &'b [Decoded<'b>],
) -> (GatedBatch<'b, Campaigns>, u64) {
    let (store, (mut gated, _)) = (store(), begun.gate(records, decoded));
    ask(&store, &mut gated);
    let mut offers = 0;
    while offers < BatchDecision::MOST_OFFERS && begun.offer(&mut gated) {
        assert!(ask(&store, &mut gated) > 0);
        offers += 1;
    }
    assert!(offers > 1, "{offers} offers");
    let approved = (0..decoded.len()).filter(|index| begun.decision(&gated, *index).verdict.is_approved()).count();
    (gated, approved as u64)
}

/// The answers to a claim of a budget that has so many tokens left, of a ledger that has no more.
fn funded(claim: &Claim, left: u64) -> Answers {
    let mut leases = Leases::new(10, 1);
    assert_eq!(leases.claim(Ticket(0), claim, PASSED), Claimed::Pending);
    for granted in [left, 0] {
        // It is asked once more unless far too little was granted.
        let Some((call, _)) = leases.due(PASSED).takes.pop() else { break };
        let (free_in_ms, counted_for_ms, count_id) = (None, 1_000, CountId(1));
        let answer = TakeAnswer { granted, used: left, leased: left, bucket: 0, free_in_ms, counted_for_ms, count_id };
        leases.answered(call, Ok(answer), PASSED, PASSED);
    }
    match leases.claim(Ticket(0), claim, PASSED) {
        Claimed::Answered(answers) => answers,
        Claimed::Pending => panic!("it is pending"),
    }
}

fn budget(selection: &str) -> String {
    format!("[[budgets]]\nname = \"spring\"\nlimit = {MOST}\ntotal = true\nbest_effort = true\n{selection}")
}

#[test]
fn tokens_that_come_back_in_a_batch_are_spent_in_it() {
    let (decider, records) = (capped(&budget("")), intents());
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&records);
    let claim = begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
    begun.claimed(funded(&claim, MOST));
    let (gated, approved) = decide(&mut begun, &records, &decoded);
    assert!((1_480..=MOST).contains(&approved), "{approved} of {MOST}");
    // Each token is spent once or goes back.
    let unspent = begun.unspent(&gated);
    assert_eq!(unspent.iter().map(|(.., tokens)| tokens).sum::<u64>(), MOST - approved);
    assert_eq!(begun.granted().iter().map(|(.., tokens)| tokens).sum::<u64>(), MOST);
    let mut tally = Tally::default();
    begun.count_tokens(&unspent, &mut tally);
}

#[test]
fn what_a_spent_budget_denied_and_the_store_was_asked_for_gets_tokens_too() {
    let (decider, records) = (capped(&budget("")), intents());
    let mut begun = decider.begin_batch(now());
    // The store is asked for what the budget denies, too: it was read before.
    begun.look_up(ReadBefore::All);
    let decoded = begun.decode(&records);
    let claim = begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
    begun.claimed(funded(&claim, MOST));
    let (gated, approved) = decide(&mut begun, &records, &decoded);
    assert!((1_480..=MOST).contains(&approved), "{approved} of {MOST}");
    assert_eq!(begun.fallback(&gated).iter().count(), gated.requests().requests.len());
}

#[test]
fn permits_that_come_back_in_a_batch_are_used_in_it() {
    let route = "[[routes]]\nname = \"push\"\nchannel = \"push\"\nconsumer_group = \"g\"\nwhen_full = \"suppress\"\n";
    let (routes, records) = (Routes::new(), intents());
    let state = routes.state("push");
    state.grant(MOST, 0, PASSED + Duration::from_secs(3));
    let decider = Decider { routes: Some(routes), ..capped(route) };
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&records);
    begun.take_permits(&records, &decoded, PermitsFrom::Pools, PASSED);
    let (gated, approved) = decide(&mut begun, &records, &decoded);
    assert!((1_480..=MOST).contains(&approved), "{approved} of {MOST}");
    let is_approved: Vec<bool> =
        (0..decoded.len()).map(|index| begun.decision(&gated, index).verdict.is_approved()).collect();
    let permits = begun.permits_where(|index| is_approved[index]);
    assert_eq!(permits.iter().map(Taken::permits).sum::<u64>(), approved);
    assert_eq!(state.left(Pool::General, PASSED), MOST - approved);
}

/// What is sent to a user on a channel.
fn to(user: &str, channel: &str, id: usize) -> String {
    format!(r#"{{"id":"{id}{channel}","user_id":"{user}","channel":"{channel}"}}"#)
}

/// A decider with so many places for users who are not active, and a store in which some have had their one.
fn pressed(places: u64, had: &[&str]) -> (Decider, Arc<PressureState>, EmbeddedStore) {
    let decider = capped("[pressure]\nmax_active_users = 1000\nchannel = \"push\"\n");
    let (pressure, _) = Pressure::new();
    let state = Arc::new(PressureState::new(decider.policy.get().pressure.as_ref().unwrap()));
    state.places.add(places);
    pressure.replace(Some(Arc::clone(&state)));
    let (decider, store) = (Decider { pressure: Some(pressure), ..decider }, store());
    let had = Campaigns(had.iter().enumerate().map(|(id, user)| to(user, "sms", id)).collect());
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&had);
    let (mut gated, _) = begun.gate(&had, &decoded);
    ask(&store, &mut gated);
    (decider, state, store)
}

/// Which of these are approved of a batch of pushes, which is offered once what came back.
fn approved_pushes((decider, store): (&Decider, &EmbeddedStore), users: &[&str]) -> Vec<usize> {
    let records = Campaigns(users.iter().enumerate().map(|(id, user)| to(user, "push", id)).collect());
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&records);
    begun.press(&records, &decoded, Places::Take);
    let (mut gated, _) = begun.gate(&records, &decoded);
    ask(store, &mut gated);
    assert!(begun.offer(&mut gated));
    ask(store, &mut gated);
    assert!(!begun.offer(&mut gated), "no place is left, or nobody needs one");
    begun.note_active(&gated);
    (0..users.len()).filter(|index| begun.decision(&gated, *index).verdict.is_approved()).collect()
}

/// Users who have had their one, and are not active, take places in vain.
#[test]
fn places_that_come_back_in_a_batch_are_taken_in_it() {
    let users: Vec<String> = (0..20).map(|number| format!("u{number}")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let (decider, state, store) = pressed(10, &users[..8]);
    assert_eq!(approved_pushes((&decider, &store), &users), (8..18).collect::<Vec<_>>());
    assert_eq!((state.places.left(), state.places.held()), (0, 0));
}

#[test]
fn a_user_who_gets_a_place_that_came_back_needs_one_for_all_intents() {
    let (decider, state, store) = pressed(1, &["o"]);
    // The place of the first goes to the second, whose other one a cap denies: no place is left for the third.
    assert_eq!(approved_pushes((&decider, &store), &["o", "u", "u", "o", "v"]), [1]);
    assert_eq!((state.places.left(), state.places.held()), (0, 0));
}

#[test]
fn what_comes_back_of_one_limit_is_not_given_to_an_intent_that_lacks_another() {
    let route = "[[routes]]\nname = \"push\"\nchannel = \"push\"\nconsumer_group = \"g\"\nwhen_full = \"suppress\"\n";
    let routes = Routes::new();
    routes.state("push").grant(2, 0, PASSED + Duration::from_secs(3));
    let decider = Decider { routes: Some(routes), ..capped(&format!("{}{route}", budget("campaign = \"a\"\n"))) };
    let value = |(id, (user, campaign)): (usize, &(&str, &str))| {
        format!(r#"{{"id":"{id}","user_id":"{user}","channel":"push","campaign":"{campaign}"}}"#)
    };
    // The second is denied by the cap: its permit comes back, and no token. The third needs one, the last does not.
    let users = [("u", "b"), ("u", "b"), ("v", "a"), ("w", "b")];
    let records = Campaigns(users.iter().enumerate().map(value).collect());
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&records);
    begun.take_permits(&records, &decoded, PermitsFrom::Pools, PASSED);
    let claim = begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
    let outcomes = vec![Outcome::Granted; claim.wants.len()];
    begun.claimed(Answers { outcomes, spent: vec![None], leases: vec![None], counted_for_ms: vec![None] });
    let (store, (mut gated, _)) = (store(), begun.gate(&records, &decoded));
    ask(&store, &mut gated);
    assert!(begun.offer(&mut gated));
    ask(&store, &mut gated);
    let approved = [0, 1, 2, 3].map(|index| begun.decision(&gated, index).verdict.is_approved());
    assert_eq!(approved, [true, false, false, true]);
}

#[test]
fn what_comes_back_is_given_to_no_intent_that_a_later_one_of_its_user_was_asked_before() {
    let route = "[[routes]]\nname = \"push\"\nchannel = \"push\"\nconsumer_group = \"g\"\nwhen_full = \"suppress\"\n";
    let routes = Routes::new();
    routes.state("push").grant(1, 0, PASSED + Duration::from_secs(3));
    let decider = Decider { routes: Some(routes), ..capped(route) };
    // The first push of `w` has the permit, and the cap denies it. The sms of `u` needs none.
    let sent = [("w", "sms"), ("w", "push"), ("u", "push"), ("u", "sms"), ("v", "push")];
    let records = Campaigns(sent.iter().enumerate().map(|(id, (user, channel))| to(user, channel, id)).collect());
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&records);
    begun.take_permits(&records, &decoded, PermitsFrom::Pools, PASSED);
    let (store, (mut gated, _)) = (store(), begun.gate(&records, &decoded));
    assert_eq!(ask(&store, &mut gated), 3);
    assert!(begun.offer(&mut gated));
    assert_eq!(ask(&store, &mut gated), 1);
    assert!(!begun.offer(&mut gated), "the permit is used");
    let approved = [0, 1, 2, 3, 4].map(|index| begun.decision(&gated, index).verdict.is_approved());
    assert_eq!(approved, [true, false, false, true, true]);
}

#[test]
fn what_gets_tokens_late_is_judged_by_its_own_caps() {
    let caps = ["push", "email"]
        .map(|channel| format!("{{ name = \"{channel}\", limit = 1, window = \"1h\", channel = \"{channel}\" }}"));
    let text = format!("version = \"1\"\ndefault = {{ caps = [{}] }}\n{}", caps.join(", "), budget(""));
    let policy = parse_policy("p.toml", &text, Format::Toml, 86_400_000).unwrap();
    let decider = Decider { policy: Current::new(Arc::new(policy)), ..decider("") };
    let store = store();
    let had = Campaigns(vec![to("v", "email", 9)]);
    let mut begun = decider.begin_batch(now());
    let decoded = begun.decode(&had);
    let (mut gated, _) = begun.gate(&had, &decoded);
    ask(&store, &mut gated);
    // The second token comes back to the third intent, and then to the last one. All that the budget denies is looked up, too.
    let sent = [("u", "push"), ("u", "push"), ("v", "email"), ("w", "email")];
    let records = Campaigns(sent.iter().enumerate().map(|(id, (user, channel))| to(user, channel, id)).collect());
    let mut begun = decider.begin_batch(now());
    begun.look_up(ReadBefore::All);
    let decoded = begun.decode(&records);
    let claim = begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
    begun.claimed(funded(&claim, 2));
    let (mut gated, _) = begun.gate(&records, &decoded);
    ask(&store, &mut gated);
    for _ in 0..2 {
        assert!(begun.offer(&mut gated));
        ask(&store, &mut gated);
    }
    let approved = [0, 1, 2, 3].map(|index| begun.decision(&gated, index).verdict.is_approved());
    assert_eq!(approved, [true, false, false, true]);
}
