//! Traces to an OpenTelemetry collector, by OTLP over HTTP: one span per batch that is sampled.
//!
//! The SDK reads its own variables (`OTEL_*`): the headers of requests, the queue of spans, the resource's attributes, a
//! sampler. Nothing is traced, and no collector is asked, unless `tracing.endpoint` is set.

mod batch;
mod client;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{Sampler, SdkTracerProvider},
};
use tokio::task::spawn_blocking;
use weir_kafka::client::KafkaOptions;
use weir_worker::{lane::Task, trace::Tracer};

use self::{batch::LaneTracer, client::OnRuntime};
use crate::config::TracingSettings;

/// What the SDK calls its variable for the service's name, and for a sampler.
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";

/// How long the last spans may take at the end: a collector that does not answer must not use up `worker.drain`.
const LONGEST_FLUSH: Duration = Duration::from_secs(5);

/// Where the spans of all lanes go; clones are the same.
#[derive(Clone)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Prepares them; `None` where the settings have no endpoint. Spans are sent in the background, from a runtime's thread.
    pub fn start(settings: &TracingSettings, instance: &str) -> anyhow::Result<Option<Self>> {
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(&url)
            .with_http_client(OnRuntime::new(&url)?)
            .build()
            .with_context(|| format!("tracing.endpoint {endpoint} cannot be used"))?;
        let mut provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource(instance));
        if std::env::var_os(SAMPLER).is_none() {
            let ratio = Sampler::TraceIdRatioBased(1.0 / f64::from(settings.one_in.get()));
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(ratio)));
        }
        Ok(Some(Self(provider.build())))
    }

    pub fn of_lane(&self, kafka: &KafkaOptions, task: Task, number: usize) -> Arc<dyn Tracer> {
        Arc::new(LaneTracer::new(self.0.tracer("weir"), kafka, task, number))
    }

    /// Sends what is left, for at most so long, and no longer than 5 s.
    pub async fn close(self, within: Duration) {
        let closed = spawn_blocking(move || self.0.shutdown_with_timeout(within.min(LONGEST_FLUSH))).await;
        match closed.map_err(anyhow::Error::new).and_then(|closed| Ok(closed?)) {
            Ok(()) => {}
            Err(error) => tracing::warn!("the last spans may not have been sent: {error}"),
        }
    }
}

/// Who sends the spans; the variables of the SDK go before it.
fn resource(instance: &str) -> Resource {
    let attributes = [
        KeyValue::new("service.name", "weir"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ];
    let resource = Resource::builder_empty()
        .with_attributes(attributes)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match std::env::var(SERVICE_NAME) {
        Ok(name) => resource.with_service_name(name).build(),
        Err(_) => resource.build(),
    }
}
