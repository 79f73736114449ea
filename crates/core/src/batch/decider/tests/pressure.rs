//! Which users may not come in, what that takes of the places, and who is active afterwards.

use super::*;
use crate::{
    limit::pressure::{ActiveTold, PressureState, activity::Minute},
    policy::Action,
};

pub(super) const RULE: &str = "[pressure]\nmax_active_users = 1000\nchannel = \"push\"\n";

/// Intents by user and channel; their ids are their places.
fn batch(intents: &[(&str, &str)]) -> Rows {
    let value = |(place, (user, channel)): (usize, &(&str, &str))| {
        format!(r#"{{"id":"{place}","user_id":"{user}","channel":"{channel}"}}"#)
    };
    Rows::of(intents.iter().enumerate().map(value))
}

/// A decider with pressure, and a store.
pub(super) struct World {
    pub(super) decider: Decider,
    pressure: Arc<Pressure>,
    pub(super) state: Arc<PressureState>,
    inbox: std::sync::mpsc::Receiver<ActiveTold>,
    pub(super) store: EmbeddedStore,
    now: Time,
}

impl World {
    /// With so much of a policy, and so many places.
    fn new(policy: &str, places: u64) -> Self {
        Self::of(decider(policy), places)
    }

    pub(super) fn of(decider: Decider, places: u64) -> Self {
        let (pressure, inbox) = Pressure::new();
        let state = Arc::new(PressureState::new(decider.policy.get().pressure.as_ref().unwrap()));
        state.places.add(places);
        pressure.replace(Some(Arc::clone(&state)));
        let decider = Decider { held: pressed_by(&pressure), ..decider };
        Self { decider, pressure, state, inbox, store: store(), now: now() }
    }

    /// Decides a batch as a lane does; gives the verdict or the reason of each.
    fn decide(&self, batch: &Rows) -> Vec<&'static str> {
        self.decide_by(batch, Ground::at(self.now))
    }

    fn decide_by(&self, batch: &Rows, ground: Ground<'_>) -> Vec<&'static str> {
        let decoded = self.decider.decode(batch);
        let batch = DecodedBatch { records: batch, decoded: &decoded };
        let mut asked = self.decider.begin(batch, ground).ask(None);
        ask(&self.store, &mut asked, self.now);
        words(&asked.finish().0, decoded.len())
    }

    /// As much of it as that it is through the gate.
    fn gated<'b>(&self, batch: &'b Rows, decoded: &'b [Decoded<'b>], ground: Ground<'b>) -> GatedBatch<'b, Rows> {
        self.decider.begin(DecodedBatch { records: batch, decoded }, ground)
    }

    /// Left to be taken, and held.
    fn places(&self) -> (u64, u64) {
        (self.state.places.left(), self.state.places.held())
    }

    fn is_active(&self, user: &str) -> bool {
        self.state.users.is_active(UserHash::of(user).into(), Minute::from(self.now))
    }

    fn told(&self) -> usize {
        self.inbox.try_iter().map(|told| told.active.users.len()).sum()
    }

    /// Told since the last time as having come by intents that the rule does not apply to.
    fn exempt(&self) -> u64 {
        self.inbox.try_iter().map(|told| told.exempt).sum()
    }
}

fn words(decided: &DecidedBatch<'_, Rows>, records: usize) -> Vec<&'static str> {
    let word = |record| match decided.decision(record).verdict {
        Verdict::Approved(_) => "approved",
        Verdict::Suppressed(suppressed) => suppressed.reason().as_str(),
        Verdict::ShadowSuppressed(..) => "shadow",
    };
    (0..records).map(word).collect()
}

#[test]
fn active_users_pass_and_others_need_a_place() {
    let world = World::new(RULE, 2);
    let first = world.decide(&batch(&[("a", "push"), ("b", "push"), ("c", "push")]));
    assert_eq!(first, ["approved", "approved", "pressure"]);
    assert_eq!(world.places(), (0, 0), "places that users have come in by are held no longer");
    assert_eq!((world.is_active("a"), world.is_active("b"), world.is_active("c")), (true, true, false));
    assert_eq!(world.told(), 2);
    let again = World { now: world.now.plus(29 * 60_000), ..world };
    assert_eq!(again.decide(&batch(&[("c", "push"), ("x", "push"), ("x", "sms"), ("a", "push")]))[0], "pressure");
    assert!(again.is_active("a") && !again.is_active("c"));
    let later = World { now: again.now.plus(60_000), ..again };
    assert_eq!((later.is_active("a"), later.is_active("b")), (true, false), "it was not renewed");
}

#[test]
fn a_user_twice_in_a_batch_asks_for_one_place_and_takes_one() {
    let world = World::new(RULE, 1);
    let found = world.decide(&batch(&[("a", "push"), ("a", "push"), ("b", "push"), ("a", "push"), ("b", "push")]));
    assert_eq!(found, ["approved", "approved", "pressure", "approved", "pressure"]);
    assert_eq!((world.places(), world.told()), ((0, 0), 1));
    assert_eq!(world.state.take_asked(), 2, "though b has none");
}

#[test]
fn places_go_back_where_a_batch_is_given_up() {
    let world = World::new(RULE, 2);
    let given_up = batch(&[("a", "push"), ("b", "push"), ("c", "push")]);
    let decoded = world.decider.decode(&given_up);
    let gated = || world.gated(&given_up, &decoded, Ground::at(world.now));
    let begun = gated();
    assert_eq!(world.places(), (0, 2), "taken ones are held");
    drop(begun);
    assert_eq!(world.places(), (2, 2));
    drop(gated().give_up());
    assert_eq!(world.places(), (2, 2));
    // The same where the store does not answer.
    for does_finish in [false, true] {
        let asked = gated().ask(None);
        assert_eq!(world.places(), (0, 2));
        if does_finish {
            drop(asked.finish());
        } else {
            drop(asked.give_up());
        }
        assert_eq!((world.places(), world.told()), ((2, 2), 0), "they wait");
    }
}

#[test]
fn places_that_come_back_once_others_may_have_had_them_lapse() {
    let world = World::new(RULE, 3);
    let (until, sent) = (Duration::from_secs(10), batch(&[("a", "push"), ("b", "push")]));
    world.state.places.renew(until);
    let decoded = world.decider.decode(&sent);
    let begun = world.gated(&sent, &decoded, Ground::at(world.now));
    // The process stood still meanwhile, and has places again.
    world.state.places.give_up(until);
    world.state.places.add(5);
    world.state.places.renew(2 * until);
    drop(begun);
    assert_eq!(world.places(), (5, 5));
}

#[test]
fn an_intent_that_is_denied_anyway_takes_no_place() {
    let world = World::new(&format!("[[stop]]\ncampaign = \"spring\"\n{RULE}"), 1);
    let stopped = r#"{"id":"1","user_id":"a","channel":"push","campaign":"spring"}"#.to_owned();
    let [fresh] = &batch(&[("b", "push")]).0[..] else { panic!("one intent") };
    let found = world.decide(&Rows::of([stopped.clone(), fresh.value.clone(), stopped]));
    assert_eq!(found, ["stopped", "approved", "stopped"]);
    assert_eq!(world.places(), (0, 0));
}

#[test]
fn another_channel_makes_users_active_and_is_never_denied() {
    let world = World::new(RULE, 0);
    assert_eq!(world.decide(&batch(&[("a", "push"), ("a", "email")])), ["pressure", "approved"]);
    assert!(world.is_active("a"));
    let later = world.decide(&batch(&[("b", "push"), ("c", "push"), ("a", "push")]));
    assert_eq!(later, ["pressure", "pressure", "approved"]);
    assert_eq!(world.told(), 1);
    // However the batches are cut: what comes before in the same one counts.
    let mixed = world.decide(&batch(&[("d", "push"), ("d", "email"), ("d", "push"), ("e", "push")]));
    assert_eq!(mixed, ["pressure", "approved", "approved", "pressure"]);
    let stopped = World::new(&format!("[[stop]]\ncampaign = \"spring\"\n{RULE}"), 0);
    let email = r#"{"id":"1","user_id":"a","channel":"email","campaign":"spring"}"#.to_owned();
    let [push] = &batch(&[("a", "push")]).0[..] else { panic!("one intent") };
    let found = stopped.decide(&Rows::of([email, push.value.clone()]));
    assert_eq!(found, ["stopped", "pressure"], "it makes nobody active");
    // What is never capped is under pressure, too, and makes users active where it is approved.
    let bypass = World::new(&format!("[[bypass]]\nchannel = [\"push\", \"sms\"]\ncounts = false\n{RULE}"), 0);
    let found = bypass.decide(&batch(&[("a", "push"), ("b", "sms"), ("b", "push")]));
    assert_eq!(found, ["pressure", "approved", "approved"]);
    assert_eq!(bypass.decide(&batch(&[("b", "push")])), ["approved"]);
}

#[test]
fn users_who_came_by_another_channel_are_counted_and_nobody_else_is() {
    let world = World::new(RULE, 1);
    // One came by a place; one by email, and is pushed to afterwards; one is denied.
    let came = world.decide(&batch(&[("a", "push"), ("a", "email"), ("b", "email"), ("b", "push"), ("c", "push")]));
    assert_eq!(came, ["approved", "approved", "approved", "approved", "pressure"]);
    assert_eq!(world.exempt(), 1);
    world.decide(&batch(&[("a", "email"), ("b", "email"), ("d", "sms"), ("d", "email")]));
    assert_eq!(world.exempt(), 1, "d");
}

#[test]
fn users_who_are_active_stay_so_and_count_as_before_where_the_policy_applies_to_other_intents_by_now() {
    let world = World::new(RULE, 0);
    assert_eq!(world.decide(&batch(&[("x", "email"), ("a", "email")])), ["approved", "approved"]);
    assert_eq!(world.exempt(), 2);
    world.decider.policy.replace(Arc::new(Policy::uncapped(&RULE.replace("push", "email"))));
    let later = world.decide(&batch(&[("a", "email"), ("b", "email"), ("b", "push")]));
    assert_eq!((&later[..], world.exempt()), (&["approved", "pressure", "approved"][..], 1), "b");
    world.decider.policy.replace(Arc::new(Policy::uncapped(RULE)));
    let last = world.decide(&batch(&[("b", "push"), ("c", "push")]));
    assert_eq!((&last[..], world.exempt()), (&["approved", "pressure"][..], 0));
}

#[test]
fn nothing_is_held_back_in_shadow_mode_and_what_would_be_is_reported() {
    let decider = decider(RULE);
    let policy = Policy { mode: crate::policy::Mode::Shadow, ..(*decider.policy.get()).clone() };
    let decider = Decider { policy: Current::new(Arc::new(policy)), ..decider };
    let shadow = |places| World::of(decider.clone(), places);
    let (full, open) = (shadow(0), shadow(1));
    assert_eq!(full.decide(&batch(&[("a", "push"), ("b", "email")])), ["shadow", "approved"]);
    assert!(full.is_active("a") && full.is_active("b"));
    assert_eq!(full.exempt(), 1, "b");
    assert_eq!(open.decide(&batch(&[("a", "push"), ("b", "push")])), ["approved", "shadow"]);
    assert_eq!((open.places(), open.is_active("a"), open.is_active("b")), ((0, 0), true, true));
}

#[test]
fn a_replay_is_approved_as_it_was_and_makes_its_user_active() {
    let world = World::new(RULE, 1);
    assert_eq!(world.decide(&batch(&[("a", "push")])), ["approved"]);
    let later = World { now: world.now.plus(31 * 60_000), ..world };
    assert!(!later.is_active("a"));
    let two = batch(&[("a", "push"), ("b", "push")]);
    let decoded = later.decider.decode(&two);
    let read_before = || Ground { read_before: ReadBefore::All, ..Ground::at(later.now) };
    let asked = later.gated(&two, &decoded, read_before()).ask(None);
    let due = Some(later.now.plus(60_000));
    for result in [asked.result(0), asked.result(1)] {
        let Disposition::LookUp { denial, .. } = result.disposition else { panic!("{result:?}") };
        assert_eq!(denial, (GateReason::Limit(SuppressReason::Pressure, Action::Suppress), due));
    }
    assert_eq!(later.decide_by(&two, read_before()), ["approved", "pressure"]);
    assert_eq!((later.is_active("a"), later.is_active("b")), (true, false));
}

#[test]
fn budgets_are_not_asked_for_users_who_may_not_come_in() {
    let budget = "[[budgets]]\nname = \"spring\"\nlimit = 5\ntotal = true\n";
    let world = World::new(&format!("{RULE}{budget}"), 1);
    let asked = batch(&[("a", "push"), ("b", "push"), ("b", "email")]);
    let decoded = world.decider.decode(&asked);
    let gated = world.gated(&asked, &decoded, Ground { budgets: Some(PATIENCE), ..Ground::at(world.now) });
    assert_eq!(gated.claim().unwrap().wants.len(), 2, "a's, and b's email");
    let (asked, _heard) = funded(gated, with_outcomes(vec![Outcome::Denied(0); 2], None));
    assert!(asked.requests().requests.is_empty());
    assert_eq!(words(&asked.finish().0, 3), ["budget", "pressure", "budget"]);
    assert_eq!((world.places(), world.is_active("a")), ((1, 1), false), "a budget denied it");
}

#[test]
fn who_looks_takes_nothing() {
    for (places, expected) in [(1, "approved"), (0, "pressure")] {
        let world = World::new(RULE, places);
        let looks = Ground { takes: Takes::Nothing, ..Ground::at(world.now) };
        assert_eq!(world.decide_by(&batch(&[("a", "push")]), looks), [expected]);
        assert_eq!((world.places(), world.is_active("a")), ((places, places), false));
    }
}

#[test]
fn without_a_state_in_force_or_a_rule_everybody_passes() {
    let world = World::new(RULE, 0);
    world.pressure.replace(None);
    assert_eq!(world.decide(&batch(&[("a", "push")])), ["approved"]);
    let no_rule = Decider { held: pressed_by(&world.pressure), ..decider("") };
    world.pressure.replace(Some(Arc::clone(&world.state)));
    let world = World { decider: no_rule, ..world };
    assert_eq!(world.decide(&batch(&[("b", "push")])), ["approved"]);
    assert_eq!(world.told(), 0);
}

#[test]
fn deferred_users_come_back_a_minute_later_or_more_spread_over_the_window() {
    let due_of = |policy: &str, user: &str| {
        let world = World::new(policy, 0);
        let (cause, eligible_at) = (Cause::Plain(SuppressReason::Pressure), Some(world.now.plus(60_000)));
        let suppressed = Suppressed { cause, eligible_at };
        let (why, due) = to_defer(&world.decider, UserHash::of(user), suppressed, world.now)?;
        assert_eq!(why, DeferReason::Pressure);
        Some((due.millis() - world.now.millis()) / 60_000)
    };
    let users: Vec<String> = (0..500).map(|number| format!("user-{number}")).collect();
    let defers = format!("{RULE}action = \"defer\"\n");
    let mut minutes: Vec<i64> = users.iter().map(|user| due_of(&defers, user).unwrap()).collect();
    minutes.sort_unstable();
    assert!((1..=3).contains(&minutes[0]) && (29..=31).contains(&minutes[499]), "{} {}", minutes[0], minutes[499]);
    assert_eq!(due_of(RULE, "a"), None, "it suppresses");
    let bounded = format!("{defers}[defer]\nmax = \"10m\"\n");
    let due: Vec<Option<i64>> = users.iter().map(|user| due_of(&bounded, user)).collect();
    assert!(due.iter().flatten().all(|minutes| *minutes <= 10));
    assert!(due.contains(&None) && due.iter().flatten().count() > 100);
}
