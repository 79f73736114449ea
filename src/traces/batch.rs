//! The span of a batch, with its links and children. Names of attributes are OpenTelemetry's, where it has one.

use std::{ops::ControlFlow, time::SystemTime};

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{SdkTracer, Span},
};
use weir_kafka::client::KafkaOptions;
use weir_worker::{
    lane::Task,
    trace::{BatchReport, BatchTrace, Interval, Tracer},
};

/// Links of a span, at most: the SDK keeps no more by default.
const MAX_LINKS: usize = 128;

pub(super) struct LaneTracer {
    tracer: SdkTracer,
    name: String,
    attributes: Vec<KeyValue>,
}

impl LaneTracer {
    pub(super) fn new(tracer: SdkTracer, kafka: &KafkaOptions, task: Task, number: usize) -> Self {
        let task = match task {
            Task::Intents => "intents",
            Task::Due(_) => "due",
            Task::Waiting(_) => "waiting",
            Task::Retry(_) => "retry",
            Task::Move(_) => "move",
        };
        let attributes = vec![
            KeyValue::new("messaging.system", "kafka"),
            KeyValue::new("messaging.operation.type", "process"),
            KeyValue::new("messaging.destination.name", kafka.intents.clone()),
            KeyValue::new("messaging.consumer.group.name", kafka.group.clone()),
            KeyValue::new("weir.task", task),
            KeyValue::new("weir.lane", whole(number)),
        ];
        Self { tracer, name: format!("process {}", kafka.intents), attributes }
    }
}

impl Tracer for LaneTracer {
    #[expect(clippy::disallowed_methods, reason = "when a span began; nothing is decided by it")]
    fn begin(&self) -> Option<Box<dyn BatchTrace>> {
        let began = SystemTime::now();
        let builder = SpanBuilder::from_name(self.name.clone())
            .with_kind(SpanKind::Consumer)
            .with_start_time(began)
            .with_attributes(self.attributes.clone());
        let span = self.tracer.build_with_context(builder, &Context::new());
        let open = OpenSpan { tracer: self.tracer.clone(), began, span: Some(span), links: Vec::new() };
        // Dropped at once where it is not recorded.
        open.is_recording().then(|| Box::new(open) as Box<dyn BatchTrace>)
    }
}

/// The span of a batch that is being decided or committed.
struct OpenSpan {
    tracer: SdkTracer,
    began: SystemTime,
    /// `None` once it has ended.
    span: Option<Span>,
    links: Vec<SpanContext>,
}

impl OpenSpan {
    fn is_recording(&self) -> bool {
        self.span.as_ref().is_some_and(Span::is_recording)
    }

    /// A child with these times.
    fn child(&self, parent: &Context, name: &'static str, interval: Interval, attribute: KeyValue) -> Span {
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Client)
            .with_start_time(self.began + interval.from)
            .with_attributes([attribute]);
        self.tracer.build_with_context(builder, parent)
    }
}

impl BatchTrace for OpenSpan {
    fn link(&mut self, traceparent: &[u8]) -> ControlFlow<()> {
        let Some(parent) = parent(traceparent).filter(SpanContext::is_sampled) else {
            return ControlFlow::Continue(());
        };
        // A publisher may hand on one span in many records.
        if !self.links.contains(&parent) {
            if let Some(span) = &mut self.span {
                span.add_link(parent.clone(), Vec::new());
            }
            self.links.push(parent);
        }
        if self.links.len() < MAX_LINKS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn end(mut self: Box<Self>, report: &BatchReport<'_>) {
        let Some(mut span) = self.span.take() else { return };
        let parent = Context::new().with_remote_span_context(span.span_context().clone());
        if let Some(store) = report.store {
            let mut child = self.child(&parent, "redis admit", store, KeyValue::new("db.system.name", "redis"));
            child.end_with_timestamp(self.began + store.to);
        }
        let mut commit = self.child(&parent, "kafka commit", report.commit, KeyValue::new("messaging.system", "kafka"));
        if let Some(error) = report.error {
            for failed in [&mut commit, &mut span] {
                failed.set_status(Status::error(error.to_owned()));
            }
        }
        commit.end_with_timestamp(self.began + report.commit.to);
        span.set_attributes(counts(report));
        span.end_with_timestamp(self.began + report.commit.to);
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.set_status(Status::error("the lane gave the batch up; it is decided again"));
            span.end();
        }
    }
}

fn counts(report: &BatchReport<'_>) -> [KeyValue; 6] {
    let decided = |of: &[&str]| -> u64 {
        let decisions = report.tally.decisions.iter();
        decisions.filter(|((verdict, _), _)| of.contains(verdict)).map(|(_, count)| count).sum()
    };
    let deferred: u64 = report.tally.deferred.iter().map(|(_, count)| count).sum();
    let dead_letters: u64 = report.tally.dead_letters.iter().map(|(_, count)| count).sum();
    [
        KeyValue::new("messaging.batch.message_count", whole(report.records)),
        KeyValue::new("weir.partitions", whole(report.partitions)),
        KeyValue::new("weir.approved", whole(decided(&["approved", "shadow-suppressed"]))),
        KeyValue::new("weir.suppressed", whole(decided(&["suppressed"]))),
        KeyValue::new("weir.deferred", whole(deferred)),
        KeyValue::new("weir.dead_letters", whole(dead_letters)),
    ]
}

fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// The span that a header names; `None` where it is not a `traceparent`.
fn parent(header: &[u8]) -> Option<SpanContext> {
    let text = std::str::from_utf8(header).ok()?;
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Traceparent(text));
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

struct Traceparent<'h>(&'h str);

impl Extractor for Traceparent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}
