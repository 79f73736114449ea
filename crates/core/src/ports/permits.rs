//! The permits of routes, shared by instances.

use std::future::Future;

use super::StoreError;
use crate::{limit::share::TurnNumber, pace::KeptRates};

/// Where instances share the permits of routes.
pub trait Permits: Send {
    /// Takes a turn for one route: returns what was not used, and takes permits. One round trip.
    ///
    /// To be called with the lag of just now. Permits that are granted without an answer are held until the lease ends, or the turn is
    /// repeated with its number.
    ///
    /// # Errors
    /// It may have been done or not; the next turn heals it.
    fn turn(&mut self, turn: &PermitTurn<'_>) -> impl Future<Output = Result<PermitGrant, StoreError>> + Send;
}

/// One instance's turn for one route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PermitTurn<'r> {
    /// Its number: a turn that is repeated gets the permits that it had, and returns none again.
    pub number: TurnNumber,
    /// The route's name.
    pub route: &'r str,
    /// The service whose capacity is its ceiling.
    pub service: Option<&'r str>,
    /// What all instances may hold together beyond the lag; `None`: the route has no consumer group, and only its rate and its
    /// service bound it.
    pub room: Option<u64>,
    /// How many this instance wants.
    pub want: u64,
    /// How many it took back, unused, for this turn.
    pub unused: u64,
    /// How many it has used, or is using, that may not be in the lag yet.
    pub recent: u64,
    /// The most that the route takes per second.
    pub rate: Option<u64>,
    /// What this instance's signals of overload leave of the drain rate, above 0 and up to 1.
    pub slow: f64,
    /// Deliveries whose processing time was reported since the last turn, and the sum of these times in milliseconds.
    pub took: (u64, u64),
    /// The delivery that it is paced by ([`crate::route::Route::delivery`]): rates of another one are not kept.
    pub delivery: u64,
    /// What this instance knows of its rates.
    pub rates: KeptRates,
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PermitGrant {
    /// The permits that this instance holds until its lease ends.
    pub permits: u64,
    /// What other instances hold or have just used.
    pub held_by_others: u64,
    /// The instances that share, this one included.
    pub members: u64,
    /// What the service's instances have registered, per second.
    pub registered_per_s: Option<u64>,
    /// How long the service may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The mean time that the service takes, in milliseconds, by the ends of admissions and by [`PermitTurn::took`].
    pub processing_ms: Option<u64>,
    /// The least of all instances' [`PermitTurn::slow`].
    pub slow: f64,
    /// What is kept of its rates, these of this turn included.
    pub rates: KeptRates,
}
