//! Seeded intents under the policy of the tests.

use testkit::kafka::Record;

use super::model::Sent;

/// Users, picked evenly: of every segment, and of none.
pub const USERS: u64 = 5_000;

/// A small generator of reproducible numbers (PCG's multiplier): the test needs spread, not randomness.
#[derive(Debug, Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap()
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

/// Intents without end; the same for the same seed.
pub fn stream(seed: u64) -> impl Iterator<Item = Sent> + Send {
    let mut numbers = Numbers(seed);
    (0..).map(move |index: u64| Sent {
        id: format!("i-{seed}-{index}"),
        user: numbers.below(USERS),
        channel: numbers.pick(&[Some("push"), Some("email"), Some("in-app"), None]),
        category: numbers.pick(&[Some("promo"), Some("partner"), Some("news"), Some("transactional"), None]),
        campaign: numbers.pick(&[Some("spring"), Some("summer"), None]).map(str::to_owned),
        cost: numbers.pick(&[1, 1, 1, 1, 2, 3]),
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
