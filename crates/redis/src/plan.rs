//! Which sends go together into one call.

use weir_core::basis::shard::Place;

/// The most users a call carries: keeps the longest run of the script under a millisecond (`cargo xtask bench calls`).
pub(super) const MAX_USERS_A_CALL: usize = 128;
pub(super) const MAX_SENDS_A_CALL: usize = 160;
/// The most sends of one user in a call; what is over waits for the next round, so that order is kept.
pub(super) const MAX_SENDS_A_USER: usize = 32;

/// How many users a call carries. Where many calls were too much work for the script to get to all of their users, the next
/// batch's carry half as many, so that one round trip decides it; then an eighth more after some batches in which that was
/// not so.
#[derive(Debug)]
pub(super) struct CallSize {
    users: usize,
    /// Batches since it was changed.
    batches: usize,
}

/// One call in so many may be too much: it has users of very long histories, whom smaller calls for all would not help.
const SOME: usize = 8;
/// Batches after which larger calls are tried.
const BATCHES: usize = 16;

impl Default for CallSize {
    fn default() -> Self {
        Self { users: MAX_USERS_A_CALL, batches: 0 }
    }
}

impl CallSize {
    /// The first round of a batch is over: so many calls were answered, of which some were too much.
    pub(super) fn learn(&mut self, answered: usize, too_much: usize) {
        self.batches += 1;
        let users = if too_much * SOME > answered {
            (self.users / 2).max(1)
        } else if self.batches > BATCHES {
            (self.users + self.users.div_ceil(SOME)).min(MAX_USERS_A_CALL)
        } else {
            return;
        };
        *self = Self { users, batches: 0 };
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Planned {
    pub(super) place: Place,
    pub(super) request: usize,
}

/// Cuts the sends of a round into calls: each of one shard, all sends of a user in one call and in the order of
/// the batch. Returns the calls; sends that are in none wait for the next round.
pub(super) fn calls(pending: &[Planned], size: &CallSize) -> Vec<Vec<Planned>> {
    let pending = in_order(pending);
    let mut calls: Vec<Vec<Planned>> = Vec::new();
    for shard in pending.chunk_by(|a, b| a.place.shard == b.place.shard) {
        let (mut call, mut users) = (Vec::new(), 0);
        for user in shard.chunk_by(|a, b| a.place == b.place) {
            let user = &user[..user.len().min(MAX_SENDS_A_USER)];
            if users == size.users || call.len() + user.len() > MAX_SENDS_A_CALL {
                calls.push(std::mem::take(&mut call));
                users = 0;
            }
            call.extend_from_slice(user);
            users += 1;
        }
        calls.push(call);
    }
    calls
}

/// The sends by shard, bucket, user and batch. By shard they are counted into their places; what is left to sort then is
/// short.
fn in_order(pending: &[Planned]) -> Vec<Planned> {
    let shards = pending.iter().map(|send| usize::from(send.place.shard) + 1).max().unwrap_or(0);
    let mut ends = vec![0_usize; shards + 1];
    for send in pending {
        ends[usize::from(send.place.shard) + 1] += 1;
    }
    for shard in 1..ends.len() {
        ends[shard] += ends[shard - 1];
    }
    let mut sorted = pending.to_vec();
    for send in pending {
        let end = &mut ends[usize::from(send.place.shard)];
        sorted[*end] = *send;
        *end += 1;
    }
    let mut start = 0;
    for end in ends {
        sorted[start..end].sort_unstable();
        start = end;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use weir_core::basis::shard::HashField;

    use super::*;

    fn send(shard: u16, user: u8, request: usize) -> Planned {
        let place = Place { shard, bucket: u32::from(user % 3), field: HashField::Numbered(user.into()) };
        Planned { place, request }
    }

    #[test]
    fn a_user_is_in_one_call_in_the_order_of_the_batch_and_bounds_hold() {
        let pending: Vec<Planned> = (0..10_000)
            .map(|n| send(u16::try_from(n % 2).unwrap(), if n < 200 { 0 } else { u8::try_from(n % 251).unwrap() }, n))
            .collect();
        for batches in [0, 1, 100] {
            let mut size = CallSize::default();
            (0..batches).for_each(|_| size.learn(8, 2));
            holds(&pending, &size, MAX_USERS_A_CALL.checked_shr(batches).unwrap_or(0).max(1));
        }
    }

    fn holds(pending: &[Planned], size: &CallSize, most_users: usize) {
        let calls = calls(pending, size);
        let mut seen = std::collections::BTreeMap::<Place, Vec<usize>>::new();
        for call in &calls {
            assert!((1..=MAX_SENDS_A_CALL).contains(&call.len()));
            assert!(call.iter().all(|send| send.place.shard == call[0].place.shard));
            let users: Vec<Place> = call.chunk_by(|a, b| a.place == b.place).map(|user| user[0].place).collect();
            assert!(users.len() <= most_users);
            for user in users {
                let requests = call.iter().filter(|send| send.place == user).map(|send| send.request).collect();
                assert!(seen.insert(user, requests).is_none(), "a user is in two calls");
            }
        }
        for (user, requests) in seen {
            let all: Vec<usize> = pending.iter().filter(|send| send.place == user).map(|send| send.request).collect();
            assert_eq!(requests[..], all[..all.len().min(MAX_SENDS_A_USER)]);
        }
    }

    #[test]
    fn calls_shrink_where_many_are_too_much_and_grow_again() {
        let mut size = CallSize::default();
        size.learn(8, 1);
        assert_eq!(size.users, MAX_USERS_A_CALL, "one of many is a user of a long history");
        size.learn(8, 2);
        assert_eq!(size.users, MAX_USERS_A_CALL / 2);
        size.learn(1, 1);
        assert_eq!(size.users, MAX_USERS_A_CALL / 4);
        (0..BATCHES).for_each(|_| size.learn(8, 0));
        assert_eq!(size.users, MAX_USERS_A_CALL / 4);
        size.learn(8, 0);
        assert_eq!(size.users, MAX_USERS_A_CALL / 4 + MAX_USERS_A_CALL / 4 / SOME);
        (0..20 * BATCHES).for_each(|_| size.learn(8, 0));
        assert_eq!(size.users, MAX_USERS_A_CALL);
    }
}
