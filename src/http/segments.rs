//! Membership of segments: `/v1/segments`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_core::segment::SegmentSet;

use super::{
    Api,
    extract::{Checked, InPath, NoQuery},
    problem::{Always, Guarded, Problem},
    users::check_user_id,
};

const DEFAULT_LIMIT: usize = 1_000;
/// Members of a page, at most: some 200 kB, and less than a millisecond of work.
const MAX_LIMIT: usize = 10_000;

/// The segments in force.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"version": "2026-11-20T00:00:00Z", "user_id": "u32",
    "segments": [{"name": "new", "cardinality": 123_456}]}))]
pub(super) struct Segments {
    /// The set's version.
    version: String,
    /// What the set knows users by: `u32`, `u64` or `hash64`.
    user_id: &'static str,
    /// In order of precedence: the first one that a user is in counts.
    segments: Vec<SegmentSize>,
}

/// A segment.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SegmentSize {
    /// Its name.
    name: String,
    /// How many users are in it.
    cardinality: u64,
}

/// Whether a user is in a segment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"user_id": "42", "member": true}))]
pub(super) struct Member {
    /// The user, as asked for.
    user_id: String,
    /// Whether the user is in the segment, whatever other ones it is in.
    member: bool,
}

/// Some members of a segment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"members": ["7", "42"], "next": "42"}))]
pub(super) struct Members {
    /// In ascending order of the number. A set of `hash64` has the hashes of its users' ids.
    members: Vec<String>,
    /// What to give as `after` for the next page; null for the last one.
    #[schema(required = true)]
    next: Option<String>,
}

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The `next` of the page before: members above it are given.
    #[param(value_type = Option<String>, pattern = "^[0-9]{1,20}$")]
    after: Option<String>,
    /// How many, at most.
    #[param(value_type = Option<usize>, minimum = 1, maximum = 10_000, default = 1_000)]
    limit: Option<String>,
}

/// The segments in force, with their sizes
#[utoipa::path(get, path = "/v1/segments", tag = "segments", operation_id = "segments", responses(
    (status = 200, description = "All of them", body = Segments),
    Always,
))]
pub(super) async fn list(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<Segments>, Problem> {
    let set = api.sources.segments.current();
    let size = |segment: &weir_core::segment::Segment| SegmentSize {
        name: segment.name.clone(),
        cardinality: segment.members.len(),
    };
    Ok(Json(Segments {
        version: set.version().to_owned(),
        user_id: set.user_id().as_str(),
        segments: set.segments().iter().map(size).collect(),
    }))
}

/// Whether a user is in a segment
#[utoipa::path(get, path = "/v1/segments/{name}/members/{user}", tag = "segments", operation_id = "member",
    params(
        ("name" = String, Path, description = "The segment", example = "new"),
        ("user" = String, Path, description = "The user id", min_length = 1, max_length = 256, example = "42"),
    ),
    security(("token" = []), ()),
    responses((status = 200, description = "Whether it is", body = Member), Guarded, Always),
)]
pub(super) async fn member(
    State(api): State<Arc<Api>>,
    Checked(Path((name, user_id))): InPath<(String, String)>,
    _: NoQuery,
) -> Result<Json<Member>, Problem> {
    check_user_id(&user_id)?;
    let set = api.sources.segments.current();
    let segment = position(&set, &name)?;
    Ok(Json(Member { member: set.contains(segment, &user_id), user_id }))
}

/// The members of a segment, page by page
///
/// Begin without `after`, and give each page's `next` as the next one's `after`, until `next` is null. Where the set
/// changes on the way, each page is of the set in force when it is asked for.
#[utoipa::path(get, path = "/v1/segments/{name}/members", tag = "segments", operation_id = "members",
    params(("name" = String, Path, description = "The segment", example = "new"), Page),
    security(("token" = []), ()),
    responses((status = 200, description = "A page", body = Members), Guarded, Always),
)]
pub(super) async fn members(
    State(api): State<Arc<Api>>,
    Checked(Path(name)): InPath<String>,
    Checked(Query(page)): Checked<Query<Page>>,
) -> Result<Json<Members>, Problem> {
    let (after, limit) = page.checked()?;
    let set = api.sources.segments.current();
    let page = set.segments()[position(&set, &name)?].members.page(after, limit);
    let members = page.members.iter().map(u64::to_string).collect();
    Ok(Json(Members { members, next: page.next.map(|next| next.to_string()) }))
}

impl Page {
    fn checked(&self) -> Result<(Option<u64>, usize), Problem> {
        let after = match &self.after {
            None => None,
            Some(text) => Some(number(text).ok_or_else(|| {
                Problem::bad_request("after", "after must be the next of another page: a whole number below 2^64")
            })?),
        };
        let limit = match &self.limit {
            None => DEFAULT_LIMIT,
            Some(text) => number(text)
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| {
                    Problem::bad_request("limit", format!("limit must be a whole number from 1 to {MAX_LIMIT}"))
                })?,
        };
        Ok((after, limit))
    }
}

/// Digits and nothing else (the standard library takes a plus sign, too).
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn position(set: &SegmentSet, name: &str) -> Result<usize, Problem> {
    set.position(name).ok_or_else(|| {
        let detail = format!("the set {} has no segment of this name; GET /v1/segments lists them", set.version());
        Problem::not_found("no_such_segment", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_cannot_be_is_refused_and_says_which_parameter() {
        let page = |after: Option<&str>, limit: Option<&str>| {
            let page = Page { after: after.map(str::to_owned), limit: limit.map(str::to_owned) };
            page.checked().map_err(|problem| format!("{problem:?}"))
        };
        assert_eq!(page(None, None), Ok((None, DEFAULT_LIMIT)));
        assert_eq!(page(Some("18446744073709551615"), Some("10000")), Ok((Some(u64::MAX), 10_000)));
        for wrong in ["", "-1", "+1", "1.0", " 1", "x", "18446744073709551616", "٣"] {
            assert!(page(Some(wrong), None).unwrap_err().contains("after must be"), "{wrong}");
            assert!(page(None, Some(wrong)).unwrap_err().contains("limit must be"), "{wrong}");
        }
        for wrong in ["0", "10001"] {
            assert!(page(None, Some(wrong)).unwrap_err().contains("limit must be"), "{wrong}");
        }
    }
}
