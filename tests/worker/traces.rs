//! The promise: a collector gets one span per sampled batch, with links to the publishers' spans and children for Redis and the
//! commit; where `tracing.endpoint` is unset it gets nothing; and whatever it does, no intent waits for it.
#![expect(clippy::disallowed_types, reason = "tests see what the collector's threads have received; no lane")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post, serve::Listener};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message as _;
use serde_json::json;
use testkit::{tls::Authority, wait_until};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::support::{
    DEADLINE, POLICY, Scene,
    http::{metric, wait_ready},
    outcome::intent,
    stop,
};

/// What was received: spans, and the resources and `authorization` that came with them.
#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    resources: Vec<Vec<KeyValue>>,
    authorizations: BTreeSet<String>,
}

struct Collector {
    _runtime: Runtime,
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
}

async fn take(State(received): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut received = received.lock().unwrap();
    let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    received.authorizations.extend(authorization);
    for resource_spans in request.resource_spans {
        received.resources.push(resource_spans.resource.unwrap().attributes);
        received.spans.extend(resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
}

struct TlsListener(tokio::net::TcpListener, TlsAcceptor);

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (socket, address) = self.0.accept().await.unwrap();
            // Who does not trust the certificate ends the connection.
            if let Ok(stream) = self.1.accept(socket).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Collector {
    fn start() -> Self {
        Self::start_with(None)
    }

    fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&received));
        match tls {
            Some(tls) => runtime.spawn(async move { axum::serve(TlsListener(listener, tls), router).await }),
            None => runtime.spawn(async move { axum::serve(listener, router).await }),
        };
        Self { _runtime: runtime, address, received }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn attributes(all: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &Value| {
        if let Value::IntValue(number) = value {
            return number.to_string();
        }
        let Value::StringValue(text) = value else { panic!("{value:?}") };
        text.clone()
    };
    let value = |attribute: &KeyValue| text(attribute.value.as_ref().unwrap().value.as_ref().unwrap());
    all.iter().map(|attribute| (attribute.key.as_str(), value(attribute))).collect()
}

fn number(span: &Span, name: &str) -> u64 {
    attributes(&span.attributes)[name].parse().unwrap()
}

/// Publishes so many intents; those that are named have these `traceparent` headers.
fn publish(scene: &Scene, intents: usize, parents: &[(usize, &str)]) {
    let one = |number: usize| {
        let record = intent(&format!("intent {number}"), format!("user-{}", number % 50), json!({}));
        let parent = parents.iter().find(|(of, _)| *of == number);
        parent.iter().fold(record, |record, (_, parent)| record.header("traceparent", parent))
    };
    scene.publish((0..intents).map(one));
}

fn check_children(batch: &Span, spans: &[Span]) {
    let children: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == batch.span_id).collect();
    let names: BTreeSet<&str> = children.iter().map(|child| child.name.as_str()).collect();
    assert_eq!((children.len(), names), (2, ["kafka commit", "redis admit"].into()), "{children:?}");
    for child in children {
        assert_eq!(child.trace_id, batch.trace_id);
        let within = batch.start_time_unix_nano <= child.start_time_unix_nano
            && child.start_time_unix_nano < child.end_time_unix_nano
            && child.end_time_unix_nano <= batch.end_time_unix_nano;
        assert!(within, "{child:?} {batch:?}");
    }
}

#[test]
fn one_span_per_batch_with_links_to_sampled_parents_and_children() {
    const SAMPLED: [(&str, &str); 2] = [
        ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"),
        ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),
    ];
    let [first, second] = SAMPLED.map(|(trace, span)| format!("00-{trace}-{span}-01"));
    let collector = Collector::start();
    let scene = Scene::new("traces", 2, POLICY);
    let mut worker = scene.worker_with(
        "traces",
        &[
            ("WEIR__TRACING__ENDPOINT", &collector.url()),
            ("WEIR__TRACING__ONE_IN", "1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer of-the-test"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ],
    );
    wait_ready(&worker);
    let unsampled = "00-11111111111111111111111111111111-2222222222222222-00";
    publish(&scene, 300, &[(0, &first), (1, &second), (2, &second), (3, unsampled), (4, "no traceparent")]);
    scene.drain(&mut worker);
    wait_until(DEADLINE, "all is counted", || metric(&worker, "weir_decisions_total", "") == Some(300.0));
    let batches = metric(&worker, "weir_batch_intents_count", "").unwrap();
    let approved = metric(&worker, "weir_decisions_total", "verdict=\"approved\"").unwrap();
    stop(&mut worker);

    let received = collector.received.lock().unwrap();
    let roots: Vec<&Span> = received.spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    assert_eq!(roots.len() as f64, batches, "one span per batch");
    assert_eq!(received.spans.len(), 3 * roots.len());
    let total = |name| roots.iter().map(|span| number(span, name)).sum::<u64>();
    assert_eq!(total("messaging.batch.message_count"), 300);
    assert_eq!(total("weir.approved") as f64, approved);
    assert_eq!((total("weir.approved") + total("weir.suppressed"), total("weir.deferred")), (300, 0));
    let mut linked = BTreeSet::new();
    for span in roots {
        assert_eq!(span.kind, i32::from(SpanKind::Consumer));
        assert_eq!(span.name, format!("process {}", scene.topic("intents")));
        let found = attributes(&span.attributes);
        assert_eq!((found["weir.task"].as_str(), found["weir.lane"].parse::<u8>().is_ok()), ("intents", true));
        assert!((1..=2).contains(&number(span, "weir.partitions")));
        check_children(span, &received.spans);
        let links: Vec<_> =
            span.links.iter().map(|link| (hex::encode(&link.trace_id), hex::encode(&link.span_id))).collect();
        let distinct: BTreeSet<_> = links.iter().cloned().collect();
        assert_eq!(distinct.len(), links.len(), "a parent is linked once");
        linked.extend(distinct);
    }
    assert_eq!(linked, SAMPLED.map(|(trace, span)| (trace.to_owned(), span.to_owned())).into());
    let resource = attributes(&received.resources[0]);
    assert_eq!((resource["service.name"].as_str(), resource["deployment.environment.name"].as_str()), ("weir", "test"));
    assert_eq!(received.authorizations, ["Bearer of-the-test".to_owned()].into());
}

#[test]
fn a_collector_with_tls_is_trusted_by_the_systems_authorities_and_no_other_is() {
    let (known, unknown) = (Authority::new().unwrap(), Authority::new().unwrap());
    let collector = Collector::start_with(Some(known.server("collector").unwrap().acceptor().unwrap()));
    let url = format!("https://{}", collector.address);
    for (authority, is_known) in [(&unknown, false), (&known, true)] {
        let scene = Scene::new("traces-tls", 1, POLICY);
        // What names the system's authorities.
        let authorities = authority.ca_file().display().to_string();
        let env =
            [("WEIR__TRACING__ENDPOINT", &*url), ("WEIR__TRACING__ONE_IN", "1"), ("SSL_CERT_FILE", &*authorities)];
        let mut worker = scene.worker_with("tls", &env);
        publish(&scene, 50, &[]);
        scene.drain(&mut worker);
        let log = stop(&mut worker);
        assert_eq!(collector.received.lock().unwrap().spans.is_empty(), !is_known, "{log}");
        assert_eq!(log.contains("ExportError") || log.contains("may not have been sent"), !is_known, "{log}");
    }
}

#[test]
fn nothing_is_sent_without_an_endpoint_or_of_batches_that_are_not_sampled() {
    let collector = Collector::start();
    let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())];
    let sampled_away = [("WEIR__TRACING__ENDPOINT", collector.url()), ("WEIR__TRACING__ONE_IN", "1000000".to_owned())];
    for (name, env) in [("traces-off", &off[..]), ("traces-few", &sampled_away)] {
        let scene = Scene::new(name, 1, POLICY);
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut worker = scene.worker_with(name, &env);
        publish(&scene, 50, &[(0, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]);
        scene.drain(&mut worker);
        stop(&mut worker);
        assert!(collector.received.lock().unwrap().spans.is_empty(), "{name}");
    }
}

/// Decides and ends with a collector that never answers: how long the end took.
fn end_with_a_silent_collector(name: &str) -> Duration {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let scene = Scene::new(name, 1, POLICY);
    let env = [
        ("WEIR__TRACING__ENDPOINT", url.as_str()),
        ("WEIR__TRACING__ONE_IN", "1"),
        ("WEIR__WORKER__DRAIN", "5s"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    let mut worker = scene.worker_with("silent", &env);
    for _ in 0..5 {
        publish(&scene, 50, &[]);
        scene.drain(&mut worker);
    }
    let asked = Instant::now();
    let log = stop(&mut worker);
    let took = asked.elapsed();
    assert!(log.contains("the last spans may not have been sent"), "{log}");
    took
}

#[test]
fn a_collector_that_never_answers_holds_nothing_up() {
    end_with_a_silent_collector("traces-silent");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn a_collector_that_never_answers_does_not_hold_up_the_end_beyond_the_drain() {
    // `worker.drain` is 5 s.
    let took = end_with_a_silent_collector("traces-soon");
    assert!(took < Duration::from_secs(6), "{took:?}");
}
