//! Writes what goes out for each record of a batch.

mod defer;
mod queue;
mod stamp;

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

pub(crate) use self::defer::Ruled;
use self::{defer::unavailable_for_ms, queue::Queues, stamp::Stamp};
use super::{
    decider::{
        Approval, BatchClasses, BatchLimits, Decider, Denier, Fate, Fates, GateResult, TakenNames, UnavailableOutcome,
    },
    letter::dead,
    record::{Destination, OurHeaders, Output, OutputValue, RecordView},
    retry,
};
use crate::{
    basis::{header::HeaderName, origin::Origin, time::Time},
    batch::tally::{CapOfSegment, Tally},
    decision::{
        decision_header,
        envelope::EnvelopeTemplate,
        verdict::{CapSpan, Cause, Counts, Decision, Deferred, DenyingCap, SuppressReason, Suppressed, Verdict},
    },
    deferral::{
        DeferReason, Deferral,
        wheel::{Wheel, rounded},
    },
    intent::{
        Intent,
        class::{ClassNames, ClassNumbers},
        dead_letter::DeadLetter,
    },
    policy::{CapWindow, Mode, PolicyEval},
    segment::SegmentSet,
};

/// Gives the numbers of a class, where they are known.
pub(crate) type NumbersOf<'n> = &'n dyn Fn(&ClassNames<'_>) -> Option<ClassNumbers>;

/// What the decisions of a batch go by.
#[derive(Clone, Copy)]
pub(crate) struct Grounds<'e> {
    pub(crate) decider: &'e Decider,
    pub(crate) set: &'e SegmentSet,
    pub(crate) eval: &'e PolicyEval,
    pub(crate) limits: &'e BatchLimits,
    /// As [`BatchLimits::names`] gives them.
    pub(crate) names: TakenNames<'e>,
    pub(crate) now: Time,
}

/// A record with an intent, and what is known of it.
pub(crate) struct Came<'r, 'b> {
    /// Its place in the batch.
    pub(crate) index: usize,
    pub(crate) record: &'r RecordView<'r>,
    /// Gives what its key and headers take.
    pub(crate) bytes_beside: &'r dyn Fn() -> usize,
    pub(crate) intent: &'b Intent<'b>,
    pub(crate) result: &'r GateResult,
    pub(crate) fate: Fate,
}

/// How often a cap denied users of a segment.
struct CapDenials<'w> {
    segment: Option<&'w str>,
    cap: &'w str,
    count: u64,
}

pub(crate) struct OutputWriter<'w, 'b> {
    grounds: Grounds<'w>,
    /// All of them are known.
    fates: &'w Fates,
    numbers: NumbersOf<'w>,
    classes: BatchClasses<'b>,
    wheel: Option<Wheel>,
    stamps: HashMap<Stamp<'w>, OurHeaders, RandomState>,
    /// Denials by segment and cap: by the segment's place, and by where the cap's name is.
    denials: HashMap<(Option<usize>, usize), CapDenials<'w>, RandomState>,
    /// Made with the first envelope.
    template: Option<EnvelopeTemplate>,
    /// The headers of what gets none.
    none: OurHeaders,
    tally: Tally,
    queues: Queues<'w>,
}

impl<'w, 'b> OutputWriter<'w, 'b> {
    pub(crate) fn new(
        grounds: Grounds<'w>,
        fates: &'w Fates,
        numbers: NumbersOf<'w>,
        classes: BatchClasses<'b>,
    ) -> Self {
        let (stamps, denials) = (HashMap::default(), HashMap::default());
        let (template, none, tally): (_, OurHeaders, _) = (None, Arc::new([]), Tally::default());
        let wheel = grounds.decider.wheel.filter(|_| grounds.eval.policy().mode == Mode::Enforce);
        let queues = Queues::new(grounds.decider.held.routes.as_deref());
        Self { grounds, fates, numbers, classes, wheel, stamps, denials, template, none, tally, queues }
    }

    /// The output of a record with an intent that is to be decided.
    pub(crate) fn write(&mut self, came: &Came<'_, 'b>) -> Output {
        let Came { record, intent, fate, .. } = *came;
        self.count_release(came);
        if let Some(wheel) = self.wheel
            && fate.waits()
        {
            let due = rounded(self.grounds.now.plus(unavailable_for_ms(record.deferral)));
            return self.deferred(wheel, came, (DeferReason::Unavailable, due));
        }
        if let Some(route) = fate.route() {
            return self.waiting(came, route);
        }
        self.count(came);
        let decision = self.grounds.decision(record, came.result, fate);
        if let Some(wheel) = self.wheel
            && let Some(to_defer) = self.grounds.to_defer(
                (decision.segment, intent.user),
                Ruled { fate, verdict: &decision.verdict },
                self.grounds.now,
            )
        {
            return self.deferred(wheel, came, to_defer);
        }
        let verdict = decision.verdict;
        let reason = verdict.suppressed().map(Suppressed::reason);
        if let Some(Suppressed { cause: Cause::Cap(cap), .. }) = verdict.suppressed() {
            let (segment, cap) = (decision.segment, cap.name);
            let denials = self.denials.entry((came.result.segment, cap.as_ptr().addr()));
            denials.or_insert(CapDenials { segment, cap, count: 0 }).count += 1;
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
                let headers = self.approval(came, &decision, counts);
                Output { to: self.approved(intent), value: OutputValue::AsItCame, headers }
            }
        }
    }

    /// The record of an intent that was approved before, and is delivered again. Without a permit of its route it waits there, as an
    /// approved one.
    pub(crate) fn again(&mut self, came: &Came<'_, 'b>) -> Output {
        self.count_release(came);
        let eval = self.grounds.eval;
        let route = retry::route_of(eval.policy(), came.intent).map(|route| &route.name);
        if let Fate::Suppressed(Denier::Gate((reason, _)), _) = came.fate
            && let Some(why) = retry::given_up(reason)
        {
            self.tally.undelivered(route, why);
            return retry::undelivered(why);
        }
        if let Some(route) = came.fate.route() {
            return self.waiting(came, route);
        }
        self.tally.retried(route);
        Output { to: self.approved(came.intent), value: OutputValue::AsItCame, headers: Arc::clone(&self.none) }
    }

    fn approval(&mut self, came: &Came<'_, 'b>, decision: &Decision<'w>, counts: Counts) -> OurHeaders {
        let (grounds, numbers, intent) = (self.grounds, self.numbers, came.intent);
        let write = || -> OurHeaders {
            let numbers = match counts {
                Counts::Yes | Counts::Later => numbers(&intent.class()),
                Counts::No => None,
            };
            let decision = Decision { budgets: grounds.budgets(came.index, came.fate), ..*decision };
            let header = decision_header::write(&decision, counts, intent, numbers);
            Arc::new([(HeaderName::Decision.as_str(), header)])
        };
        // No two deferred intents have waited for the same time.
        if decision.deferred.is_some() {
            return write();
        }
        let class = self.classes.number(came.index, intent);
        let stamp = Stamp::of(came, class, decision, counts);
        // Nearly always: looked up in fewer steps than by an entry.
        if let Some(headers) = self.stamps.get(&stamp) {
            return Arc::clone(headers);
        }
        let headers = write();
        self.stamps.insert(stamp, Arc::clone(&headers));
        headers
    }

    /// The deferred record of an intent that is to be decided later.
    fn deferred(&mut self, wheel: Wheel, came: &Came<'_, 'b>, (why, due): (DeferReason, Time)) -> Output {
        self.tally.deferred.one_more(why.as_str());
        let Grounds { decider, now, .. } = self.grounds;
        let deferral = Deferral::after(came.record, &decider.topic, (why, due), now);
        let to = Destination::Deferred(wheel.place(came.intent.user, due, now));
        Output { to, value: OutputValue::AsItCame, headers: deferral.headers() }
    }

    pub(crate) fn dead(&mut self, letter: &DeadLetter, record: &RecordView<'_>, bytes_beside: usize) -> Output {
        dead(letter, (record, bytes_beside), self.grounds.decider, &mut self.tally)
    }

    fn approved(&self, intent: &Intent<'_>) -> Destination {
        let own = |channel: &str| self.grounds.decider.approved_by_channel.iter().find(|(name, _)| name == channel);
        let topic = intent.channel.as_deref().and_then(own).map(|(_, topic)| *topic);
        Destination::Approved(topic.unwrap_or_default())
    }

    /// What was written, counted.
    pub(crate) fn finish(mut self) -> Tally {
        for CapDenials { segment, cap, count } in self.denials.into_values() {
            let of = CapOfSegment { segment: segment.unwrap_or_default().to_owned(), cap: cap.to_owned() };
            self.tally.cap_denials.push((of, count));
        }
        self.tally
    }

    /// Counts that an intent comes which was deferred until now.
    fn count_release(&mut self, came: &Came<'_, '_>) {
        if let Some(deferral) = came.record.deferral.filter(|deferral| !deferral.waits_for_route()) {
            let late_ms = self.grounds.now.millis() - deferral.due.millis();
            self.tally.late_s.one_more(late_ms.max(0) / 1000);
        }
    }

    /// Counts what the store said of an intent, or that it did not answer.
    fn count(&mut self, came: &Came<'_, '_>) {
        let answer = came.result.request().and_then(|request| self.fates.answer(request));
        self.tally.ahead += u64::from(answer.is_some_and(|answer| answer.ahead));
        self.tally.replayed += u64::from(came.fate.replayed_from().is_some());
        if let Fate::Unanswered { fallback: Some(fallback), .. } = came.fate {
            self.tally.unavailable.one_more(fallback.as_str());
        }
    }
}

impl<'e> Grounds<'e> {
    /// The decision on a record, without [its budgets](Self::budgets): few outputs name them.
    pub(crate) fn decision(&self, record: &RecordView<'_>, result: &GateResult, fate: Fate) -> Decision<'e> {
        let (verdict, decided_at) = self.ruling(fate, self.now);
        Decision {
            verdict,
            segment: self.segment(result),
            decided_at,
            policy_version: &self.eval.policy().version,
            segments_version: self.set.version(),
            origin: Origin { topic: &self.decider.topic.name, partition: record.partition, offset: record.offset },
            budgets: &[],
            deferred: record.deferral.map(|deferral| Deferred {
                why: deferral.why,
                count: deferral.count,
                waited_ms: u64::try_from(decided_at.millis() - deferral.first_at.millis()).unwrap_or(0),
            }),
        }
    }

    /// The names of the budgets that a record took from, by its place in the batch.
    pub(crate) fn budgets(&self, index: usize, fate: Fate) -> &'e [Arc<str>] {
        if fate.took() { self.names.of(index) } else { &[] }
    }

    #[inline]
    pub(crate) fn segment(&self, result: &GateResult) -> Option<&'e str> {
        result.segment.map(|place| self.set.segments()[place].name.as_str())
    }

    /// What became of an intent that came at `now`, and the time it was judged by. The store's answers are all there.
    pub(crate) fn ruling(&self, fate: Fate, now: Time) -> (Verdict<'e>, Time) {
        let (counts, denier, judged_at) = match fate {
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

    fn suppressed(&self, denier: Denier) -> Suppressed<'e> {
        let (cause, eligible_at) = match denier {
            Denier::Gate((reason, eligible_at)) | Denier::GateOfKnown((reason, eligible_at)) => {
                (self.limits.cause(reason).unwrap_or(Cause::Plain(reason.word())), eligible_at)
            }
            Denier::Cap { cap_set, cap, used, blocking } => return denied(self.eval, cap_set, (cap, used), blocking),
            Denier::Duplicate => (Cause::Plain(SuppressReason::Duplicate), None),
            Denier::Unavailable => (Cause::Plain(SuppressReason::Unavailable), None),
        };
        Suppressed { cause, eligible_at }
    }
}

fn denied(eval: &PolicyEval, cap_set: usize, (cap, used): (u8, u32), blocking: Option<Time>) -> Suppressed<'_> {
    let denied = eval.denied(cap_set, cap, blocking).expect("a store names a cap of the set that it was given");
    let span = match &denied.cap.window {
        CapWindow::Sliding { text, .. } => CapSpan::Window(text),
        CapWindow::Per(period) => CapSpan::Per(period.as_str()),
    };
    let cap = DenyingCap { name: &denied.cap.name, limit: denied.cap.limit, span, used };
    Suppressed { cause: Cause::Cap(cap), eligible_at: denied.eligible_at }
}

/// The decision on this record, whose intent may have been deferred: its origin is the first record then.
fn placed<'r>(decision: Decision<'r>, record: &RecordView<'r>) -> Decision<'r> {
    Decision { origin: record.deferral.map_or(decision.origin, Deferral::origin), ..decision }
}

const fn how_counted(counts: Counts) -> &'static str {
    match counts {
        Counts::Yes => "counted",
        Counts::Later => "counted-later",
        Counts::No => "not-counted",
    }
}
