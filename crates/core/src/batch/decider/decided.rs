//! A batch that is decided: its outputs and decisions, and what is settled by them.

use super::{AskedBatch, Fate, GateResult, GatedBatch, KeptLimits, Settlement, Undecided};
use crate::{
    basis::time::Time,
    batch::{
        output::{Came, Grounds, NumbersOf, OutputWriter, Ruled},
        record::{Output, RecordView, Records},
        tally::Tally,
    },
    decision::verdict::{Decision, Verdict},
    deferral::DeferReason,
    policy::Policy,
    segment::SegmentSet,
};

pub struct DecidedBatch<'b, R> {
    asked: AskedBatch<'b, R>,
}

impl<'b, R: Records> AskedBatch<'b, R> {
    /// Decides: each request without an answer has what becomes of it then. The users of approved intents are active from now on, and
    /// what was taken for the others goes back. Tokens of requests that may have been recorded without an answer count as spent.
    pub fn finish(mut self) -> (DecidedBatch<'b, R>, Settlement) {
        let records = self.gated.intents.records;
        let place = |record| {
            let RecordView { partition, offset, .. } = records.get(record);
            (partition, offset)
        };
        let settlement = self.gated.limits.settle(&self.fates, &place);
        (DecidedBatch { asked: self }, settlement)
    }

    /// Whether an intent would be suppressed for want of tokens while the batch gives back what it has kept of rounds before. Given up and
    /// judged again at once, it claims these.
    pub fn lacks_kept_tokens(&self) -> bool {
        let lacks_tokens = |record| self.fate(record).lacks_tokens();
        self.gated.limits.frees_kept(&self.fates) && (0..self.fates.results.len()).any(lacks_tokens)
    }

    /// Gives the batch up, to be judged again: what it [keeps](super::GatedBatch::keeping) until then. The rest goes back.
    #[must_use]
    pub fn give_up(mut self) -> KeptLimits {
        let limits = &mut self.gated.limits;
        KeptLimits { units: limits.units(), tokens: limits.give_up(&self.fates) }
    }
}

impl<R: Records> DecidedBatch<'_, R> {
    /// Writes the outputs, one per record, and counts them. `numbers` gives the store's numbers of a class, where they are known.
    #[must_use]
    pub fn outputs(&mut self, numbers: NumbersOf<'_>) -> (Vec<Output>, Tally) {
        let classes = std::mem::take(&mut self.asked.gated.intents.classes);
        let AskedBatch { gated, fates, .. } = &self.asked;
        let records = gated.intents.records;
        let mut writer = OutputWriter::new(self.grounds(), fates, numbers, classes);
        let mut outputs = Vec::with_capacity(fates.results.len());
        for (index, (decoded, result)) in gated.intents.decoded.iter().zip(&fates.results).enumerate() {
            let (record, bytes_beside) = (records.get(index), || records.bytes_beside_value(index));
            let came = |intent| {
                let (record, bytes_beside) = (&record, &bytes_beside as &dyn Fn() -> usize);
                Came { index, record, bytes_beside, intent, result, fate: fates.get(index) }
            };
            outputs.push(match decoded {
                Ok(intent) => writer.write(&came(intent)),
                Err(Undecided::Retry(intent)) => writer.again(&came(intent.as_ref())),
                Err(Undecided::Invalid(letter)) => writer.dead(letter, &record, bytes_beside()),
            });
        }
        let mut tally = writer.finish();
        gated.limits.count(&mut tally);
        (outputs, tally)
    }

    fn grounds(&self) -> Grounds<'_> {
        let GatedBatch { decider, intents, limits, now, .. } = &self.asked.gated;
        Grounds { decider, set: &intents.set, eval: &intents.eval, limits, names: limits.names(), now: *now }
    }

    /// The decision on a record that is an intent, by its place, as [`DecidedBatch::outputs`] writes it.
    pub fn decision(&self, record: usize) -> Decision<'_> {
        let (view, fate, grounds) = (self.asked.gated.intents.records.get(record), self.fate(record), self.grounds());
        let decision = grounds.decision(&view, self.result(record), fate);
        Decision { budgets: grounds.budgets(record, fate), ..decision }
    }

    /// What became of an intent that was judged at `now`, and the time it was judged by.
    pub fn ruling(&self, record: usize, now: Time) -> (Verdict<'_>, Time) {
        self.grounds().ruling(self.fate(record), now)
    }

    /// Why and until when an intent is deferred, where intents can be, that got this verdict at `now`; `None` where the verdict
    /// stands.
    pub fn to_defer(&self, record: usize, verdict: &Verdict<'_>, now: Time) -> Option<(DeferReason, Time)> {
        let intent = self.asked.gated.intents.decoded[record].as_ref().ok()?;
        let grounds = self.grounds();
        let segment = grounds.segment(self.result(record));
        grounds.to_defer((segment, intent.user), Ruled { fate: self.fate(record), verdict }, now)
    }

    pub fn result(&self, record: usize) -> &GateResult {
        self.asked.result(record)
    }

    pub fn fate(&self, record: usize) -> Fate {
        self.asked.fate(record)
    }

    pub fn policy(&self) -> &Policy {
        self.asked.gated.policy()
    }

    pub fn segments(&self) -> &SegmentSet {
        &self.asked.gated.intents.set
    }

    pub const fn now(&self) -> Time {
        self.asked.gated.now()
    }
}
