//! Writes what goes out for each record of a batch.

mod again;
mod defer;
mod queue;
mod stamp;

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::{
    dead_letter::DeadLetter,
    decider::{
        Approval, BatchBudgets, Decider, Decoded, Denier, Fate, GateResult, StoreAnswers, UnavailableOutcome, Undecided,
    },
    letter::dead_letter,
    limits::OutputLimits,
    record::{ApprovedTopic, Destination, OurHeaders, Output, OutputValue, RecordView},
};
use crate::{
    class::{ClassNames, ClassNumbers},
    decision_header,
    deferral::{DeferReason, Deferral},
    envelope::EnvelopeTemplate,
    header::HeaderName,
    intent::Intent,
    origin::{Origin, Topic},
    policy::{CapWindow, GateReason, Mode, PolicyEval},
    segment::SegmentSet,
    tally::Tally,
    time::Time,
    verdict::{CapSpan, Cause, Counts, Decision, Deferred, DenyingCap, SuppressReason, Suppressed, Verdict},
    wheel::{Wheel, rounded},
};

pub(super) use self::defer::to_defer;
use self::{defer::unavailable_for_ms, queue::Queues, stamp::Stamp};

/// Gives the numbers of a class, where they are known.
pub(super) type NumbersOf<'n> = &'n dyn Fn(&ClassNames<'_>) -> Option<ClassNumbers>;

/// What a verdict goes by.
#[derive(Clone, Copy)]
pub(super) struct Grounds<'e> {
    pub(super) eval: &'e PolicyEval,
    /// `None` where no intent takes from a budget.
    pub(super) budgets: Option<&'e BatchBudgets>,
}

/// Writes the outputs of one batch.
pub(super) struct OutputWriter<'w, 'b> {
    topic: &'w Topic,
    wheel: Option<Wheel>,
    set: &'w SegmentSet,
    grounds: Grounds<'w>,
    limits: &'w OutputLimits,
    now: Time,
    numbers: NumbersOf<'w>,
    stamps: HashMap<Stamp<'w, 'b>, OurHeaders, RandomState>,
    /// Denials by segment and cap; names are made once a batch, not once a denial.
    denials: HashMap<(Option<&'w str>, &'w str), u64, RandomState>,
    /// Made with the first envelope.
    template: Option<EnvelopeTemplate>,
    /// The headers of what gets none.
    none: OurHeaders,
    tally: Tally,
    queues: Queues<'w>,
    approved_by_channel: &'w [(String, ApprovedTopic)],
}

impl<'w, 'b> OutputWriter<'w, 'b> {
    pub(super) fn new(
        decider: &'w Decider,
        set: &'w SegmentSet,
        grounds: Grounds<'w>,
        now: Time,
        numbers: NumbersOf<'w>,
    ) -> Self {
        let (stamps, denials) = (HashMap::default(), HashMap::default());
        let (template, none, tally) = (None, Arc::new([]), Tally::default());
        let (topic, limits) = (&decider.topic, &*decider.limits);
        let wheel = decider.wheel.filter(|_| grounds.eval.policy().mode == Mode::Enforce);
        let queues = Queues::new(decider.routes.as_deref());
        let approved_by_channel = &*decider.approved_by_channel;
        Self {
            topic,
            wheel,
            set,
            grounds,
            limits,
            now,
            numbers,
            stamps,
            denials,
            template,
            none,
            tally,
            queues,
            approved_by_channel,
        }
    }

    /// The output of one record; `bytes_beside` gives what its key and headers take. `answers` are the store's, all there.
    pub(super) fn write(
        &mut self,
        (record, bytes_beside): (&RecordView<'_>, &dyn Fn() -> usize),
        decoded: &'b Decoded<'b>,
        gate_result: &GateResult,
        answers: &StoreAnswers,
    ) -> Output {
        let fate = &Fate::of(&gate_result.disposition, answers, self.grounds.eval.policy().mode);
        let intent = match decoded {
            Ok(intent) => intent,
            Err(Undecided::Retry(intent)) => return self.again((record, bytes_beside), intent, fate),
            Err(Undecided::Invalid(letter)) => return self.dead(letter, record, bytes_beside()),
        };
        if let Some(deferral) = record.deferral.filter(|deferral| !deferral.waits_for_route()) {
            self.tally.released(self.now.millis() - deferral.due.millis());
        }
        if let Some(wheel) = self.wheel
            && fate.waits()
        {
            let due = rounded(self.now.plus(unavailable_for_ms(record.deferral)));
            return self.deferred(wheel, record, intent, (DeferReason::Unavailable, due));
        }
        if let Some(route) = fate.route() {
            return self.waiting((record, bytes_beside()), intent, route);
        }
        self.count(gate_result, answers, fate);
        let decision = self.decision(record, gate_result, fate);
        if let Some(wheel) = self.wheel
            && let Some(to_defer) =
                to_defer((self.grounds.eval, self.limits), (decision.segment, intent.user), &decision.verdict, self.now)
        {
            return self.deferred(wheel, record, intent, to_defer);
        }
        let verdict = decision.verdict;
        let reason = verdict.suppressed().map(Suppressed::reason);
        if let Some(Suppressed { cause: Cause::Cap(cap), .. }) = verdict.suppressed() {
            *self.denials.entry((decision.segment, cap.name)).or_default() += 1;
        }
        match verdict {
            Verdict::Suppressed(_) => {
                let decision = if record.deferral.is_some() { placed(decision, record) } else { decision };
                let template = self.template.get_or_insert_with(|| EnvelopeTemplate::of(&decision));
                self.tally.decision(verdict.as_str(), reason.map_or("", SuppressReason::as_str), intent);
                Output {
                    to: Destination::Suppressed,
                    value: OutputValue::Ours(template.envelope(&decision, intent)),
                    headers: Arc::clone(&self.none),
                }
            }
            Verdict::Approved(counts) | Verdict::ShadowSuppressed(_, counts) => {
                let why = reason.map_or_else(|| how_counted(counts), SuppressReason::as_str);
                self.tally.decision(verdict.as_str(), why, intent);
                let class = intent.class();
                let numbers = self.numbers;
                let write = || -> OurHeaders {
                    let numbers = match counts {
                        Counts::Yes | Counts::Later => numbers(&class),
                        Counts::No => None,
                    };
                    let header = decision_header::write(&decision, counts, intent, numbers);
                    Arc::new([(HeaderName::Decision.as_str(), header)])
                };
                let stamp = Stamp::of(intent, gate_result, &decision, counts);
                // No two deferred intents have waited for the same time.
                let headers = match decision.deferred {
                    None => Arc::clone(self.stamps.entry(stamp).or_insert_with(write)),
                    Some(_) => write(),
                };
                Output { to: self.approved(intent), value: OutputValue::AsItCame, headers }
            }
        }
    }

    /// The deferred record of an intent that is to be decided later.
    fn deferred(
        &mut self,
        wheel: Wheel,
        record: &RecordView<'_>,
        intent: &Intent<'_>,
        (why, due): (DeferReason, Time),
    ) -> Output {
        self.tally.deferred(why.as_str());
        let deferral = Deferral::after(record, self.topic, (why, due), self.now);
        let to = Destination::Deferred(wheel.place(intent.user, due, self.now));
        Output { to, value: OutputValue::AsItCame, headers: deferral.headers() }
    }

    fn dead(&mut self, letter: &DeadLetter, record: &RecordView<'_>, bytes_beside: usize) -> Output {
        let (output, reason) = dead_letter(letter, record, (&self.topic.name, bytes_beside), self.limits);
        self.tally.dead_letter(reason.as_str());
        output
    }

    /// The approved topic of an intent.
    fn approved(&self, intent: &Intent<'_>) -> Destination {
        let own = |channel: &str| self.approved_by_channel.iter().find(|(name, _)| name == channel);
        let topic = intent.channel.as_deref().and_then(own).map(|(_, topic)| *topic);
        Destination::Approved(topic.unwrap_or_default())
    }

    /// What was written, counted.
    pub(super) fn finish(mut self) -> Tally {
        for ((segment, cap), count) in self.denials {
            self.tally.cap_denials(segment, cap, count);
        }
        self.tally
    }

    /// The decision on a record that is an intent.
    pub(super) fn decision(&self, record: &RecordView<'_>, gate_result: &GateResult, fate: &Fate) -> Decision<'w> {
        let (verdict, decided_at) = self.grounds.ruling(fate, self.now);
        Decision {
            verdict,
            segment: gate_result.segment.map(|place| self.set.segments()[place].name.as_str()),
            decided_at,
            policy_version: &self.grounds.eval.policy().version,
            segments_version: self.set.version(),
            origin: Origin { topic: &self.topic.name, partition: record.partition, offset: record.offset },
            budgets: self.grounds.budgets_of(gate_result, fate),
            deferred: record.deferral.map(|deferral| Deferred {
                why: deferral.why,
                count: deferral.count,
                waited_ms: u64::try_from(decided_at.millis() - deferral.first_at.millis()).unwrap_or(0),
            }),
        }
    }

    /// Counts what the store said of an intent, or that it did not answer.
    fn count(&mut self, gate_result: &GateResult, answers: &StoreAnswers, fate: &Fate) {
        let answer = gate_result.request().and_then(|request| answers.get(request));
        self.tally.ahead += u64::from(answer.is_some_and(|answer| answer.ahead));
        self.tally.replayed += u64::from(fate.replayed_from().is_some());
        if let Fate::Unanswered { fallback: Some(fallback), .. } = *fate {
            self.tally.unavailable(fallback.as_str());
        }
    }
}

/// The decision on this record, whose intent may have been deferred: its origin is the first record then.
fn placed<'r>(decision: Decision<'r>, record: &RecordView<'r>) -> Decision<'r> {
    Decision { origin: record.deferral.map_or(decision.origin, Deferral::origin), ..decision }
}

fn denied(eval: &PolicyEval, cap_set: usize, (cap, used): (u8, u32), blocking: Option<Time>) -> Suppressed<'_> {
    let denied = eval.denied(cap_set, cap, blocking).expect("a store names a cap of the set that it was given");
    let span = match &denied.cap.window {
        CapWindow::Sliding { text, .. } => CapSpan::Window(text),
        CapWindow::Per(period) => CapSpan::Per(period.name()),
    };
    let cap = DenyingCap { name: &denied.cap.name, limit: denied.cap.limit, span, used };
    Suppressed { cause: Cause::Cap(cap), eligible_at: denied.eligible_at }
}

const fn how_counted(counts: Counts) -> &'static str {
    match counts {
        Counts::Yes => "counted",
        Counts::Later => "counted-later",
        Counts::No => "not-counted",
    }
}

impl<'e> Grounds<'e> {
    /// What became of an intent that came at `now`, and the time it was judged by. The store's answers are all there.
    pub(super) fn ruling(self, fate: &Fate, now: Time) -> (Verdict<'e>, Time) {
        let (counts, denier, judged_at) = match *fate {
            // A dead letter has been written before.
            Fate::Undecided => return (Verdict::Approved(Counts::No), now),
            Fate::Approved(Approval::Unrecorded, denier) => (Counts::No, denier, now),
            Fate::Approved(
                Approval::Recorded(at) | Approval::Duplicate(at) | Approval::Replayed(at) | Approval::LookedUp(at),
                denier,
            ) => (Counts::Yes, denier, at),
            Fate::Suppressed(denier, at) => return (Verdict::Suppressed(self.suppressed(denier)), at.unwrap_or(now)),
            Fate::Unanswered { outcome: UnavailableOutcome::Approved, denier, .. } => (Counts::Later, denier, now),
            Fate::Unanswered { denier, .. } => {
                let denier = denier.expect("the lane asks for as long as it takes, or the intent is deferred");
                return (Verdict::Suppressed(self.suppressed(denier)), now);
            }
        };
        let verdict = match denier {
            None => Verdict::Approved(counts),
            Some(denier) => Verdict::ShadowSuppressed(self.suppressed(denier), counts),
        };
        (verdict, judged_at)
    }

    fn suppressed(self, denier: Denier) -> Suppressed<'e> {
        let (reason, eligible_at) = match denier {
            Denier::Gate(denial) | Denier::GateOfKnown(denial) => denial,
            Denier::Cap { cap_set, cap, used, blocking } => return denied(self.eval, cap_set, (cap, used), blocking),
            Denier::Duplicate => return Suppressed { cause: Cause::Duplicate, eligible_at: None },
            Denier::Unavailable => return Suppressed { cause: Cause::Unavailable, eligible_at: None },
        };
        let cause = match (reason, self.budgets) {
            (GateReason::Stopped, _) => Cause::Stopped,
            (GateReason::Expired, _) => Cause::Expired,
            (GateReason::TooEarly, _) => Cause::TooEarly,
            (GateReason::QuietHours, _) => Cause::QuietHours,
            (GateReason::Pressure, _) => Cause::Pressure,
            (GateReason::Capacity | GateReason::RouteFull(_), _) => Cause::Capacity,
            (GateReason::Budget(place), Some(budgets)) => Cause::Budget(budgets.denying(place, self.eval)),
            (GateReason::Budget(_) | GateReason::BudgetUnavailable | GateReason::BudgetWaits, _) => Cause::Unavailable,
        };
        Suppressed { cause, eligible_at }
    }

    /// The names of the budgets that an intent took from.
    #[inline]
    fn budgets_of(self, gate_result: &GateResult, fate: &Fate) -> &'e [Arc<str>] {
        match (self.budgets, gate_result.budgets) {
            (Some(budgets), Some(set)) if fate.took() => budgets.names(set),
            (Some(_) | None, _) => &[],
        }
    }
}
