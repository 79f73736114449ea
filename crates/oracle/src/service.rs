//! Services that ask before they work: what their instances have registered, and how the instances of weir share that.
//!
//! Each instance of weir takes a turn at Redis once a second per service, and holds a share of what is registered until its lease
//! ends ([`ServiceShares`]). The sum of shares in force is never more than what is registered; [`ServiceBook`] is the reference of the scripts
//! that see to it.

mod book;

use std::collections::BTreeMap;

pub use book::ServiceBook;
pub use weir_core::limit::route::permits::{RegisteredInstance, ServiceName, Total};
use weir_core::{
    basis::time::Time,
    limit::{SharedLimit, share::Embedded},
    ports::{Share, StoreError},
};

/// The embedded services: in this process. For `weir demo` and tests.
pub type EmbeddedServices = Embedded<ServiceShares>;

/// What is registered of services: the instances of weir share it. A member is a holder, and a holder one run of a process.
#[derive(Debug, Clone, Copy)]
pub struct ServiceShares;

impl SharedLimit for ServiceShares {
    type Key = ServiceName;
    type Turn = ShareTurn;
    type Reply = ShareReply;
    type Reference = ServiceBook;
}

/// Where services register, and instances of weir share what they have registered.
pub trait Services: Share<ServiceShares> {
    /// Registers or renews an instance of a service; without a registration, removes it. Safe to call again. After an error it may have
    /// been done or not.
    fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: Option<&Registration>,
    ) -> impl Future<Output = Result<Registered, StoreError>> + Send;

    /// How a service stands; `None` where none of its instances is registered. Changes nothing.
    fn look(&mut self, service: &ServiceName) -> impl Future<Output = Result<Option<ServiceSeen>, StoreError>> + Send;
}

impl Services for EmbeddedServices {
    async fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: Option<&Registration>,
    ) -> Result<Registered, StoreError> {
        Ok(self.with(service, |book, now| book.register(instance, registration, now)))
    }

    async fn look(&mut self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        Ok(self.with(service, |book, now| book.look(now)))
    }
}

/// How long a share lasts without another turn, in milliseconds.
pub const LEASE_MS: i64 = 3_000;
/// What "per second" means, in milliseconds.
pub const SECOND_MS: i64 = 1_000;
/// An instance that has not renewed for so many intervals is removed.
pub const INTERVALS: i64 = 3;
/// The most instances of one service.
pub const MAX_INSTANCES: u64 = 1_000;
/// The most ends that a turn hands on.
pub const ENDS_PER_TURN: usize = 5_000;
/// The most bytes of ends that wait for one holder; more are dropped, and their admissions end by their timeout.
pub const ENDS_BYTES: usize = 1 << 20;

/// What an instance of a service can do, as it registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Admissions per second.
    pub capacity_per_s: u64,
    /// Admissions that have not ended.
    pub concurrency: u64,
    /// An admission that has not ended by then is over, in milliseconds.
    pub timeout_ms: u64,
    /// How long a message takes one way, in milliseconds.
    pub network_ms: u64,
    /// It renews this often, in milliseconds.
    pub interval_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// Whether it is registered, or was until it was removed. False also where the service has [`MAX_INSTANCES`] others.
    pub taken: bool,
    pub total: Total,
}

/// A turn of one instance of weir at one service. One that is repeated gets the shares that it had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareTurn {
    /// The largest share of the rate in force within the last second, and what it could use.
    pub rate: Use,
    /// The share of concurrency in force or, where that is more, the admissions that have not ended, and what it could use.
    pub concurrency: Use,
    /// Admissions that ended here since the last turn and reported their time: how many, and the sum of these times in milliseconds.
    pub took: (u64, u64),
    /// How many bytes of ends of the last reply it has taken.
    pub taken_bytes: u64,
    /// Ends of admissions of other holders.
    pub ends: Vec<(Holder, End)>,
}

/// A part of a [`ShareTurn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Use {
    /// What may be in use.
    pub held: u64,
    /// What it was asked for lately.
    pub wanted: u64,
}

/// Names a process of weir among all of them, since ever: lowercase letters and digits.
pub type Holder = std::sync::Arc<str>;

/// The end of an admission at another instance than its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The admission's number at its holder.
    pub number: u64,
    /// How long its work took, where that is known, in milliseconds.
    pub took_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareReply {
    /// Admissions per second until the lease ends.
    pub per_s: u64,
    /// Admissions that have not ended.
    pub concurrency: u64,
    pub total: Total,
    /// The instances of weir that share it, this one included.
    pub members: u64,
    /// Until the service is known for long enough, shares do not grow: so many milliseconds.
    pub starts_in_ms: u64,
    /// The mean time of the admissions that have ended, in microseconds; 0: none has yet.
    pub processing_us: u64,
    /// Ends that others have handed on, as [`End`]s in text.
    pub ends: String,
}

/// How a service stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceSeen {
    /// Its live instances, by name.
    pub instances: Vec<(String, RegisteredInstance)>,
    pub total: Total,
    /// The shares that count: admissions per second, and concurrency.
    pub given: (u64, u64),
    /// The instances of weir that share it.
    pub members: u64,
    /// As in [`ShareReply`].
    pub processing_us: u64,
    /// When that was, by the clock that instances end by.
    pub now: Time,
}

impl ShareTurn {
    /// The ends of each holder, as they are written for it.
    pub fn ends_by_holder(&self) -> BTreeMap<Holder, String> {
        let mut by_holder = BTreeMap::<Holder, String>::new();
        for (holder, end) in &self.ends {
            by_holder.entry(Holder::clone(holder)).or_default().push_str(&end.to_text());
        }
        by_holder
    }
}

impl End {
    /// As it is written for its holder.
    pub fn to_text(self) -> String {
        let Self { number, took_ms } = self;
        took_ms.map_or_else(|| format!("{number} "), |took_ms| format!("{number}:{took_ms} "))
    }

    /// What is in a reply's `ends`; what is none is passed over.
    pub fn parse_all(text: &str) -> impl Iterator<Item = Self> + '_ {
        text.split_ascii_whitespace().filter_map(|word| {
            let (number, took_ms) = word.split_once(':').map_or((word, None), |(number, took)| (number, Some(took)));
            Some(Self { number: number.parse().ok()?, took_ms: took_ms.map(str::parse).transpose().ok()? })
        })
    }
}

#[cfg(test)]
mod tests;
