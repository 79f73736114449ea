//! Checks deferral: each intent in one place at every moment, back when it is due and not before, and deferred for a reason.

use weir_core::deferral::wheel::{Bucket, rounded};

use super::{broker::Commit, check::reason, phases::RECOVERED_WITHIN, prelude::*, rules::TOPIC};

/// How late a deferred intent may come back while nothing fails: its bucket, which has few in a run, included.
const LATE: Duration = Duration::from_secs(60);
const MINUTE_MS: i64 = 60 * 1000;

fn denied(verdict: &AdmitVerdict) -> bool {
    !matches!(verdict, AdmitVerdict::Allowed | AdmitVerdict::Replayed)
}

impl Judge<'_> {
    /// V: each committed transaction writes one record for each that it is done with, and for no other. So an intent is visible in
    /// one place at every moment.
    pub fn conserved(&mut self, broker: &Broker, outs: &[&Out]) {
        let mut written: BTreeMap<usize, BTreeMap<(Log, i32, i64), usize>> = BTreeMap::new();
        for Out { intent, transaction, .. } in outs {
            let place = (intent.log, intent.partition, intent.offset);
            *written.entry(*transaction).or_default().entry(place).or_default() += 1;
        }
        for Commit { transaction, log, done } in &broker.commits {
            let mut written = written.remove(transaction).unwrap_or_default();
            for (partition, from, to) in done {
                for offset in broker.offsets((*log, *partition), *from..*to) {
                    let times = written.remove(&(*log, *partition, offset)).unwrap_or(0);
                    if times != 1 {
                        self.broken.push(format!("V: {offset} of {log:?} {partition} is done, and in {times} places"));
                    }
                }
            }
            if !written.is_empty() {
                self.broken.push(format!("V: {written:?} were written elsewhere, and are still there"));
            }
        }
    }

    pub fn deferral(&mut self, broker: &Broker, outs: &[&Out]) {
        for out in outs {
            let Some(ask) = self.asks.get(&out.intent.first) else { continue };
            self.stopped(out, ask);
            match out.intent.log {
                Log::Input | Log::Waiting | Log::Retries => {}
                Log::Ring(Ring::Hours) => self.moved(out),
                Log::Ring(Ring::Minutes) => self.released(broker, out, ask),
            }
            if out.intent.retry.is_none() && matches!(out.to, Destination::Deferred(_)) {
                match out.deferral() {
                    Some(deferral) => self.deferred(out, ask, &deferral),
                    None => self.broken.push(format!("deferred without a due time: {ask:?}, {:?}", out.headers)),
                }
            }
        }
    }

    /// A deferred intent is not taken out of its bucket before its time by the clock of its machine.
    fn in_its_time(&mut self, out: &Out, upto: Duration, opens: Time) {
        let from = self.world.before_freezes(out.submit.process, out.fetched, upto);
        let clock = self.world.clock(out.submit.instance, from, upto);
        if !some_moment(&clock, &[opens.millis()], |clock| clock >= opens.millis()) {
            let Out { intent, to, .. } = out;
            self.broken.push(format!("early: {intent:?} went to {to:?} when the clock showed {clock:?}"));
        }
    }

    fn moved(&mut self, out: &Out) {
        let before = out.intent.deferral.as_ref();
        let (Some(before), Some(after)) = (before, out.deferral()) else {
            self.broken.push(format!("moved: {:?} went to {:?}", out.intent, out.to));
            return;
        };
        self.in_its_time(out, out.submit.at, Ring::Hours.opens(before.due));
        if *before != after || !matches!(out.to, Destination::Deferred(Bucket { ring: Ring::Minutes, .. })) {
            self.broken.push(format!("moved: {:?} went to {:?} as {after:?}", out.intent, out.to));
        }
    }

    /// Early and late.
    fn released(&mut self, broker: &Broker, out: &Out, ask: &Ask) {
        let Some(Deferral { due, .. }) = out.intent.deferral else { return };
        let at_any_time = reason(out).is_some_and(|(reason, _)| ["stopped", "expired"].contains(&reason.as_str()));
        let again = matches!(out.to, Destination::Deferred(_));
        if !at_any_time && !again {
            let decided = self.world.decided(out, ask, |_| true);
            let upto = decided.filter(|decided| decided.asked).map_or(out.submit.at, |decided| decided.upto);
            self.in_its_time(out, upto, due);
        }
        let due_at = Duration::from_millis(u64::try_from(due.millis() - wall(Duration::ZERO).millis()).unwrap_or(0));
        let visible = broker.visible_at(out).unwrap_or_default();
        let troubled = self
            .world
            .troubles
            .borrow()
            .iter()
            .any(|(began, ended)| *began < visible && *ended + RECOVERED_WITHIN > due_at);
        // What is deferred while its bucket is open is late by that.
        let since = due_at.max(out.intent.at);
        if !troubled && visible > since + LATE {
            self.broken.push(format!("late: {:?} was done at {visible:?}, and due at {due_at:?}", out.intent));
        }
    }

    /// An intent is deferred for a reason that holds by the clock, until that no longer holds, and keeps its first place.
    fn deferred(&mut self, out: &Out, ask: &Ask, deferral: &Deferral) {
        let Deferral { due, partition, offset, first_at, why, count, .. } = deferral;
        let mut wrong = Vec::new();
        let Some(deferring) = self.world.setting.deferring.filter(|_| self.world.setting.mode == Mode::Enforce) else {
            self.broken.push(format!("deferred: {ask:?}, and nothing is to be deferred"));
            return;
        };
        if (&*deferral.topic.name, (*partition, *offset)) != (TOPIC, out.intent.first) {
            wrong.push("its origin");
        }
        if due.millis() % MINUTE_MS != 0 {
            wrong.push("no full minute");
        }
        let before = out.intent.deferral.as_ref();
        if out.intent.log != Log::Ring(Ring::Hours) {
            if before.is_some_and(|before| before.first_at != *first_at) {
                wrong.push("first_at");
            }
            if *count != before.map_or(0, |before| before.count) + 1 {
                wrong.push("count");
            }
            let Some(Decided { from, upto, .. }) = self.world.decided(out, ask, denied) else { return };
            let clock = self.world.clock(out.submit.instance, from.min(out.fetched), upto);
            let first = clock.iter().map(|span| *span.start()).min().unwrap_or(0);
            let last = clock.iter().map(|span| *span.end()).max().unwrap_or(0);
            if due.millis() <= first {
                wrong.push("it is past");
            }
            if *why != DeferReason::Unavailable && due.millis() > last + deferring.max_ms {
                wrong.push("too long");
            }
            if let Some(what) =
                self.unfounded((out, ask), before, deferral, |fits| some_moment(&clock, &ask.edges(), fits))
            {
                wrong.push(what);
            }
        }
        if !wrong.is_empty() {
            self.broken.push(format!("deferred: {ask:?}: {wrong:?} in {deferral:?}, before {before:?}"));
        }
    }

    /// What is wrong with the reason of a deferral.
    fn unfounded(
        &self,
        (out, ask): (&Out, &Ask),
        before: Option<&Deferral>,
        Deferral { due, why, .. }: &Deferral,
        at_some_moment: impl Fn(&dyn Fn(i64) -> bool) -> bool,
    ) -> Option<&'static str> {
        let setting = &self.world.setting;
        let capped = matches!(ask.kind, Kind::Plain | Kind::Push | Kind::Email);
        #[expect(clippy::wildcard_enum_match_arm, reason = "of other reasons the simulation has none")]
        let right = match why {
            DeferReason::TooEarly => {
                let not_before = ask.not_before.map(|at| Time::default().plus(at));
                let until = not_before.max(before.map(|before| before.due));
                until.is_some_and(|until| rounded(until) == *due && at_some_moment(&|clock| clock < until.millis()))
            }
            DeferReason::QuietHours => {
                setting.deferring.is_some_and(|deferring| deferring.quiet.is_some())
                    && ask.quiet.is_some()
                    && !ask.is_quiet(due.millis())
                    && at_some_moment(&|clock| ask.is_quiet(clock))
            }
            DeferReason::Cap => setting.deferring.is_some_and(|deferring| deferring.cap.is_some()) && capped,
            DeferReason::Budget => self.may_be_deferred(out, ask),
            DeferReason::Pressure => {
                setting.load.as_ref().is_some_and(|load| load.action == Action::Defer) && self.may_be_kept_out(out, ask)
            }
            DeferReason::Unavailable => {
                let waits = matches!(ask.kind, Kind::Plain | Kind::Alert) && setting.patient;
                // Before an intent waits for its route it must be known whether it was approved before.
                (waits || self.has_budget_that(ask, WhenUnavailable::Wait) || self.may_wait(ask))
                    && setting.unavailable_after.is_some()
            }
            // What waits for its route is not on the wheel, and retries are judged by themselves.
            _ => false,
        };
        (!right).then_some("no reason")
    }

    /// Nothing that is stopped is decided otherwise once the stop is in force.
    fn stopped(&mut self, out: &Out, ask: &Ask) {
        let (Some(stop), Some(at)) = (self.world.setting.stop, self.world.stopped_at.get()) else { return };
        let is_decided = out.intent.log != Log::Ring(Ring::Hours) && self.world.setting.mode == Mode::Enforce;
        if !is_decided || !stop.stops(ask.kind == Kind::Email, ask.campaign.as_deref()) {
            return;
        }
        // What may have been approved before is looked up first, and waits where that is impossible.
        let waits = out.deferral().is_some_and(|deferral| deferral.why == DeferReason::Unavailable);
        let gives_up = out.to == Destination::Undelivered;
        if waits || gives_up || reason(out).is_some_and(|(reason, _)| reason == "stopped") {
            return;
        }
        let decided = self.world.decided(out, ask, |_| true);
        if decided.is_some_and(|decided| decided.from > at) {
            self.broken
                .push(format!("stopped: {ask:?} went to {:?} at {decided:?}, and was stopped at {at:?}", out.to));
        }
    }

    /// Whether an intent that was suppressed could not be deferred until the reason no longer holds.
    pub fn must_not_wait(&self, reason: &str, envelope: &serde_json::Value, at: i64) -> bool {
        let setting = &self.world.setting;
        let Some(deferring) = setting.deferring.filter(|_| setting.mode == Mode::Enforce) else { return true };
        let defers = |budget: &Budget| budget.when_spent == Action::Defer && envelope["budget"]["name"] == *budget.name;
        let spread_ms = match reason {
            "too_early" => Some(0),
            "quiet_hours" => deferring.quiet,
            "cap" if deferring.cap.is_some_and(|cap| envelope["cap"]["name"] == cap) => Some(0),
            "pressure" => {
                let load = setting.load.as_ref().filter(|load| load.action == Action::Defer);
                load.map(PressureRule::window_ms)
            }
            "budget" if setting.budgets.iter().any(defers) => Some(0),
            _ => None,
        };
        let Some(spread_ms) = spread_ms else { return true };
        let eligible = envelope["eligible_at"].as_str().and_then(Time::from_rfc3339);
        eligible.is_none_or(|eligible| eligible.millis() + spread_ms + MINUTE_MS > at - MAX_SKEW_MS + deferring.max_ms)
    }
}
