//! What became of each intent of a batch, found in one place from what the gate and the store say of it. Outputs, tokens, permits,
//! places, who is active, and what is offered again go by it.

use std::ops::Range;

use super::{Disposition, GateDenial, GateResult, RequestIndex};
use crate::{
    basis::time::Time,
    history::decide::{AdmitVerdict, Answer},
    policy::{GateReason, Mode, Unavailable},
};

/// What became of one record, as far as the store has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is decided: it is no intent, or one that was approved before and is delivered again.
    Undecided,
    /// It is sent. In shadow mode: with what denies it.
    Approved(Approval, Option<Denier>),
    /// It is not sent, or not now. With the time that the store judged it by, where it did.
    Suppressed(Denier, Option<Time>),
    Unanswered {
        /// What becomes of it if it gets none.
        outcome: UnavailableOutcome,
        /// What denies it then, if something does.
        denier: Option<Denier>,
        /// What the policy says of that; `None` where a gate denies it, and it is only looked up.
        fallback: Option<Unavailable>,
        may_be_recorded: bool,
    },
}

/// What becomes of the intent of a request that the store cannot answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableOutcome {
    /// It waits, or is deferred where it may be.
    Wait,
    /// It is approved, and the write to its history is deferred.
    Approved,
    Suppressed,
    /// It is suppressed at once, however long its history has been unavailable: its class does not depend on the store.
    GivenUp,
}

impl UnavailableOutcome {
    /// Of an intent that is only looked up, because a gate denies it.
    pub(super) const fn of_look_up(fallback: Option<Unavailable>) -> Self {
        match fallback {
            Some(Unavailable::Wait) => Self::Wait,
            Some(Unavailable::Approve | Unavailable::Suppress) => Self::Suppressed,
            None => Self::GivenUp,
        }
    }

    /// Of an intent that caps are checked for.
    pub(super) const fn of_caps(fallback: Unavailable, mode: Mode) -> Self {
        match (fallback, mode) {
            (Unavailable::Wait, _) => Self::Wait,
            (Unavailable::Suppress, Mode::Enforce) => Self::Suppressed,
            (Unavailable::Approve | Unavailable::Suppress, _) => Self::Approved,
        }
    }
}

/// How an intent is approved, and at what time by the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Recorded(Time),
    /// The store knows its id from another record: only in shadow mode.
    Duplicate(Time),
    /// The store had recorded it: before, or for this batch where a reply was lost.
    Replayed(Time),
    /// The same, and a gate denies it now: it took nothing.
    LookedUp(Time),
    /// It goes by a bypass that does not count. The store is not asked.
    Unrecorded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denier {
    Gate(GateDenial),
    /// A gate, and the store knows its id from another record.
    GateOfKnown(GateDenial),
    /// A cap of this set, as [`AdmitVerdict::Denied`] says.
    Cap {
        cap_set: usize,
        cap: u8,
        /// What the window holds already.
        used: u32,
        /// The entry that has to leave the window.
        blocking: Option<Time>,
    },
    /// Its id was approved before, in another record.
    Duplicate,
    /// Its history is unavailable.
    Unavailable,
}

impl Denier {
    /// What the gate or a limit says.
    #[inline]
    pub(crate) const fn reason(self) -> Option<GateReason> {
        if let Self::Gate((reason, _)) | Self::GateOfKnown((reason, _)) = self { Some(reason) } else { None }
    }
}

/// What became of the records of a batch, by what the gate and the store say. Each is found when it is asked for: nothing is allocated
/// where nobody asks.
pub(crate) struct Fates {
    /// What the gate says, of each record.
    pub(super) results: Vec<GateResult>,
    /// As many as requests, or none before the store is asked.
    pub(super) answers: Vec<Option<Answer>>,
    /// Requests that were asked, in this round or one before, have no answer, and may have been recorded; ascending.
    pub(super) unclear: Vec<RequestIndex>,
    /// Whether the store is being asked: whoever is interrupted then knows of no request whether it was recorded.
    pub(super) is_asking: bool,
    pub(super) mode: Mode,
}

impl Fates {
    #[inline]
    pub(super) fn get(&self, record: usize) -> Fate {
        Fate::of(&self.results[record].disposition, self)
    }

    /// Whether the store has just recorded it, and nothing denies it, as nearly all: known in fewer steps than its fate.
    #[inline]
    pub(super) fn is_allowed(&self, record: usize) -> bool {
        let Disposition::CheckCaps { request, shadowed: None, .. } = self.results[record].disposition else {
            return false;
        };
        matches!(self.answers.get(request.get()), Some(Some(Answer { verdict: AdmitVerdict::Allowed, .. })))
    }

    /// Whether the store has answered that a record was not recorded between `since` and this round.
    pub(super) fn was_unrecorded(&self, record: usize, since: Time) -> bool {
        let answer = self.results[record].request().and_then(|request| self.answer(request));
        answer.is_some_and(|answer| answer.verdict != AdmitVerdict::Replayed || answer.at < since)
    }

    /// The store's answer to a request; `None`: it has none, or not yet.
    #[inline]
    pub(crate) fn answer(&self, request: RequestIndex) -> Option<Answer> {
        self.answers.get(request.get()).copied().flatten()
    }
}

impl Fate {
    #[inline]
    fn of(disposition: &Disposition, fates: &Fates) -> Self {
        let mode = fates.mode;
        match *disposition {
            Disposition::Undecided => Self::Undecided,
            Disposition::Suppress(denial) => Self::Suppressed(Denier::Gate(denial), None),
            Disposition::Bypass { shadowed } => Self::Approved(Approval::Unrecorded, shadowed.map(Denier::Gate)),
            Disposition::LookUp { request, denial, fallback } => {
                match fates.answer(request).map(|answer| (answer.verdict, answer.at)) {
                    Some((AdmitVerdict::Replayed, at)) => Self::Approved(Approval::LookedUp(at), None),
                    Some((AdmitVerdict::Denied { .. }, _)) => Self::Suppressed(Denier::Gate(denial), None),
                    Some((AdmitVerdict::Duplicate | AdmitVerdict::Allowed, _)) => {
                        Self::Suppressed(Denier::GateOfKnown(denial), None)
                    }
                    None => Self::Unanswered {
                        outcome: UnavailableOutcome::of_look_up(fallback),
                        denier: Some(Denier::Gate(denial)),
                        fallback: None,
                        may_be_recorded: false,
                    },
                }
            }
            Disposition::CheckCaps { request, cap_set, shadowed, fallback } => match fates.answer(request) {
                Some(answer) => Self::answered(answer, cap_set, shadowed, mode),
                None => Self::Unanswered {
                    outcome: UnavailableOutcome::of_caps(fallback, mode),
                    denier: match fallback {
                        Unavailable::Wait => None,
                        Unavailable::Approve => shadowed.map(Denier::Gate),
                        Unavailable::Suppress => Some(shadowed.map_or(Denier::Unavailable, Denier::Gate)),
                    },
                    fallback: Some(fallback),
                    may_be_recorded: fates.is_asking || fates.unclear.binary_search(&request).is_ok(),
                },
            },
        }
    }

    #[inline]
    fn answered(answer: Answer, cap_set: usize, shadowed: Option<GateDenial>, mode: Mode) -> Self {
        let at = answer.at;
        let (approval, denier) = match answer.verdict {
            AdmitVerdict::Allowed => (Approval::Recorded(at), None),
            AdmitVerdict::Replayed => (Approval::Replayed(at), None),
            AdmitVerdict::Duplicate => (Approval::Duplicate(at), Some(Denier::Duplicate)),
            AdmitVerdict::Denied { cap, used, blocking } => {
                (Approval::Recorded(at), Some(Denier::Cap { cap_set, cap, used, blocking }))
            }
        };
        match (shadowed.map(Denier::Gate).or(denier), mode) {
            (Some(denier), Mode::Enforce) => Self::Suppressed(denier, Some(at)),
            (denier, Mode::Enforce | Mode::Shadow) => Self::Approved(approval, denier),
        }
    }

    /// Whether it is sent, by this decision.
    #[inline]
    pub const fn is_approved(self) -> bool {
        matches!(self, Self::Approved(..) | Self::Unanswered { outcome: UnavailableOutcome::Approved, .. })
    }

    /// Whether it waits for the store's answer, or for a budget that cannot be asked.
    #[inline]
    pub const fn waits(self) -> bool {
        matches!(
            self,
            Self::Suppressed(Denier::Gate((GateReason::BudgetWaits, _)), _)
                | Self::Unanswered { outcome: UnavailableOutcome::Wait, .. }
        )
    }

    /// The route that it waits for, by its place in the policy.
    #[inline]
    pub(crate) fn route(self) -> Option<usize> {
        let (Self::Suppressed(denier, _) | Self::Unanswered { denier: Some(denier), .. }) = self else { return None };
        if let Some(GateReason::RouteFull(route)) = denier.reason() { usize::try_from(route).ok() } else { None }
    }

    /// What denies it, or in shadow mode would.
    #[inline]
    pub(crate) const fn denier(self) -> Option<Denier> {
        match self {
            Self::Undecided => None,
            Self::Approved(_, denier) | Self::Unanswered { denier, .. } => denier,
            Self::Suppressed(denier, _) => Some(denier),
        }
    }

    /// When the store had recorded it, if it had.
    #[inline]
    pub(crate) const fn replayed_from(self) -> Option<Time> {
        if let Self::Approved(Approval::Replayed(at) | Approval::LookedUp(at), _) = self { Some(at) } else { None }
    }

    /// Whether it came as far as to take from its budgets.
    pub(crate) const fn took(self) -> bool {
        matches!(self.denier(), None | Some(Denier::Cap { .. } | Denier::Duplicate))
    }

    /// Whether a unit that it has is used, such as a permit of its route. One that is delivered again is sent, too.
    pub(super) const fn uses_unit(self) -> bool {
        self.is_approved() || matches!(self, Self::Undecided)
    }

    /// Whether a limit is the only reason why it is not approved, and may have had more for it.
    pub(super) const fn is_limited(self) -> bool {
        let Self::Suppressed(Denier::Gate((reason, _)), _) = self else { return false };
        reason.is_of_limit()
    }

    /// Whether it is suppressed because a budget has no tokens for it.
    pub(super) const fn lacks_tokens(self) -> bool {
        matches!(self, Self::Suppressed(Denier::Gate((GateReason::Budget(_) | GateReason::BudgetUnavailable, _)), _))
    }

    /// Whether the tokens that it was granted of a budget are spent, once its batch is decided, which was judged at `now`. `uncounted`:
    /// when an admission was that the budget has not counted.
    pub(super) fn pays(self, now: Time, uncounted: Range<Time>) -> bool {
        match self {
            Self::Approved(Approval::Recorded(_) | Approval::Duplicate(_) | Approval::Unrecorded, _) => true,
            // It was recorded before the budget's tokens were counted, and was not visible then: a rebuild has not counted it.
            Self::Approved(Approval::Replayed(at), _) => at >= now || uncounted.contains(&at),
            Self::Unanswered { may_be_recorded, .. } => may_be_recorded || self.is_approved(),
            Self::Undecided | Self::Approved(Approval::LookedUp(_), _) | Self::Suppressed(..) => false,
        }
    }

    /// Whether it was recorded by this judgement, or may have been: if it is judged again, it is a replay, and the tokens that it was
    /// granted are spent by now.
    pub(super) fn is_recorded(self, now: Time) -> bool {
        match self {
            Self::Approved(Approval::Recorded(_), _) => true,
            // A replay's were spent when it was admitted. One that was admitted just now is this batch's own: the store asked
            // again because a reply was lost.
            Self::Approved(Approval::Replayed(at), _) => at >= now,
            Self::Unanswered { may_be_recorded, .. } => may_be_recorded,
            Self::Undecided | Self::Approved(..) | Self::Suppressed(..) => false,
        }
    }
}
