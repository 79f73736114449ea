//! What handlers take of a request's path and query. Where that is wrong, a problem document is the answer.

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::Deserialize;

use super::problem::Problem;

/// What one of axum's extractors finds.
pub(super) struct Checked<E>(pub(super) E);

pub(super) type InPath<T> = Checked<Path<T>>;
pub(super) type NoQuery = Checked<Query<NoParameters>>;

/// The parameters of what has none: one that is given was meant for something else, and is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

impl<S: Send + Sync, E: FromRequestParts<S>> FromRequestParts<S> for Checked<E>
where
    Problem: From<E::Rejection>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(E::from_request_parts(parts, state).await?))
    }
}
