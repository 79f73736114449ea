//! Queries from the command line and HTTP: a user's history and caps, and the decision on one intent. The decider of the
//! lanes answers them.

mod funds;
mod record;
#[cfg(test)]
pub(crate) mod tests;
mod view;

use std::{sync::Arc, time::Duration};

use weir_core::{
    basis::{
        clocks::WrongClock,
        origin::{Topic, TopicId},
        shard::UserHash,
        time::Time,
    },
    batch::{
        decider::{
            AskedBatch, DecidedBatch, Decider, Decoded, DecodedBatch, Ground, Patience, RequestIndex, Takes, Times,
            Undecided,
        },
        record::ReadBefore,
    },
    decision::explain::{UserMoment, would},
    history::{
        admit::{AdmitBatch, AdmitRequest},
        decide::Answer,
    },
    intent::{Intent, dead_letter::DeadLetter},
    policy::{Caps, Mode, Policy},
    ports::{Clock, Histories, Store, StoreError},
    segment::SegmentSet,
};
use weir_worker::{
    budgets::{Claimant, Closed},
    deferred_shards::DeferredShards,
    observer::Observer,
};

use self::funds::Funds;
pub use self::record::SingleRecord;
use crate::{
    limits::{LimitView, LimitedIntent, LooksAtLedger, not_looked_at},
    metrics::Metrics,
};
pub use view::{
    CampaignView, CapView, Decision, DecisionBudget, DecisionCap, DecisionOrigin, Forgotten, STAYS_IN_REDIS, SendView,
    UserView,
};

/// How an intent arrives that is in no topic. It stands for the topic in the intent's origin, and is none that
/// Kafka would take, so that it is never taken for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPoint {
    /// `POST /v1/decisions`. The same id again is a replay.
    Http,
    /// `weir explain`: an id that was approved before is a duplicate, as it would be in a new record.
    CommandLine,
}

impl EntryPoint {
    /// Stands for the topic; partition and offset are 0.
    pub fn topic(self) -> Topic {
        match self {
            Self::Http => Topic { name: "/v1/decisions".into(), id: TopicId::NO_TOPIC },
            Self::CommandLine => "weir explain".into(),
        }
    }
}

/// Who asks is told at once that a budget cannot be asked. A replay is an answer that is repeated.
const AT_ONCE: Patience = Patience { unavailable_after: Some(Duration::ZERO), may_defer: true, replays_pay: false };

/// How the time of a decision is read.
type ReadClock<C> = fn(&C) -> Result<Time, WrongClock>;
/// An intent that is judged; with how its budgets stand, where it only looks at them.
type JudgedIntent<'b> = (AskedBatch<'b, SingleRecord<'b>>, Vec<LimitView>);

#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("{}: {}", .0.reason.as_str(), .0.message)]
    NotAnIntent(DeadLetter),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Clock(#[from] WrongClock),
    #[error(transparent)]
    Closed(#[from] Closed),
}

pub struct QueryService<S, C> {
    decider: Decider,
    store: S,
    clock: C,
    metrics: Arc<Metrics>,
    deferred_shards: Arc<DeferredShards>,
    /// `None`: budgets are not asked.
    funds: Option<Funds>,
    /// The topics with records of users.
    topics: Arc<[String]>,
}

impl<S, C: Clock> QueryService<S, C> {
    /// With the segments, policy and fields of this decider. What comes in by one entry point has one origin.
    pub fn new(decider: &Decider, entry_point: EntryPoint, store: S, clock: C, metrics: Arc<Metrics>) -> Self {
        // An intent that is given with a question is JSON, whatever the topic has.
        let fields = Arc::new(decider.fields.as_json());
        // Nothing is published, so no topic limits it.
        let decider = Decider { topic: entry_point.topic(), limits: Arc::default(), fields, ..decider.clone() };
        Self { decider, store, clock, metrics, deferred_shards: Arc::default(), funds: None, topics: Arc::default() }
    }

    /// The same beside lanes: nothing is decided on a shard that one of them has deferred writes for.
    #[must_use]
    pub fn beside(self, deferred_shards: Arc<DeferredShards>) -> Self {
        Self { deferred_shards, ..self }
    }

    /// The same, where these topics have records of users.
    #[must_use]
    pub fn of_topics(self, topics: Arc<[String]>) -> Self {
        Self { topics, ..self }
    }

    /// The same, and decisions take tokens of budgets.
    #[must_use]
    pub fn taking(self, budgets: Claimant) -> Self {
        Self { funds: Some(Funds::Take(budgets)), ..self }
    }

    /// The same, and decisions look at budgets and take nothing.
    #[must_use]
    pub fn looking_at(self, ledger: Arc<dyn LooksAtLedger>) -> Self {
        Self { funds: Some(Funds::Look(ledger)), ..self }
    }

    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Judges an intent, and takes what it needs of limits, or only looks at them.
    fn judge<'q, 'b>(
        &'q self,
        record: &'b SingleRecord<'b>,
        decoded: &'b [Decoded<'b>],
        (now, looks): (ReadClock<C>, bool),
    ) -> impl Future<Output = Result<JudgedIntent<'b>, QueryError>> + use<'q, 'b, S, C> {
        let Self { decider, clock, funds, metrics, .. } = self;
        async move {
            let mut has_claimed = false;
            loop {
                let ground = Ground {
                    times: Times::One(now(clock)?),
                    passed: clock.passed(),
                    // The same id again is a replay here, too, whatever the gate says of it now.
                    read_before: ReadBefore::All,
                    takes: if looks { Takes::Nothing } else { Takes::FromPools },
                    budgets: funds.as_ref().map(|_| AT_ONCE),
                };
                let gated = decider.begin(DecodedBatch { records: record, decoded }, ground);
                let (asked, views) = match funds {
                    None => (gated.ask(None), Vec::new()),
                    Some(Funds::Look(ledger)) => funds::look(gated, &**ledger).await,
                    Some(Funds::Take(claimant)) => {
                        let Ok(asked) = claimant.fund(gated, &mut has_claimed).await? else {
                            claimant.ready().await;
                            continue;
                        };
                        (asked, Vec::new())
                    }
                };
                metrics.gated(asked.segment_counts());
                return Ok((asked, views));
            }
        }
    }

    fn with_clock(&self, user: UserView) -> UserView {
        let clock_trouble = self.clock.time_to_decide(&[]).err().map(|wrong| wrong.to_string());
        UserView { clock_trouble, ..user }
    }
}

impl<S: Histories, C: Clock> QueryService<S, C> {
    /// What a user stands at; the id in canonical text (`42`). One round trip. Where the clock is wrong, the answer says so.
    pub async fn user(&mut self, user_id: &str) -> Result<UserView, StoreError> {
        let (policy, set, now) = (self.decider.policy.get(), self.decider.segments.get(), self.clock.now());
        let history = self.store.history_of(UserHash::of(user_id)).await?;
        let moment = UserMoment { history: &history, zone: &policy.timezone, now };
        Ok(self.with_clock(user_view(user_id, (&policy, &set), &moment)))
    }

    /// Deletes what the store knows of a user. One round trip; safe to repeat.
    ///
    /// # Errors
    /// It may still be there, or its shard has lost its history: a rebuild would bring it back.
    pub async fn forget(&mut self, user_id: &str) -> Result<Forgotten, StoreError> {
        Ok(Forgotten::new(user_id, self.store.forget(UserHash::of(user_id)).await?, &self.topics))
    }

    /// What would become of an intent if it came now; nothing is written. One round trip.
    pub async fn would(&mut self, intent: impl Into<SingleRecord<'_>>) -> Result<Decision, QueryError> {
        self.clock.time_to_decide(&[])?;
        Ok(self.user_and_would(intent).await?.1)
    }

    /// What the user of an intent stands at, with calendar windows in the intent's zone, and what would become of the
    /// intent: both from the history as it is at one moment. Where the clock is wrong, the user's part says so.
    pub async fn user_and_would(
        &mut self,
        intent: impl Into<SingleRecord<'_>>,
    ) -> Result<(UserView, Decision), QueryError> {
        let record: SingleRecord<'_> = intent.into();
        let decoded = self.decider.decode(&record);
        let intent = as_intent(&decoded)?;
        let (mut asked, mut limits) = self.judge(&record, &decoded, (|clock| Ok(clock.now()), true)).await?;
        asked.put_back();
        let history = self.store.history_of(intent.user).await?;
        let AdmitBatch { now, cap_sets, requests } = asked.requests();
        let answer = |request: &AdmitRequest<'_>| Some(would(&history, request, &cap_sets[request.cap_set], *now));
        let answers: Vec<Option<Answer>> = requests.iter().map(answer).collect();
        asked.answer(answers);
        let (decided, _) = asked.finish();
        let policy = decided.policy();
        let zone = intent.timezone.as_ref().unwrap_or(&policy.timezone);
        let moment = UserMoment { history: &history, zone, now: decided.now() };
        let user = user_view(&intent.user_id, (policy, decided.segments()), &moment);
        let limited = LimitedIntent { class: intent.class(), segment: user.segment.as_deref() };
        limits.extend(not_looked_at(policy, &limited));
        Ok((self.with_clock(user), Decision { limits, ..decision(&decided, intent) }))
    }
}

impl<S: Store, C: Clock> QueryService<S, C> {
    /// Decides an intent and records it, as a lane does; it is not published. The same id again gets the verdict and
    /// the time it had if that was approved. One round trip once the intent's channel, category and campaign have been
    /// met; safe to repeat after an error.
    pub async fn decide(&mut self, intent: impl Into<SingleRecord<'_>>) -> Result<Decision, QueryError> {
        let record: SingleRecord<'_> = intent.into();
        let decoded = self.decider.decode(&record);
        let intent = as_intent(&decoded)?;
        let (mut asked, _) = self.judge(&record, &decoded, (|clock| clock.time_to_decide(&[]), false)).await?;
        if let Err(error) = self.admit(&mut asked).await
            && !asked.gives_up()
        {
            // Where it is recorded, the same id again is a replay, and pays nothing.
            return Err(error.into());
        }
        let (decided, settlement) = asked.finish();
        // The answer is all that there is to be committed.
        settlement.committed();
        if decided.fate(0).waits() {
            let why = "a budget of the intent cannot be asked, and its policy says to wait";
            return Err(StoreError::Temporary(why.to_owned()).into());
        }
        Ok(decision(&decided, intent))
    }

    /// Asks the store, but not beside deferred writes.
    async fn admit(&mut self, asked: &mut AskedBatch<'_, SingleRecord<'_>>) -> Result<(), StoreError> {
        let requests: Vec<RequestIndex> = asked.unanswered().collect();
        let Some(first) = requests.first() else { return Ok(()) };
        let user = asked.request(*first).user;
        // Nothing is asked before the store is ready, so nothing is recorded for a client that is refused here, or that
        // closes its connection.
        self.store.ready_for(user).await?;
        // Looked at only now: a lane may have deferred writes while this waited.
        if self.deferred_shards.has(user.shard(self.store.shards())) {
            self.store.not_asked();
            let why = "sends that were approved while Redis was unavailable are being recorded";
            return Err(StoreError::Temporary(why.to_owned()));
        }
        // Whoever asks may go away meanwhile.
        let (batch, answers) = asked.to_ask();
        let admitted = self.store.admit(batch, answers).await;
        asked.heard(&requests, admitted.as_ref().err());
        admitted
    }
}

fn as_intent<'d>(decoded: &'d [Decoded<'d>]) -> Result<&'d Intent<'d>, QueryError> {
    let one = decoded.first().expect("one record was decoded");
    match one {
        Ok(intent) => Ok(intent),
        Err(Undecided::Invalid(letter)) => Err(QueryError::NotAnIntent(letter.clone())),
        Err(Undecided::Retry(_)) => unreachable!("what is asked about comes from no topic"),
    }
}

fn decision(decided: &DecidedBatch<'_, SingleRecord<'_>>, intent: &Intent<'_>) -> Decision {
    let decision = decided.decision(0);
    let to_defer = decided.to_defer(0, &decision.verdict, decided.now());
    let deferred_until = to_defer.map(|(_, due)| due);
    Decision { deferred_until, ..Decision::new(&decision, intent, decided.policy()) }
}

/// What a user stands at.
fn user_view(user_id: &str, (policy, set): (&Policy, &SegmentSet), moment: &UserMoment<'_>) -> UserView {
    let UserMoment { history, zone, now } = *moment;
    let name = |place: usize| set.segments()[place].name.as_str();
    let segment = set.lookup(user_id).segment().map(name);
    let segments = (0..set.segments().len()).filter(|&place| set.contains(place, user_id));
    let caps = policy.caps_of(segment);
    let standing = moment.standing(caps);
    let named = segment.filter(|name| policy.segments.contains_key(*name));
    UserView {
        user_id: user_id.to_owned(),
        segment: segment.map(str::to_owned),
        segments: segments.map(|place| name(place).to_owned()).collect(),
        held_to: named.map_or_else(|| "default".to_owned(), |name| format!("segments.{name}")),
        unlimited: **caps == Caps::Unlimited,
        sends: moment.alive().0.iter().map(|entry| SendView::new(entry, history)).collect(),
        caps: standing.caps.iter().map(|cap_use| CapView::new(cap_use, history, now)).collect(),
        eligible_at: standing.next.time(now),
        soonest_at: standing.soonest.time(now),
        quiet_until: policy.quiet_hours.as_ref().and_then(|quiet| quiet.end(zone, now)),
        asked_at: now,
        judged_at: standing.judged_at,
        ahead: standing.ahead,
        clock_trouble: None,
        timezone: zone.name().to_owned(),
        shadow: policy.mode == Mode::Shadow,
        policy_version: policy.version.clone(),
        segments_version: set.version().to_owned(),
    }
}
