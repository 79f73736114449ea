//! Deliveries that fail: their consumer writes approved records back as they are, and weir approves them again later; and the checks of
//! that.

use serde_json::Value;

use super::prelude::*;

/// The topic that failed deliveries are written back to.
pub const TOPIC: &str = "retries";
pub const PARTITIONS: i32 = 2;

#[derive(Debug, Clone, Copy)]
pub struct Failing {
    /// How many of 1,000 first deliveries fail, and of those that are tried again.
    first: u32,
    again: u32,
    /// How many first ones fail at most: each may come back for half an hour.
    most: usize,
}

impl Failing {
    /// In every second run with a wheel.
    pub fn draw(env: &Env, has_wheel: bool) -> Option<Self> {
        let mut dice = env.dice("retrie", 0);
        let is_second = dice.bool();
        (env.has(About::Retries, is_second) && has_wheel).then(|| Self {
            first: [20, 100, 300][dice.usize(..3)],
            again: [100, 500, 900][dice.usize(..3)],
            most: 1 + dice.usize(..4),
        })
    }
}

impl Broker {
    /// The delivery of an approved record has failed: it comes back as it is.
    fn write_back(&mut self, approved: &Intent, headers: Vec<Header>) {
        let partition = i32::try_from(approved.key.parse::<u64>().unwrap()).unwrap() % PARTITIONS;
        let (key, value, first) = (approved.key.clone(), approved.value.clone(), approved.first);
        let (log, at) = (Log::Retries, self.env.passed());
        let record = self.write((log, partition), None, |offset| {
            let (deferral, retry) = (None, Some((partition, offset)));
            Intent { log, partition, offset, key, value, at, headers, deferral, first, retry }
        });
        self.env.note(|| format!("a delivery has failed: {record:?}"));
    }
}

/// Delivers what is approved, and writes back what fails, for as long as the simulation runs.
pub async fn deliver(world: Rc<World>, failing: Failing) {
    let env = world.env.clone();
    let mut left = failing.most;
    loop {
        env.sleep(env.millis(50, 500)).await;
        let mut broker = world.broker.borrow_mut();
        let mut failed = Vec::new();
        let (outs, end) = broker.stable(world.delivered.get());
        for out in outs.into_iter().filter(|out| out.to.is_approved()) {
            let is_first = out.intent.retry.is_none();
            let fails = if is_first { left > 0 && env.chance(failing.first) } else { env.chance(failing.again) };
            if fails {
                left -= usize::from(is_first);
                failed.push((Arc::clone(&out.intent), out.headers.clone()));
            }
        }
        world.delivered.set(end);
        for (approved, headers) in failed {
            broker.write_back(&approved, headers);
        }
    }
}

/// The decision in a record's headers, without the number of its retry, and this number. `None`: there is not one decision.
fn decision(headers: &[Header]) -> Option<(Value, u64)> {
    let mut found = headers.iter().filter(|(name, _)| *name == HeaderName::Decision.as_str());
    let (Some((_, text)), None) = (found.next(), found.next()) else { return None };
    let mut decision: Value = serde_json::from_str(text).ok()?;
    let retry = decision.as_object_mut()?.remove("retry");
    let retry = retry.map_or(Some(0), |retry| retry.as_u64())?;
    Some((decision, retry))
}

impl Judge<'_> {
    /// All promises about deliveries that fail: each is tried again as its route says, once, and then it is delivered as it was approved,
    /// or given up.
    pub fn retried(&mut self, broker: &Broker, outs: &[&Out]) {
        let mut ends: BTreeMap<(i32, i64), usize> = BTreeMap::new();
        for out in outs {
            let (Some(place), Some(ask)) = (out.intent.retry, self.asks.get(&out.intent.first)) else { continue };
            if !matches!(out.to, Destination::Deferred(_) | Destination::Waiting { .. }) {
                *ends.entry(place).or_default() += 1;
            }
            if let Some(what) = self.wrong_retry(out, ask, place) {
                let Out { intent, to, headers, .. } = out;
                self.broken.push(format!("retry: {what}: {intent:?} went to {to:?} with {headers:?}"));
            }
        }
        for record in broker.all(Log::Retries) {
            let times = ends.get(&(record.partition, record.offset)).copied().unwrap_or(0);
            if times != 1 {
                self.broken.push(format!("retry: {record:?} ended {times} times"));
            }
        }
    }

    /// What is wrong with what became of a retry that came in this record.
    fn wrong_retry(&self, out: &Out, ask: &Ask, place: (i32, i64)) -> Option<&'static str> {
        let (after, before) = (decision(&out.headers), decision(&out.intent.headers));
        let (Some((after, retry)), Some((before, retry_before))) = (after, before) else { return Some("no decision") };
        if after != before {
            return Some("another decision");
        }
        let is_new = out.intent.log == Log::Retries;
        let is_of_it = |Deferral { topic, partition, offset, .. }: &Deferral| {
            (&*topic.name, (*partition, *offset)) == (TOPIC, place)
        };
        match out.to {
            Destination::Deferred(_) => {
                let Some(deferral) = out.deferral() else { return Some("no due time") };
                let number = retry_before + u64::from(is_new);
                let right = retry == number && number < u64::from(DEFAULT_MAX_ATTEMPTS);
                let is_retry = deferral.why == DeferReason::Retry && u64::from(deferral.count) == number;
                (!right || !is_of_it(&deferral) || !is_retry).then_some("another number or origin")
            }
            Destination::Waiting { .. } if !is_new => {
                let Some(deferral) = out.deferral() else { return Some("no due time") };
                let stays = deferral.is_until_retry() && deferral.waits_for_route() && retry == retry_before;
                (!is_of_it(&deferral) || !stays).then_some("another number or origin, or no retry")
            }
            Destination::Approved(_) if !is_new => (retry != retry_before).then_some("another number"),
            Destination::Undelivered => (!self.is_given_up(out, ask, retry_before)).then_some("given up"),
            Destination::Approved(_)
            | Destination::Suppressed
            | Destination::DeadLetters
            | Destination::Waiting { .. }
            | Destination::Nowhere => Some("decided"),
        }
    }

    /// Whether a delivery is given up for a reason, after so many retries.
    fn is_given_up(&self, out: &Out, ask: &Ask, retries: u64) -> bool {
        let enforced = self.world.setting.mode == Mode::Enforce;
        let reason = out.headers.last().filter(|(name, _)| *name == HeaderName::Reason.as_str());
        match reason.map(|(_, why)| why.as_str()) {
            Some("attempts") => out.intent.log == Log::Retries && retries + 1 >= u64::from(DEFAULT_MAX_ATTEMPTS),
            Some("stopped") => enforced && self.is_stopped(out, ask),
            Some("expired") => enforced && ask.expires.is_some(),
            Some("capacity") => enforced && self.may_be_too_much(out, ask),
            Some(_) | None => false,
        }
    }
}
