//! How much the interface takes on: rate, concurrency, time; and panics.

use std::{
    any::Any,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    state::keyed::HashMapStateStore,
};

use super::problem::Problem;
use crate::config::HttpSettings;

/// Addresses that are told apart, at most: some 100 bytes each. Those beyond share one allowance.
const MAX_ADDRESSES: usize = 65_536;
/// Whose allowance addresses beyond [`MAX_ADDRESSES`] share.
const EVERYBODY_ELSE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The longest path and query, in bytes.
const MAX_URI_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 100;
/// The most that headers may have together, in bytes of names and values.
const MAX_HEADER_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Rate {
    limiter: RateLimiter<IpAddr, HashMapStateStore<IpAddr>, DefaultClock>,
    clock: DefaultClock,
}

impl Rate {
    /// `None` where there is no limit.
    pub(super) fn new(options: &HttpSettings) -> Option<Arc<Self>> {
        let quota = Quota::per_second(options.rate?).allow_burst(options.burst);
        Some(Arc::new(Self { limiter: RateLimiter::hashmap(quota), clock: DefaultClock::default() }))
    }

    /// Takes one request of an address, or says how long to wait.
    fn take(&self, address: IpAddr) -> Result<(), Duration> {
        let mut key = whose(address);
        if self.limiter.len() >= MAX_ADDRESSES {
            self.limiter.retain_recent();
            if self.limiter.len() >= MAX_ADDRESSES {
                key = EVERYBODY_ELSE;
            }
        }
        self.limiter.check_key(&key).map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }
}

/// Who an address belongs to: with IPv6 one customer has all of a /64.
fn whose(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

/// Refuses a head that is too large. The connection's own bounds are wider, because what is beyond them is answered
/// without a word: by hyper, before there is a request.
pub(super) async fn head(request: Request, next: Next) -> Response {
    let uri = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if uri > MAX_URI_BYTES {
        let detail = format!("the path and query have {uri} bytes; they may have {MAX_URI_BYTES}");
        return Problem::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail).into_response();
    }
    let headers = request.headers();
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let detail = format!("at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes together are taken");
        return Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", detail).into_response();
    }
    next.run(request).await
}

pub(super) async fn rate(
    State(rate): State<Option<Arc<Rate>>>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match rate.map_or(Ok(()), |rate| rate.take(client.ip())) {
        Ok(()) => next.run(request).await,
        Err(wait) => {
            let detail = "more requests from this address than http.rate and http.burst allow";
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate", detail);
            problem.retry_after(wait.as_secs() + 1).into_response()
        }
    }
}

/// Answers in the place of what takes longer than this.
pub(super) async fn time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(limit, next.run(request)).await;
    answer.unwrap_or_else(|_| Problem::too_slow().into_response())
}

/// What is answered where `http.concurrency` requests are worked on already.
pub(super) async fn busy(_: tower::BoxError) -> Problem {
    let detail = "as many requests are worked on as http.concurrency allows";
    Problem::not_now("busy", detail, 1)
}

/// What is answered for a handler that panicked.
pub(super) fn panicked(what: Box<dyn Any + Send>) -> Response {
    let said = what.downcast_ref::<String>().map(String::as_str).or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(panic = said.unwrap_or("?"), "a bug in weir: an HTTP request made it panic; please report it");
    Problem::bug().into_response()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn rate(a_second: u32, burst: u32) -> Arc<Rate> {
        let options = HttpSettings {
            rate: NonZeroU32::new(a_second),
            burst: NonZeroU32::new(burst).unwrap(),
            ..HttpSettings::default()
        };
        Rate::new(&options).unwrap()
    }

    #[test]
    fn each_address_has_an_allowance_of_its_own() {
        let rate = rate(1, 2);
        for (address, fits) in [
            ("10.0.0.1", true),
            ("10.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("10.0.0.2", true),
            ("2001:db8::1", true),
            ("2001:db8::2", true),
            ("2001:db8::3", false),
            ("2001:db8:0:1::1", true),
        ] {
            assert_eq!(rate.take(address.parse().unwrap()).is_ok(), fits, "{address}");
        }
    }

    #[test]
    fn a_flood_of_addresses_fills_no_memory() {
        let rate = rate(1, 2);
        let limit = u32::try_from(MAX_ADDRESSES).unwrap();
        for number in 0..limit + 10 {
            let _ = rate.take(IpAddr::V4(number.into()));
        }
        assert!(rate.limiter.len() <= MAX_ADDRESSES + 1, "{}", rate.limiter.len());
        assert!(rate.take(IpAddr::V4((limit + 11).into())).is_err(), "they share one allowance");
    }
}
