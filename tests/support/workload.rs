//! Seeded intents under the policy of the tests.

use fastrand::Rng;
use testkit::kafka::Record;

use super::model::Sent;

/// Users, picked evenly: of every segment, and of none.
pub const USERS: u64 = 5_000;

pub fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    *random.choice(of).unwrap()
}

/// Intents without end; the same for the same seed.
pub fn stream(seed: u64) -> impl Iterator<Item = Sent> + Send {
    let mut random = Rng::with_seed(seed);
    (0..).map(move |index: u64| Sent {
        id: format!("i-{seed}-{index}"),
        user: random.u64(..USERS),
        channel: pick(&mut random, &[Some("push"), Some("email"), Some("in-app"), None]),
        category: pick(&mut random, &[Some("promo"), Some("partner"), Some("news"), Some("transactional"), None]),
        campaign: pick(&mut random, &[Some("spring"), Some("summer"), None]).map(str::to_owned),
        cost: pick(&mut random, &[1, 1, 1, 1, 2, 3]),
        not_before_ms: None,
    })
}

pub fn intents(count: usize, seed: u64) -> Vec<Sent> {
    stream(seed).take(count).collect()
}

pub fn record(sent: &Sent) -> Record {
    padded(sent, 0)
}

/// A record with so many bytes more payload.
pub fn padded(sent: &Sent, padding: usize) -> Record {
    Record::new(sent.user.to_string(), sent.json_padded(padding))
}

pub fn records(sent: &[Sent]) -> impl Iterator<Item = Record> + '_ {
    sent.iter().map(record)
}
