//! Turns at a log that answers as it is told, by a clock that the tests move.

mod world;

use weir_core::{
    basis::shard::UserHash,
    limit::pressure::{ActiveBy, activity::ActivityHash},
};
use world::{Does, Turn, World, policy, spread, told, until};

use super::*;
use crate::share::{AskedTurn, CLOSE_WITHIN};

#[tokio::test]
async fn turns_come_once_a_second_at_any_rate_and_a_last_one_at_the_end() {
    let mut world = World::loaded(100_000).await;
    let (stop, running) = world.run();
    for turn in 0..20_u64 {
        until("a turn each second", || world.log.turns().len() as u64 == turn + 2).await;
        until("it is shown", || world.status.seen().is_some()).await;
        world.note(turn * 1_000..turn * 1_000 + turn * 20);
        world.clock.advance(Duration::from_millis(999));
        until("the keeper has looked at the clock", || world.clock.is_waited_for()).await;
        assert_eq!(world.log.turns().len() as u64, turn + 2, "none within the second");
        world.clock.advance(Duration::from_millis(1));
    }
    until("the turn after the last users", || world.log.turns().len() == 22).await;
    let sent: usize = world.log.turns().iter().map(Turn::users).sum();
    assert_eq!(sent, (0..20).map(|turn| turn * 20).sum::<usize>());

    world.note(77_777..77_778);
    stop.cancel();
    running.await.unwrap();
    let last = world.log.last();
    assert_eq!((last.member_for_ms, last.users()), (0, 1));
}

async fn is_taken(turn: &AskedTurn) -> bool {
    tokio::select! { biased; () = turn.taken() => true, () = std::future::ready(()) => false }
}

#[tokio::test]
async fn a_turn_that_is_asked_for_comes_at_once_and_counts_once_all_is_told() {
    let mut world = World::loaded(1_000).await;
    let asked = world.status.turns();
    let (stop, running) = world.run();
    until("the first turn", || world.clock.is_waited_for()).await;
    assert_eq!(world.log.turns().len(), 2);
    world.note(1..2);
    world.log.next(Does::Refuses);
    let turn = asked.ask();
    until("the refusal", || world.status.unsynced().is_some()).await;
    assert_eq!((world.log.turns().len(), world.log.last().users()), (3, 1), "at once, by the same clock");
    assert!(!is_taken(&turn).await, "it has no answer");
    world.clock.advance(TURN_EVERY);
    turn.taken().await;
    let told: Vec<_> = world.log.turns().iter().skip(2).map(Turn::users).collect();
    assert_eq!(told, [1, 1, 0], "made again, and one more");

    asked.ask().taken().await;
    assert_eq!(world.log.turns().len(), 6);
    stop.cancel();
    running.await.unwrap();
    asked.ask().taken().await;
}

#[tokio::test]
async fn a_turn_that_began_before_it_was_asked_for_does_not_count() {
    let mut world = World::loaded(1_000).await;
    let asked = world.status.turns();
    world.log.next(Does::Hangs);
    let (stop, running) = world.run();
    until("a turn that hangs", || world.log.turns().len() == 2 && world.clock.is_waited_for()).await;
    world.note(1..2);
    let turn = asked.ask();
    assert!(!is_taken(&turn).await);
    // It is given up, and the next one tells of the user.
    world.clock.advance(MEMBER_FOR);
    turn.taken().await;
    let told: Vec<_> = world.log.turns().iter().skip(1).map(Turn::users).collect();
    assert_eq!(told, [0, 1]);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn nobody_waits_for_a_turn_of_an_instance_that_is_overtaken() {
    let mut world = World::loaded(1_000).await;
    let asked = world.status.turns();
    let (stop, running) = world.run();
    until("the first turn", || world.clock.is_waited_for()).await;
    world.log.next(Does::IsAhead);
    let turn = asked.ask();
    until("the answer", || world.status.unsynced().is_some()).await;
    assert!(is_taken(&turn).await, "no later one under its number is taken either");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_log_that_hangs() {
    let mut world = World::loaded(1_000).await;
    world.log.next(Does::Hangs);
    world.log.next(Does::Hangs);
    let (stop, running) = world.run();
    until("the first turn", || world.log.turns().len() == 2).await;
    stop.cancel();
    until("the last turn", || world.log.turns().len() == 3).await;
    world.clock.advance(CLOSE_WITHIN);
    tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_turn_that_has_no_answer_is_made_again_as_it_was_and_what_came_meanwhile_follows_at_once() {
    let mut world = World::loaded(1_000).await;
    world.note(0..10);
    [Does::Refuses, Does::Hangs].into_iter().for_each(|does| world.log.next(does));
    world.turn().await;
    let first = world.log.last();
    assert_eq!((first.users(), first.active[0].new), (10, 10));
    assert!(world.status.unsynced().is_some());
    world.note(10..15);
    // It is dropped half way.
    world.clock.advance(TURN_EVERY);
    tokio::select! { biased; _ = world.keeper().round() => panic!("it hangs"), () = std::future::ready(()) => {} }
    assert_eq!(world.log.last(), first);
    assert!(world.turn().await, "at once");
    assert_eq!(world.log.last(), first);
    assert_eq!(*world.status.unsynced(), None);
    assert!(!world.keeper().round().await);
    let second = world.log.last();
    assert_eq!((second.users(), second.number), (5, first.number + 1));
    world.turn().await;
    assert_eq!(world.log.last().users(), 0, "the log knows them");
}

#[tokio::test]
async fn whoever_is_overtaken_gives_up_its_places_at_once_and_asks_again_with_the_same_turn() {
    let mut world = World::with_places().await;
    let places = |world: &World| (world.state().places.left(), world.state().places.held());
    assert_eq!(places(&world), (1_000, 1_000));
    world.turn_that(Does::Refuses).await;
    let first = world.log.last();
    assert_eq!(places(&world), (1_000, 1_000), "silence gives nobody else its places");
    world.turn_that(Does::IsAhead).await;
    assert_eq!((world.log.last(), places(&world)), (first.clone(), (0, 0)));
    assert!(world.status.unsynced().is_some());
    world.turn().await;
    assert_eq!((world.log.last(), places(&world)), (first, (0, 0)), "what it gave up does not come back");
    world.turn().await;
    assert_eq!((world.log.last().held, places(&world)), (0, (1_000, 1_000)));
}

#[tokio::test]
async fn a_place_that_comes_back_once_others_may_have_had_it_lapses() {
    for is_overtaken in [true, false] {
        let mut world = World::with_places().await;
        let (state, until) = (world.state(), world.state().places.until());
        assert!(state.take_place(world.clock.passed()));
        if is_overtaken {
            world.log.next(Does::IsAhead);
        } else {
            // It stands still.
            world.clock.advance(MEMBER_FOR);
        }
        // The second one tells what it holds then.
        world.turn().await;
        world.turn().await;
        let left = state.places.left();
        state.places.put_back(1, until);
        assert_eq!((state.places.left(), state.places.held()), (left, left), "overtaken: {is_overtaken}");
    }
}

#[tokio::test]
async fn a_turn_is_given_up_once_others_may_have_what_it_was_granted_and_its_users_are_told_by_the_next_one() {
    let mut world = World::loaded(1_000).await;
    world.note(0..10);
    world.turn_that(Does::Refuses).await;
    let first = world.log.last();
    world.note(10..15);
    world.clock.advance(MEMBER_FOR - TURN_EVERY);
    world.turn().await;
    let second = world.log.last();
    assert_eq!((second.number, second.users()), (first.number + 1, 15));
}

/// The log is empty, so that both windows are read from its beginning.
#[tokio::test]
async fn a_turn_by_the_maximum_of_before_is_not_made_again_for_another_one() {
    let mut world = World::loaded(1_000).await;
    world.turn_that(Does::Refuses).await;
    let first = world.log.last();
    assert_eq!(first.room, Some(1_000));
    world.policy.replace(policy(Some((100, 10))));
    assert!(world.turn().await, "for places");
    let second = world.log.last();
    assert_eq!((second.number, second.room), (first.number + 1, None));
    assert!(!world.keeper().round().await);
    assert_eq!((world.log.last().room, world.state().max(), world.state().places.held()), (Some(100), 100, 100));
}

#[tokio::test]
async fn places_of_a_turn_that_was_made_again_end_with_those_of_its_first_time() {
    let mut world = World::loaded(1_000).await;
    world.turn_that(Does::Refuses).await;
    let begun_at = world.clock.passed();
    world.turn().await;
    assert_eq!(world.state().places.left(), 1_000);
    for (passed, has) in [(MEMBER_FOR - Duration::from_millis(1), true), (MEMBER_FOR, false)] {
        assert_eq!(world.state().has_place(begun_at + passed), has);
    }
}

#[tokio::test]
async fn what_others_may_not_have_read_is_told_again_where_the_log_has_lost_it() {
    let mut world = World::loaded(1_000).await;
    for turn in 0..14 {
        world.note(turn * 10..turn * 10 + 10);
        world.turn().await;
    }
    world.note(140..150);
    world.log.next(Does::Answers(SyncReply { lost: true, members: 2, ..SyncReply::default() }));
    assert!(world.turn().await, "at once");
    world.turn().await;
    let again: Vec<_> = world.log.last().active.iter().flat_map(|active| active.users.clone()).collect();
    assert_eq!((again.len(), again.contains(&spread(50)), again.contains(&spread(139))), (90, true, true));
    world.turn().await;
    assert_eq!(world.log.last().users(), 0);
}

#[tokio::test]
async fn after_a_loss_nobody_gets_places_until_all_members_have_told_again_or_may_be_gone() {
    let reply = |lost, members| Does::Answers(SyncReply { lost, members, ..SyncReply::default() });
    for returns in [true, false] {
        let mut world = World::loaded(1_000).await;
        world.turn_that(reply(false, 3)).await;
        world.turn_that(reply(true, 1)).await;
        let lost_at = world.clock.passed();
        let mut turns = 0;
        while turns == 0 || world.log.last().room == Some(0) {
            world.turn_that(reply(false, if returns && turns == 2 { 3 } else { 1 })).await;
            turns += 1;
        }
        let waited = world.clock.passed() - lost_at;
        assert_eq!(waited, if returns { 4 * TURN_EVERY } else { MEMBER_FOR }, "returns: {returns}");
        assert_eq!(world.log.last().room, Some(1_000));
    }
}

#[tokio::test]
async fn without_the_log_places_are_usable_until_others_may_have_them() {
    let mut world = World::with_places().await;
    let synced_at = world.clock.passed();
    assert_eq!(world.state().places.left(), 1_000);
    for _ in 1..10 {
        world.turn_that(Does::Refuses).await;
        assert_eq!(world.state().places.left(), 1_000);
    }
    assert_eq!(world.status.unsynced().as_ref().as_ref().unwrap().since, synced_at + TURN_EVERY);
    assert!(world.state().take_place(world.clock.passed()));
    // Not answered within the second that is left.
    world.log.next(Does::Hangs);
    let (clock, log, turns) = (world.clock.clone(), world.log.clone(), world.log.turns().len());
    let end = async {
        until("the turn", || log.turns().len() > turns).await;
        clock.advance(TURN_EVERY);
    };
    tokio::join!(world.keeper().round(), end);
    assert_eq!(world.clock.passed(), synced_at + MEMBER_FOR);
    assert_eq!((world.state().places.left(), world.state().places.held()), (0, 1), "one is taken");
    assert!(!world.state().take_place(world.clock.passed()));
    world.turn().await;
    assert_eq!(world.log.last().held, 1);
    assert_eq!(world.state().places.left(), 999, "shared anew");
}

#[tokio::test]
async fn whoever_stood_still_until_others_may_have_its_places_asks_as_one_without_any() {
    let one_less = MEMBER_FOR - Duration::from_millis(1);
    for (stood_still, holds) in [(one_less, 1_000), (MEMBER_FOR, 1)] {
        let mut world = World::with_places().await;
        assert!(world.state().take_place(world.clock.passed()));
        world.clock.advance(stood_still - TURN_EVERY);
        world.turn().await;
        assert_eq!(world.log.last().held, holds, "after {stood_still:?}");
        assert_eq!(world.state().places.left(), 999, "shared anew");
        let begun_at = world.clock.passed();
        assert!(world.state().has_place(begun_at + one_less));
        assert!(!world.state().has_place(begun_at + MEMBER_FOR), "others may have them");
    }
}

#[tokio::test]
async fn an_answer_that_is_heard_when_others_may_have_the_places_of_before_keeps_none_of_them() {
    let mut world = World::with_places().await;
    assert!(world.state().take_place(world.clock.passed()));
    world.turn_that(Does::StoodStill(world.clock.clone(), MEMBER_FOR - TURN_EVERY)).await;
    assert_eq!(world.log.last().held, 1_000, "it began in time");
    assert_eq!((world.state().places.left(), world.state().places.held()), (0, 1), "one is taken");
    world.turn().await;
    assert_eq!(world.state().places.left(), 999, "shared anew");
}

#[tokio::test]
async fn of_users_who_wait_to_be_told_no_more_are_kept_than_may_be_active_or_a_turn_tells() {
    let most = USERS_A_TURN as u64;
    let mut world = World::loaded(most).await;
    for wave in 0..3 {
        world.note(wave * most..(wave + 1) * most);
        world.log.next(Does::Refuses);
        world.clock.advance(Duration::from_secs(60));
        world.turn().await;
    }
    world.turn().await;
    let sent = world.log.last();
    assert_eq!(sent.users(), USERS_A_TURN);
    assert!(sent.active.last().unwrap().users.contains(&spread(3 * most - 1)), "the latest");
    let dropped = world.counts.synced.read().unwrap().1;
    // Some were taken for others by the filter, and never told.
    assert!((2 * most - 1_000..=2 * most).contains(&dropped), "{dropped}");
}

#[tokio::test]
async fn users_beyond_a_turn_follow_at_once_and_are_held_until_then() {
    let mut world = World::loaded(1_000_000).await;
    let many = USERS_A_TURN as u64 + 1_000;
    world.note(0..many);
    assert!(world.turn().await, "there is more to tell");
    let first = world.log.last();
    assert_eq!((first.users(), first.room), (USERS_A_TURN, None));
    assert_eq!(first.held + first.active[0].new, 2 * many, "who is not told is held, and as many are expected again");
    assert!(!world.keeper().round().await);
    let second = world.log.last();
    assert_eq!((second.users(), second.held), (1_000, many), "as many are expected again: the second goes on");
    assert!(second.room.is_some());
}

#[tokio::test]
async fn places_are_kept_for_as_many_as_became_active_without_one_in_the_last_second() {
    let mut world = World::loaded(1_000).await;
    let user = |number: u64| ActivityHash::from(UserHash::of(&number.to_string()));
    let mut came = 40;
    let minute = world.clock.minute();
    world.pressure.note((0..40).map(user), minute, minute);
    while world.state().look() < 990 {
        let minute = world.clock.minute();
        world.turn().await;
        let state = world.state();
        while state.take_place(world.clock.passed()) {
            world.pressure.note_in(&state, [(user(came), ActiveBy::Intent)], minute);
            state.places.used(1);
            came += 1;
        }
        // Reported, or of another channel.
        world.pressure.note((came..came + 40).map(user), minute, minute);
        came += 40;
    }
    assert!((980..=1_020).contains(&came), "{came}");
}

#[tokio::test]
async fn a_turn_a_little_less_than_a_second_after_another_keeps_places_for_those_who_came_since_alone() {
    for (passed_ms, left) in [(950, 920), (500, 880)] {
        let mut world = World::with_places().await;
        world.note(0..40);
        world.turn().await;
        world.note(40..80);
        world.clock.advance(Duration::from_millis(passed_ms));
        world.keeper().round().await;
        let found = world.state().places.left();
        assert!(found.abs_diff(left) <= 2, "{found}, {passed_ms} ms after the turn before");
    }
}

#[tokio::test]
async fn turns_that_are_asked_for_within_a_second_neither_free_what_is_kept_nor_forget_what_was_told() {
    let mut world = World::with_places().await;
    (0..7).for_each(|_| assert!(world.state().take_place(world.clock.passed())));
    // Reported, or of another channel.
    world.note(0..40);
    world.turn().await;
    for user in 40..42 {
        world.note(user..user + 1);
        assert!(!world.keeper().round().await);
        let turn = world.log.last();
        assert_eq!((turn.users(), turn.wanted), (1, 7));
        let (held, room) = (world.state().places.held(), turn.room.unwrap());
        assert!(held + 40 <= room + 2, "{held} of {room} are held, and as many may come as before");
    }
    world.log.next(Does::Answers(SyncReply { lost: true, members: 1, ..SyncReply::default() }));
    assert!(world.turn().await, "at once");
    world.turn().await;
    assert_eq!(world.log.last().users(), 42, "all that was told");
}

#[tokio::test]
async fn whoever_is_asked_for_places_tells_how_many_and_keeps_no_more_than_its_part() {
    let mut world = World::with_places().await;
    assert_eq!((world.log.last().wanted, world.state().places.left()), (0, 1_000));
    for (asks, wanted) in [(7, 7), (3, 7), (0, 3), (0, 0)] {
        (0..asks).for_each(|_| assert!(world.state().take_place(world.clock.passed())));
        world.turn().await;
        assert_eq!(world.log.last().wanted, wanted, "of this turn and the one before");
    }
    let fewer = SyncReply { part: 200, members: 2, ..SyncReply::default() };
    world.turn_that(Does::Answers(fewer)).await;
    assert_eq!(world.state().places.left(), 990, "until the next turn");
    world.turn_that(Does::Refuses).await;
    assert_eq!((world.log.last().held, world.state().places.left()), (200, 190));
}

#[tokio::test]
async fn while_nobody_may_come_in_no_places_are_kept() {
    let mut world = World::with_places().await;
    let others: Vec<u64> = (0..1_100).map(|user| spread(user).0).collect();
    let active = vec![told(world.clock.minute(), &others)];
    world.turn_that(Does::Answers(SyncReply { active, part: 1_000, members: 2, ..SyncReply::default() })).await;
    assert!(world.state().is_throttling());
    for held in [1_000, 0] {
        world.turn().await;
        assert_eq!((world.log.last().room, world.log.last().held), (Some(0), held));
    }
}

#[tokio::test]
async fn a_minute_that_is_ahead_of_the_clock_by_more_than_one_is_ignored_and_counted() {
    let mut world = World::loaded(1_000).await;
    let now = world.clock.minute();
    let at = |minutes: i64, user: u64| told(Minute(now.0 + minutes), &[spread(user).0, spread(user + 1).0]);
    let active = vec![at(2, 10), at(1, 20), at(0, 30), at(-9, 40), at(-10, 50)];
    world.turn_that(Does::Answers(SyncReply { active, members: 2, bytes: 7, ..SyncReply::default() })).await;
    let known = [10, 20, 30, 40, 50].map(|user| world.is_active(spread(user).0));
    assert_eq!(known, [false, true, true, true, false]);
    let ten_of_the_load = 10;
    assert_eq!(*world.counts.synced.write().unwrap(), (7 + ten_of_the_load, 2));
}

#[tokio::test]
async fn a_start_reads_all_of_the_window_and_asks_again_for_a_while() {
    let mut world = World::new(Some((1_000, 10)));
    let part = |user: u64, more: bool| {
        let active = vec![told(world.clock.minute(), &[user << 40])];
        Does::Answers(SyncReply { active, cursor: Some("7-0".into()), more, members: 1, ..SyncReply::default() })
    };
    [part(1, true), Does::Refuses, part(2, true), part(3, false)].into_iter().for_each(|does| world.log.next(does));
    let (clock, log) = (world.clock.clone(), world.log.clone());
    let pause = async {
        until("the refusal", || log.turns().len() == 2 && clock.is_waited_for()).await;
        clock.advance(TURN_EVERY);
    };
    let (loaded, ()) = tokio::join!(world.keeper().load(Duration::from_secs(1)), pause);
    loaded.unwrap();
    assert!([1, 2, 3].into_iter().all(|user| world.is_active(user << 40)));
    let turns = world.log.turns();
    assert_eq!(turns.iter().map(|turn| turn.cursor.is_some()).collect::<Vec<_>>(), [false, true, true, true]);
    assert!(turns.iter().all(|turn| turn.room.is_none()), "no places before all is read");

    let mut world = World::new(Some((1_000, 10)));
    world.log.next(Does::Refuses);
    assert!(world.keeper().load(Duration::ZERO).await.is_err());
    assert!(world.pressure.state().is_none());
    World::new(None).keeper().load(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn another_maximum_or_window_is_read_anew_and_none_ends_it() {
    let mut world = World::with_places().await;
    let first = world.state();
    world.note(0..5);
    let late = world.state();
    world.policy.replace(policy(Some((2_000, 20))));
    let window = told(world.clock.minute(), &[1 << 40]);
    world.log.next(Does::Answers(SyncReply { active: vec![window], members: 1, more: true, ..SyncReply::default() }));
    assert!(world.turn().await);
    assert_eq!(world.log.last().cursor, None);
    assert!(Arc::ptr_eq(&world.state(), &first), "in force until all is read");
    assert_eq!(world.log.last().held, first.places.held() + 5, "whose places are held");
    assert!(world.turn().await, "for places");
    assert!(Arc::ptr_eq(&world.state(), &first), "until there are places");
    drop(first);
    assert!(!world.keeper().round().await);
    let second = world.state();
    assert!(second.places.left() > 0);
    assert_eq!((second.max(), second.users.window()), (2_000, 20));
    assert!(world.is_active(1 << 40));
    assert!((0..5).all(|user| second.users.is_active(spread(user), world.clock.minute())), "who was told meanwhile");

    // A batch that began before tells at last.
    world.pressure.note_in(&late, [(spread(100), ActiveBy::Intent)], world.clock.minute());
    drop(late);
    world.turn().await;
    assert!(second.users.is_active(spread(100), world.clock.minute()));
    assert_eq!(world.log.last().users(), 1);
    assert_eq!(world.status.seen().as_ref().as_ref().unwrap().max_active_users, 2_000);

    world.policy.replace(policy(None));
    let turns = world.log.turns().len();
    world.turn().await;
    assert!(world.pressure.state().is_none());
    assert_eq!((world.log.turns().len(), world.status.seen().is_none()), (turns, true));
}

#[tokio::test]
async fn a_maximum_that_changes_again_leaves_those_of_before_in_force_until_there_are_places_and_counts_theirs() {
    let mut world = World::with_places().await;
    let first = world.state();
    assert!(first.take_place(world.clock.passed()), "of a batch that is under way");
    world.policy.replace(policy(Some((2_000, 10))));
    assert!(world.turn().await, "for places");
    world.turn_that(Does::Refuses).await;
    assert_eq!(world.log.last().room, Some(2_000));
    world.policy.replace(policy(Some((3_000, 10))));
    assert!(world.turn().await, "for places");
    assert_eq!((world.log.last().room, world.log.last().held), (None, 1_000));
    assert!(Arc::ptr_eq(&world.state(), &first), "until there are places");
    assert!(!world.keeper().round().await);
    assert_eq!((world.log.last().room, world.log.last().held), (Some(3_000), 1_000));
    assert_eq!((world.state().max(), world.state().places.left()), (3_000, 2_000));
    world.turn().await;
    assert_eq!(world.log.last().held, 2_001, "with the place of the batch");
    world.pressure.note_in(&first, [(spread(7), ActiveBy::Intent)], world.clock.minute());
    first.places.used(1);
    world.turn().await;
    assert!(world.state().users.is_active(spread(7), world.clock.minute()), "by the maximum in force, too");
}

#[tokio::test]
async fn users_who_came_by_intents_that_the_rule_does_not_apply_to_are_shown_for_the_window() {
    let mut world = World::loaded(1_000).await;
    let by = [ActiveBy::ExemptIntent, ActiveBy::Intent, ActiveBy::ExemptIntent];
    let came = (0..3).map(spread).zip(by);
    world.pressure.note_in(&world.state(), came, world.clock.minute());
    world.note(2..5);
    for (minutes, expected) in [(0, 2), (9, 2), (1, 0)] {
        world.clock.advance(Duration::from_secs(minutes * 60));
        world.turn().await;
        let seen = world.status.seen();
        assert_eq!(seen.as_ref().as_ref().unwrap().exempt_users, expected, "{minutes} minutes later");
    }
}
