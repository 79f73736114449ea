//! Writes what goes out for each record of a batch.

mod again;
mod defer;
mod queue;
mod stamp;

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::{
    dead_letter::DeadLetter,
    decider::{BatchBudgets, Decider, Decoded, Disposition, GateDenial, GateResult, StoreAnswers, Undecided},
    letter::dead_letter,
    limits::OutputLimits,
    record::{ApprovedTopic, Destination, OurHeaders, Output, OutputValue, RecordView},
};
use crate::{
    class::{ClassNames, ClassNumbers},
    decide::{AdmitVerdict, Answer},
    decision_header,
    deferral::{DeferReason, Deferral},
    envelope::EnvelopeTemplate,
    header::HeaderName,
    intent::Intent,
    origin::{Origin, Topic},
    policy::{CapWindow, GateReason, Mode, PolicyEval, Unavailable},
    segment::SegmentSet,
    tally::Tally,
    time::Time,
    verdict::{CapSpan, Cause, Counts, Decision, Deferred, DenyingCap, SuppressReason, Suppressed, Verdict},
    wheel::{Wheel, rounded},
};

pub(super) use self::defer::to_defer;
use self::{
    defer::{unavailable_for_ms, waits},
    queue::{Queues, waits_for_route},
    stamp::Stamp,
};

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
        let intent = match decoded {
            Ok(intent) => intent,
            Err(Undecided::Retry(intent)) => return self.again((record, bytes_beside), intent, gate_result),
            Err(Undecided::Invalid(letter)) => return self.dead(letter, record, bytes_beside()),
        };
        if let Some(deferral) = record.deferral.filter(|deferral| !deferral.waits_for_route()) {
            self.tally.released(self.now.millis() - deferral.due.millis());
        }
        if let Some(wheel) = self.wheel
            && waits(gate_result, answers)
        {
            let due = rounded(self.now.plus(unavailable_for_ms(record.deferral)));
            return self.deferred(wheel, record, intent, (DeferReason::Unavailable, due));
        }
        if let Some(route) = waits_for_route(gate_result, answers) {
            return self.waiting((record, bytes_beside()), intent, route);
        }
        let decision = self.decision(record, gate_result, answers);
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
    pub(super) fn decision(
        &mut self,
        record: &RecordView<'_>,
        gate_result: &GateResult,
        answers: &StoreAnswers,
    ) -> Decision<'w> {
        let (verdict, decided_at) = self.verdict(gate_result, answers);
        Decision {
            verdict,
            segment: gate_result.segment.map(|place| self.set.segments()[place].name.as_str()),
            decided_at,
            policy_version: &self.grounds.eval.policy().version,
            segments_version: self.set.version(),
            origin: Origin { topic: &self.topic.name, partition: record.partition, offset: record.offset },
            budgets: self.grounds.budgets_of(gate_result, &verdict),
            deferred: record.deferral.map(|deferral| Deferred {
                why: deferral.why,
                count: deferral.count,
                waited_ms: u64::try_from(decided_at.millis() - deferral.first_at.millis()).unwrap_or(0),
            }),
        }
    }

    /// What became of an intent, and the time it was judged by.
    fn verdict(&mut self, gate_result: &GateResult, answers: &StoreAnswers) -> (Verdict<'w>, Time) {
        match (answer(gate_result, answers), gate_result.disposition) {
            (Some(answer), _) => {
                self.tally.ahead += u64::from(answer.ahead);
                self.tally.replayed += u64::from(answer.verdict == AdmitVerdict::Replayed);
            }
            (None, Disposition::CheckCaps { fallback, .. }) => self.tally.unavailable(fallback.as_str()),
            (
                None,
                Disposition::Undecided
                | Disposition::Suppress(_)
                | Disposition::LookUp { .. }
                | Disposition::Bypass { .. },
            ) => {}
        }
        ruling(self.grounds, gate_result, answers, self.now)
    }
}

/// The decision on this record, whose intent may have been deferred: its origin is the first record then.
fn placed<'r>(decision: Decision<'r>, record: &RecordView<'r>) -> Decision<'r> {
    Decision { origin: record.deferral.map_or(decision.origin, Deferral::origin), ..decision }
}

/// The store's answer to an intent that it was asked about; none where it was given up.
fn answer(gate_result: &GateResult, answers: &StoreAnswers) -> Option<Answer> {
    answers.get(gate_result.request()?)
}

/// What became of an intent that came at `now`, and the time it was judged by.
pub(super) fn ruling<'e>(
    grounds: Grounds<'e>,
    gate_result: &GateResult,
    answers: &StoreAnswers,
    now: Time,
) -> (Verdict<'e>, Time) {
    let eval = grounds.eval;
    let suppressed = |denial| grounds.suppressed(denial);
    let (cap_set, shadowed, fallback) = match gate_result.disposition {
        // A dead letter has been written before.
        Disposition::Undecided => return (Verdict::Approved(Counts::No), now),
        Disposition::Suppress(denial) => return (Verdict::Suppressed(suppressed(denial)), now),
        Disposition::LookUp { denial, .. } => {
            let replay = answer(gate_result, answers).filter(|answer| answer.verdict == AdmitVerdict::Replayed);
            return match replay {
                Some(before) => (Verdict::Approved(Counts::Yes), before.at),
                None => (Verdict::Suppressed(suppressed(denial)), now),
            };
        }
        Disposition::Bypass { shadowed } => {
            let verdict = match shadowed {
                None => Verdict::Approved(Counts::No),
                Some(denial) => Verdict::ShadowSuppressed(suppressed(denial), Counts::No),
            };
            return (verdict, now);
        }
        Disposition::CheckCaps { request: _, cap_set, shadowed, fallback } => (cap_set, shadowed, fallback),
    };
    let Some(answer) = answer(gate_result, answers) else {
        return (unavailable_outcomes(shadowed.map(suppressed), fallback, eval.policy().mode), now);
    };
    let refused = match answer.verdict {
        AdmitVerdict::Allowed | AdmitVerdict::Replayed => None,
        AdmitVerdict::Duplicate => Some(Suppressed { cause: Cause::Duplicate, eligible_at: None }),
        AdmitVerdict::Denied { cap, used, blocking } => Some(denied(eval, cap_set, (cap, used), blocking)),
    };
    let verdict = match (shadowed.map(suppressed).or(refused), eval.policy().mode) {
        (None, _) => Verdict::Approved(Counts::Yes),
        (Some(why), Mode::Enforce) => Verdict::Suppressed(why),
        (Some(why), Mode::Shadow) => Verdict::ShadowSuppressed(why, Counts::Yes),
    };
    (verdict, answer.at)
}

/// What becomes of an intent whose history was waited for long enough.
fn unavailable_outcomes<'e>(shadowed: Option<Suppressed<'e>>, fallback: Unavailable, mode: Mode) -> Verdict<'e> {
    let unavailable = match fallback {
        Unavailable::Wait => unreachable!("the lane asks for as long as it takes, or the intent is deferred"),
        Unavailable::Approve => None,
        Unavailable::Suppress => Some(Suppressed { cause: Cause::Unavailable, eligible_at: None }),
    };
    match (shadowed.or(unavailable), mode) {
        (None, _) => Verdict::Approved(Counts::Later),
        (Some(why), Mode::Enforce) => Verdict::Suppressed(why),
        (Some(why), Mode::Shadow) => Verdict::ShadowSuppressed(why, Counts::Later),
    }
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
    fn suppressed(self, (reason, eligible_at): GateDenial) -> Suppressed<'e> {
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

    /// The names of the budgets that an intent with this verdict took from.
    #[inline]
    fn budgets_of(self, gate_result: &GateResult, verdict: &Verdict<'_>) -> &'e [Arc<str>] {
        match (self.budgets, gate_result.budgets) {
            (Some(budgets), Some(set)) if took(verdict) => budgets.names(set),
            (Some(_) | None, _) => &[],
        }
    }
}

/// Whether an intent with this verdict had come as far as to take from its budgets.
fn took(verdict: &Verdict<'_>) -> bool {
    match verdict.suppressed().map(|suppressed| suppressed.cause) {
        None | Some(Cause::Cap(_) | Cause::Duplicate) => true,
        Some(
            Cause::Stopped
            | Cause::Expired
            | Cause::TooEarly
            | Cause::QuietHours
            | Cause::Pressure
            | Cause::Capacity
            | Cause::Budget(_)
            | Cause::Unavailable,
        ) => false,
    }
}
