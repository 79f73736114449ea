use std::collections::BTreeSet;

use super::*;

fn rule(max_active_users: u64) -> PressureRule {
    PressureRule { max_active_users, window_minutes: 30, filter: Filter::default(), action: Action::Defer }
}

pub(super) fn user(number: u64) -> ActivityHash {
    UserHash::of(&format!("user-{number}")).into()
}

#[test]
fn it_throttles_at_the_maximum_and_until_5_percent_below() {
    let state = PressureState::new(&rule(1_000));
    state.places.add(10);
    let now = Minute(1_000_000);
    let mut noted = 0..;
    let mut fill = |estimate, minute| {
        while state.users.estimate() < estimate {
            state.users.note(user(noted.next().unwrap()), minute, minute);
        }
        state.look();
        assert_eq!(state.take_place(Duration::ZERO), !state.is_throttling());
        state.is_throttling()
    };
    assert!(!fill(985, now));
    assert!(fill(990, now), "as exactly as users are counted");
    // Those leave; others come meanwhile.
    let later = Minute(now.0 + 29);
    fill(1_500, later);
    state.users.sweep(Minute(now.0 + 30));
    assert!((300..700).contains(&state.users.estimate()));
    assert!(fill(955, later), "still less than 5% below");
    let state = PressureState::new(&rule(1_000));
    for number in 0..1_010 {
        state.users.note(user(number), now, now);
        state.look();
    }
    assert!(state.is_throttling() && !state.has_place(Duration::ZERO));
    state.users.sweep(Minute(now.0 + 30));
    assert!(state.is_throttling(), "until it looks again");
    assert_eq!((state.look(), state.is_throttling()), (0, false));
}

#[test]
fn with_a_maximum_of_one_a_user_may_come_in() {
    let state = PressureState::new(&rule(1));
    state.places.add(1);
    assert_eq!((state.look(), state.take_place(Duration::ZERO)), (0, true));
    state.users.note(user(1), Minute(5), Minute(5));
    assert_eq!((state.look(), state.take_place(Duration::ZERO)), (1, false));
    state.users.sweep(Minute(35));
    state.look();
    assert!(!state.is_throttling());
}

#[test]
fn users_who_wait_come_back_evenly_over_the_window() {
    let rule = rule(1_000);
    let window_ms = rule.window_ms();
    let users: Vec<UserHash> = (0..3_000).map(|number| UserHash::of(&number.to_string())).collect();
    let spread = |at: Time| -> Vec<i64> { users.iter().map(|user| rule.spread_of(*user, at)).collect() };
    let first = Time::default().plus(1_795_132_800_000);
    for minutes in [0, 1, 17] {
        let mut spread = spread(first.plus(minutes * 60_000));
        spread.sort_unstable();
        for (place, share) in [(0, 0), (750, 25), (1_500, 50), (2_250, 75), (2_999, 100)] {
            assert!((spread[place] - window_ms * share / 100).abs() < window_ms / 20, "{} at {share}%", spread[place]);
        }
        assert!((0..window_ms).contains(&spread[0]) && (0..window_ms).contains(&spread[2_999]));
    }
    // Those who come back in one minute are spread over the whole window again.
    let again = first.plus(17 * 60_000);
    let together = users.iter().filter(|user| rule.spread_of(**user, first) / 60_000 == 17);
    let minutes: BTreeSet<i64> = together.map(|user| rule.spread_of(*user, again) / 60_000).collect();
    assert!(minutes.len() > 25, "{minutes:?} of 30");
    // Whoever is among the last tenth is so about every tenth time.
    let tries: Vec<Vec<i64>> = (0..100).map(|minutes| spread(first.plus(minutes * 60_000))).collect();
    let is_last = |user: usize| move |spread: &&Vec<i64>| spread[user] >= window_ms * 9 / 10;
    let most = (0..users.len()).map(|user| tries.iter().filter(is_last(user)).count()).max().unwrap();
    assert!(most <= 25, "a user is among the last tenth in {most} of 100 minutes");
}

#[test]
fn a_user_is_told_once_a_minute_and_as_new_once_a_window() {
    let (pressure, inbox) = Pressure::new();
    pressure.note([user(1)], Minute(1), Minute(1));
    assert!(inbox.try_recv().is_err(), "nothing is in force");
    pressure.replace(Some(Arc::new(PressureState::new(&rule(1_000)))));
    pressure.note([user(1), user(2), user(1)], Minute(1), Minute(1));
    pressure.note([user(1)], Minute(1), Minute(1));
    pressure.note([user(1), user(3)], Minute(2), Minute(2));
    let told: Vec<ActiveIn> = inbox.try_iter().map(|told| told.active).collect();
    let expected = |minute, new, users: &[u64]| ActiveIn {
        minute: Minute(minute),
        new,
        users: users.iter().map(|number| user(*number)).collect(),
    };
    assert_eq!(told, [expected(1, 2, &[1, 2]), expected(2, 1, &[1, 3])]);
}

#[test]
fn of_users_who_wait_for_the_task_no_more_are_kept_than_may_be_active_or_a_turn_tells() {
    assert_eq!([1_000, 1_000_000].map(most_untold), [USERS_A_TURN, 1_000_000]);
    let (pressure, inbox) = Pressure::new();
    let tell = |users: u64| {
        let users = (0..users).map(ActivityHash).collect();
        pressure.hand_over(ActiveTold { active: ActiveIn { minute: Minute(1), new: 0, users }, exempt: 0 }, 10);
        pressure.take_dropped()
    };
    assert_eq!([tell(6), tell(4), tell(1)], [0, 0, 1]);
    let told = || inbox.try_iter().map(|told| told.active.users.len()).sum::<usize>();
    assert_eq!((told(), tell(2)), (10, 2), "the task has not said that it has heard of them");
    pressure.heard(4);
    assert_eq!([tell(5), tell(4)], [5, 0]);
    assert_eq!(told(), 4);
}
