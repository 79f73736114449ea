//! The OpenAPI document: made from the routes, and from the schemas that records have.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use utoipa::{
    Modify, OpenApi, PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::Object,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::{Api, problem::Always};
use crate::query::EntryPoint;

const INTENT: &str = include_str!("../../schemas/intent.schema.json");

/// What is not said at a route.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "weir",
        description = "Frequency caps for marketing messages: membership of segments, users' histories and caps, \
                       and decisions on single intents.\n\nErrors are problem documents (RFC 9457).",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "users", description = "A user's history and caps"),
        (name = "segments", description = "Membership of segments"),
        (name = "decisions", description = "Decisions on single intents"),
        (name = "budgets", description = "How budgets stand, over all users and instances"),
        (name = "pressure", description = "How many users are active, over all instances"),
        (name = "services", description = "Services that ask before they work: registrations and admissions"),
        (name = "routes", description = "How fast routes are, and what waits for them"),
        (name = "health", description = "Health and metrics"),
    ),
    modifiers(&BearerToken),
)]
pub(super) struct Base;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some("The token of `http.token`. Wanted once that is set".to_owned());
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Stands for the schema of an intent, which is put in its place.
pub(super) struct Intent;

impl PartialSchema for Intent {
    fn schema() -> RefOr<Schema> {
        Object::new().into()
    }
}

impl ToSchema for Intent {}

/// A CloudEvent with an intent in it. Where the data has no `id`, `user_id` or `created_at`, the event's `id`,
/// `subject` and `time` are taken.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the OpenAPI document")]
pub(super) struct CloudEvent {
    #[schema(example = "1.0")]
    specversion: String,
    id: String,
    source: String,
    #[schema(rename = "type")]
    kind: String,
    subject: Option<String>,
    #[schema(format = DateTime)]
    time: Option<String>,
    #[schema(value_type = Option<Object>)]
    data: Option<()>,
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "health", operation_id = "openapi", responses(
    (status = 200, description = "OpenAPI 3.1", body = inline(Object), content_type = "application/json"),
    Always,
))]
pub(super) async fn openapi(State(api): State<Arc<Api>>) -> Response {
    let document = api.document.get().cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

pub(super) fn document(routes: &utoipa::openapi::OpenApi) -> Bytes {
    let mut document = serde_json::to_value(routes).unwrap_or_default();
    put(&mut document, "Intent", serde_json::from_str(INTENT).expect("the schema of an intent is JSON"));
    document["components"]["schemas"]["Decision"]["examples"] = json!([example_decision()]);
    document["components"]["schemas"]["Intent"]["examples"] = json!([example_intent()]);
    Bytes::from(serde_json::to_vec_pretty(&document).unwrap_or_default())
}

fn example_intent() -> Value {
    json!({"id": "spring-42-1", "user_id": 42, "channel": "push", "category": "promo", "campaign": "spring"})
}

fn example_decision() -> Value {
    json!({
        "schema": "weir.decision/2", "verdict": "suppressed", "reason": "cap",
        "intent_id": "spring-42-1", "user_id": "42", "segment": "new",
        "cap": {"name": "daily", "limit": 2, "window": "24h", "used": 2},
        "eligible_at": "2026-11-21T08:00:00.000Z", "decided_at": "2026-11-20T09:00:00.000Z",
        "policy_version": "2026-11-20.1", "segments_version": "2026-11-20T00:00:00Z",
        "origin": {"topic": &*EntryPoint::Http.topic().name, "partition": 0, "offset": 0}, "intent": example_intent(),
    })
}

/// Puts a schema and the definitions in it among the document's.
fn put(document: &mut Value, name: &str, mut schema: Value) {
    let definitions = schema.as_object_mut().map(|members| {
        // They would move what references are relative to.
        members.remove("$id");
        members.remove("$schema");
        members.remove("$defs")
    });
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    if let Some(Some(Value::Object(definitions))) = definitions {
        for (name, mut definition) in definitions {
            rebase(&mut definition);
            schemas.insert(name, definition);
        }
    }
    rebase(&mut schema);
    schemas.insert(name.to_owned(), schema);
}

fn rebase(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                if let Value::String(to) = value
                    && key == "$ref"
                {
                    *to = to.replace("#/$defs/", "#/components/schemas/");
                } else {
                    rebase(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rebase),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
