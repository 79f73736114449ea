//! Who may see or change a user's data: whoever has the token; without one, only this machine.

use std::{net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{Api, problem::Problem};
use crate::config::{HttpSettings, Secret};

/// Tokens by their SHA-256: digests are of one length, so that comparing takes one time.
type Digests = Vec<[u8; 32]>;

/// How often the file of tokens is read again.
const REFRESH: Duration = Duration::from_secs(5);

/// What is asked of a request for a user's data.
#[derive(Clone)]
pub(super) enum Access {
    /// One of these tokens.
    Tokens(Arc<ArcSwap<Digests>>),
    /// Nothing but that it comes to a loopback address by its name.
    ThisMachine,
    /// It is refused: no token is set, and others can reach the address.
    Nobody,
}

impl Access {
    /// The rule for a server on this address.
    pub(super) fn new(settings: &HttpSettings, listens_on: IpAddr) -> Self {
        let tokens = digests(settings.tokens());
        if !tokens.is_empty() {
            return Self::Tokens(Arc::new(ArcSwap::from_pointee(tokens)));
        }
        if listens_on.to_canonical().is_loopback() { Self::ThisMachine } else { Self::Nobody }
    }

    /// Reads the tokens again and again, where they are in a file. Those that are known stay while it cannot be read.
    pub(super) async fn keep_fresh(self, settings: HttpSettings) {
        let (Self::Tokens(known), Some(file)) = (self, settings.token_file) else { return };
        let mut last = Ok(file.tokens.clone());
        loop {
            tokio::time::sleep(REFRESH).await;
            let again = file.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || again.read()).await else { return };
            if read == last {
                continue;
            }
            match &read {
                Ok(tokens) => {
                    known.store(Arc::new(digests(settings.token.iter().chain(tokens))));
                    tracing::info!("the tokens of http.token_file have been replaced");
                }
                Err(error) => tracing::warn!("http.token_file {error}; the tokens that it held before stay in force"),
            }
            last = read;
        }
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match self {
            Self::Tokens(known) => bearer(headers, &known.load()),
            // A page in a browser could have a name of its own lead here (DNS rebinding).
            Self::ThisMachine if !is_local(headers, header::HOST) => {
                Err(forbidden("the Host is not this machine's; without http.token, ask localhost"))
            }
            // Or send here what needs nobody's leave.
            Self::ThisMachine if !is_local(headers, header::ORIGIN) => {
                Err(forbidden("a page of another machine asks; without http.token, only this machine's are answered"))
            }
            Self::ThisMachine => Ok(()),
            Self::Nobody => Err(forbidden(
                "http.token is not set and http.listen is no loopback address, so nothing of users is shown: set a token",
            )),
        }
    }
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

fn digests<'t>(tokens: impl Iterator<Item = &'t Secret>) -> Digests {
    tokens.map(|token| digest(token.expose().as_bytes())).collect()
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn bearer(headers: &HeaderMap, known: &[[u8; 32]]) -> Result<(), Problem> {
    let unauthorized = |detail: &str, challenge: &'static str| {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
        Err(problem.with(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge)))
    };
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return unauthorized(
            "send the header Authorization: Bearer with the token of http.token",
            "Bearer realm=\"weir\"",
        );
    };
    let given = value.as_bytes().split_at_checked(b"Bearer ".len());
    let given =
        given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")).map(|(_, token)| token.trim_ascii());
    let given = digest(given.unwrap_or_default());
    // All are compared, whichever fits.
    let fits = known.iter().fold(Choice::from(0), |fits, token| fits | token.ct_eq(&given));
    if fits.into() {
        return Ok(());
    }
    unauthorized("the bearer token is not one of http.token", "Bearer realm=\"weir\", error=\"invalid_token\"")
}

/// Whether the header, Host or Origin, names a loopback address or `localhost`, if it is there.
fn is_local(headers: &HeaderMap, name: header::HeaderName) -> bool {
    let Some(value) = headers.get(name) else { return true };
    let text = value.to_str().unwrap_or_default();
    let text = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or(text);
    let Ok(authority) = text.parse::<axum::http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

pub(super) async fn guard(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    match api.access.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(access: &Access, headers: &[(header::HeaderName, &'static str)]) -> u16 {
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        access.check(&headers.collect()).map_or_else(|problem| problem.into_response().status().as_u16(), |()| 200)
    }

    #[test]
    fn only_a_token_that_is_set_opens_what_is_guarded() {
        let token = vec![Secret::new("first"), Secret::new("second")];
        let access = Access::new(&HttpSettings { token, ..HttpSettings::default() }, [127, 0, 0, 1].into());
        let right = ["Bearer first", "Bearer second", "bearer  second"];
        let wrong = ["Bearer firs", "Bearer first2", "Bearer ", "Bearer", "Basic first", "first", ""];
        for (values, expected) in [(&right[..], 200), (&wrong, 401)] {
            for &value in values {
                assert_eq!(status(&access, &[(header::AUTHORIZATION, value)]), expected, "{value:?}");
            }
        }
        assert_eq!(status(&access, &[]), 401);
    }

    #[test]
    fn without_a_token_only_this_machine_is_answered_by_its_own_name() {
        let here = Access::new(&HttpSettings::default(), [127, 0, 0, 1].into());
        let own = ["localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:8080"];
        let others = ["weir.example:8080", "localhost.example", "10.0.0.1", ""];
        let own_pages = ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"];
        let other_pages = ["https://weir.example", "http://localhost.example", "null", ""];
        for (name, values, expected) in [
            (header::HOST, &own[..], 200),
            (header::HOST, &others, 403),
            (header::ORIGIN, &own_pages, 200),
            (header::ORIGIN, &other_pages, 403),
        ] {
            for &value in values {
                assert_eq!(status(&here, &[(name.clone(), value)]), expected, "{name}: {value:?}");
            }
        }
        assert_eq!(status(&here, &[]), 200);
        for reachable in ["0.0.0.0", "::", "10.0.0.1"] {
            let access = Access::new(&HttpSettings::default(), reachable.parse().unwrap());
            assert_eq!(status(&access, &[(header::HOST, "localhost")]), 403, "{reachable}");
        }
    }
}
