//! The intents of a batch, as its limits look at them: what is said of each is found once, and so is its class.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::{
    Decoded, GateDenial, Undecided,
    ground::{DecodedBatch, Times},
};
use crate::{
    basis::time::Time,
    batch::{
        record::{RecordView, Records},
        retry,
    },
    intent::{Intent, class::ClassNames},
    policy::{IntentFacts, PolicyEval},
    segment::{LookupScratch, SegmentSet, UserSegment},
};

/// The intents of a batch, by the places of their records.
pub(super) struct Intents<'b, R> {
    pub(super) records: &'b R,
    pub(super) decoded: &'b [Decoded<'b>],
    pub(super) eval: PolicyEval,
    pub(super) set: Arc<SegmentSet>,
    pub(super) classes: BatchClasses<'b>,
    pub(super) denials: Denials,
    /// Of each; empty until somebody asks.
    segments: Vec<UserSegment>,
    times: Times<'b>,
}

/// What is said of each record so far: by the gate, and behind it by the limits, in their order. Empty until a limit asks.
#[derive(Default)]
pub(super) struct Denials(Vec<Option<Option<GateDenial>>>);

/// The classes of a batch, each with a number, in the order in which they were met.
#[derive(Default)]
pub(crate) struct BatchClasses<'b> {
    numbers: HashMap<ClassNames<'b>, u32, RandomState>,
    /// Of each record; empty where only outputs ask, once an intent.
    of_records: Vec<u32>,
}

impl<'b, R: Records> Intents<'b, R> {
    pub(super) fn new(
        batch: DecodedBatch<'b, R>,
        (eval, set): (PolicyEval, Arc<SegmentSet>),
        times: Times<'b>,
    ) -> Self {
        let DecodedBatch { records, decoded } = batch;
        let (classes, denials, segments) = Default::default();
        Self { records, decoded, eval, set, classes, denials, segments, times }
    }

    /// When a record is judged.
    #[inline]
    pub(super) fn at(&self, record: usize) -> Time {
        self.times.at(record)
    }

    /// Where the user of a record is. All are found with the first that is asked for: by a limit, or else when the gate is through.
    #[inline]
    pub(super) fn segment(&mut self, record: usize) -> UserSegment {
        if self.segments.is_empty() {
            self.find_segments();
        }
        self.segments[record]
    }

    fn find_segments(&mut self) {
        let numbers = self.decoded.iter().map(|decoded| self.set.number_of(decoded.as_ref().ok()?));
        self.segments.reserve_exact(self.decoded.len());
        self.set.lookup_many(numbers, &mut LookupScratch::default(), &mut self.segments);
    }

    /// What the policy looks at, but for the segment: no gate asks for that.
    pub(super) fn facts(&self, record: usize, intent: &'b Intent<'b>) -> IntentFacts<'b> {
        facts(intent, None, &self.records.get(record))
    }

    /// Why nothing is to be taken for what a record brings, if so: the gate denies it, or a limit that was asked before.
    #[inline]
    pub(super) fn denial(&mut self, record: usize) -> Option<GateDenial> {
        if self.denials.0.is_empty() {
            self.denials.0.resize(self.decoded.len(), None);
        }
        if let Some(known) = self.denials.0[record] {
            return known;
        }
        let denial = if self.passes(record) { None } else { self.ask_gate(record) };
        self.denials.0[record] = Some(denial);
        denial
    }

    /// Whether no gate can deny it: the policy has none, and the intent has no times.
    #[inline]
    fn passes(&self, record: usize) -> bool {
        let Ok(Intent { expires_at: None, not_before: None, .. }) = self.decoded[record] else { return false };
        !self.eval.has_gates() && self.records.get(record).deferral.is_none()
    }

    fn ask_gate(&mut self, record: usize) -> Option<GateDenial> {
        let now = self.at(record);
        paced(&self.decoded[record]).and_then(|intent| {
            let facts = self.facts(record, intent);
            self.eval.turn_to(now);
            match self.decoded[record] {
                Ok(_) => self.eval.denial(&facts),
                // Of what was approved before, nothing else is asked.
                Err(_) => retry::ended(&self.eval, &facts, now).map(|reason| (reason, None)),
            }
        })
    }

    /// What denies a record, for the last one who asks, at whose time the policy is, and who has the facts.
    #[inline]
    pub(super) fn denial_by(&mut self, record: usize, facts: &IntentFacts<'_>) -> Option<GateDenial> {
        match self.denials.0.get(record) {
            Some(Some(known)) => *known,
            Some(None) | None => self.eval.denial(facts),
        }
    }
}

impl Denials {
    /// A limit denies what a record brings, which [nothing before](Intents::denial) does.
    pub(super) fn deny(&mut self, record: usize, denial: GateDenial) {
        self.0[record] = Some(Some(denial));
    }

    /// Every limit has what it needs by now.
    pub(super) fn lift(&mut self, record: usize) {
        self.0[record] = Some(None);
    }
}

impl<'b> BatchClasses<'b> {
    /// Numbers the classes of all intents, where limits ask for them; how many classes these are.
    pub(super) fn number_all(&mut self, decoded: &'b [Decoded<'b>]) -> usize {
        if self.of_records.is_empty() {
            let number = |decoded| paced(decoded).map_or(0, |intent| self.find(intent));
            self.of_records = decoded.iter().map(number).collect();
        }
        self.numbers.len()
    }

    #[inline]
    pub(crate) fn number(&mut self, record: usize, intent: &'b Intent<'b>) -> u32 {
        self.of_records.get(record).copied().unwrap_or_else(|| self.find(intent))
    }

    #[inline]
    fn find(&mut self, intent: &'b Intent<'b>) -> u32 {
        let class = intent.class();
        // Nearly always: looked up in fewer steps than by an entry.
        if let Some(number) = self.numbers.get(&class) {
            return *number;
        }
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(class, next);
        next
    }
}

/// The intent of a record that takes from limits: to be decided, or approved before and to be delivered again.
pub(super) fn paced<'b>(decoded: &'b Decoded<'b>) -> Option<&'b Intent<'b>> {
    match decoded {
        Ok(intent) => Some(intent),
        Err(Undecided::Retry(intent)) => Some(intent.as_ref()),
        Err(Undecided::Invalid(_)) => None,
    }
}

#[inline]
pub(crate) fn facts<'b>(intent: &'b Intent<'b>, segment: Option<usize>, record: &RecordView<'_>) -> IntentFacts<'b> {
    let (kafka_timestamp, not_before) = match record.deferral {
        None => (record.timestamp, intent.not_before),
        Some(deferral) if deferral.is_until_capacity() => (Some(deferral.first_at), intent.not_before),
        // Whoever reads a deferred intent too soon defers it again.
        Some(deferral) => (Some(deferral.first_at), intent.not_before.max(Some(deferral.due))),
    };
    IntentFacts {
        segment,
        class: intent.class(),
        created_at: intent.created_at,
        kafka_timestamp,
        expires_at: intent.expires_at,
        not_before,
        zone: intent.timezone.as_ref(),
    }
}
