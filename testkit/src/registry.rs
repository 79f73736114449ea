//! A stub of a Schema Registry: what serializers and readers need of its HTTP API, in memory.
#![expect(clippy::disallowed_types, reason = "tests change what the thread that serves answers; no lane")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::{background::Background, tls::Authority};

/// Who may ask.
pub const USER: &str = "reader";
pub const PASSWORD: &str = "s3cret:with colon";

/// A running registry. Ends when dropped.
pub struct Registry {
    url: String,
    state: Arc<Mutex<State>>,
    _server: Background,
}

#[derive(Default)]
struct State {
    /// The schemas, as they were registered; the first has id 1.
    schemas: Vec<Value>,
    /// The ids of each subject, the first is version 1.
    subjects: BTreeMap<String, Vec<usize>>,
    asked: u64,
    is_failing: bool,
    /// The password of [`USER`], where it is no longer [`PASSWORD`].
    password: Option<String>,
    /// What it shows who connects, where it is no longer what it started with.
    tls: Option<TlsAcceptor>,
}

type Answer = (StatusCode, Value);

impl Registry {
    /// Starts a registry with TLS, by a certificate that the authority vouches for, on a free port of 127.0.0.1. It answers
    /// [`USER`] alone.
    pub fn start(authority: &Authority) -> Result<Self> {
        let tls = authority.server("registry")?.acceptor()?;
        let state = Arc::<Mutex<State>>::default();
        let served = Arc::clone(&state);
        let server = Background::start("registry", 0, move |socket| serve(socket, tls.clone(), Arc::clone(&served)))?;
        Ok(Self { url: format!("https://{}", server.address), state, _server: server })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Has it answer every request with status 503, or no longer.
    pub fn set_failing(&self, is_failing: bool) {
        locked(&self.state).is_failing = is_failing;
    }

    /// Has it take another password alone.
    pub fn set_password(&self, password: &str) {
        locked(&self.state).password = Some(password.to_owned());
    }

    /// Has it show another certificate, that this authority vouches for. Each request is a connection of its own.
    pub fn set_authority(&self, authority: &Authority) -> Result<()> {
        let tls = authority.server("registry")?.acceptor()?;
        locked(&self.state).tls = Some(tls);
        Ok(())
    }

    /// Registers a schema under a subject; its id.
    #[must_use]
    pub fn register(&self, subject: &str, schema: &Value) -> u32 {
        u32::try_from(locked(&self.state).register(subject, schema)).unwrap_or(u32::MAX)
    }

    pub fn asked(&self) -> u64 {
        locked(&self.state).asked
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(socket: TcpStream, tls: TlsAcceptor, state: Arc<Mutex<State>>) {
    let tls = locked(&state).tls.clone().unwrap_or(tls);
    // Who does not trust the certificate ends the connection.
    let Ok(stream) = tls.accept(socket).await else { return };
    let service = service_fn(|request| answer(request, Arc::clone(&state)));
    let _ = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let password = locked(&state).password.clone().unwrap_or_else(|| PASSWORD.to_owned());
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{password}")));
    let is_known = head.headers.get(AUTHORIZATION).is_some_and(|given| given.as_bytes() == expected.as_bytes());
    let (status, body) = if is_known {
        let path: Vec<String> = head.uri.path().trim_matches('/').split('/').map(decoded).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        locked(&state).answer(&head.method, &path, &body)
    } else {
        (StatusCode::UNAUTHORIZED, json!({"error_code": 401, "message": "Unauthorized"}))
    };
    let response = Response::builder().status(status).header(CONTENT_TYPE, "application/vnd.schemaregistry.v1+json");
    Ok(response.body(Full::new(body.to_string().into()))?)
}

/// A part of a path without its escapes.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let escaped = (byte == b'%').then(|| [rest.next(), rest.next()].into_iter().flatten().collect());
        let escaped = escaped.and_then(|hex: Vec<u8>| u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl State {
    fn answer(&mut self, method: &Method, path: &[&str], body: &Value) -> Answer {
        if self.is_failing {
            return (StatusCode::SERVICE_UNAVAILABLE, json!({"error_code": 50_301, "message": "failing on purpose"}));
        }
        match (method, path) {
            (&Method::GET, ["schemas", "ids", id]) => {
                self.asked += 1;
                // An id that is no int finds no resource, as in Confluent's registry.
                let Ok(id) = id.parse::<i32>() else { return absent(404) };
                let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
                let schema = index.and_then(|index| self.schemas.get(index));
                schema.map_or_else(|| absent(40_403), |schema| (StatusCode::OK, schema.clone()))
            }
            (&Method::GET, ["subjects", subject, "versions", version]) => {
                let versions = self.subjects.get(*subject).map_or(&[][..], Vec::as_slice);
                let version = if *version == "latest" { versions.len() } else { version.parse().unwrap_or(0) };
                let id = version.checked_sub(1).and_then(|index| versions.get(index));
                id.map_or_else(|| absent(40_402), |id| (StatusCode::OK, self.version(subject, version, *id)))
            }
            (&Method::POST, ["subjects", subject, "versions"]) => {
                let id = self.register(subject, body);
                let version = self.subjects.get(*subject).map_or(0, Vec::len);
                (StatusCode::OK, self.version(subject, version, id))
            }
            (&Method::POST, ["subjects", subject]) => {
                let versions = self.subjects.get(*subject).map_or(&[][..], Vec::as_slice);
                let same = (1..).zip(versions).find(|(_, id)| self.schemas[**id - 1]["schema"] == body["schema"]);
                same.map_or_else(
                    || absent(40_403),
                    |(version, id)| (StatusCode::OK, self.version(subject, version, *id)),
                )
            }
            _ => absent(404),
        }
    }

    fn register(&mut self, subject: &str, schema: &Value) -> usize {
        let known = self.schemas.iter().position(|known| known["schema"] == schema["schema"]);
        let id = known.map_or_else(
            || {
                let mut members = schema.as_object().cloned().unwrap_or_default();
                members.retain(|name, value| {
                    matches!(name.as_str(), "schema" | "schemaType" | "references") && !value.is_null()
                });
                self.schemas.push(members.into());
                self.schemas.len()
            },
            |index| index + 1,
        );
        let versions = self.subjects.entry(subject.to_owned()).or_default();
        if !versions.contains(&id) {
            versions.push(id);
        }
        id
    }

    /// A version of a subject, with its schema.
    fn version(&self, subject: &str, version: usize, id: usize) -> Value {
        let mut found = self.schemas[id - 1].clone();
        for (name, value) in [("subject", json!(subject)), ("version", json!(version)), ("id", json!(id))] {
            found[name] = value;
        }
        found
    }
}

fn absent(error_code: u32) -> Answer {
    (StatusCode::NOT_FOUND, json!({"error_code": error_code, "message": "not found"}))
}
