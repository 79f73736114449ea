//! Rights as IAM gives them: a policy document for each access key.

use std::collections::HashMap;

use anyhow::{Context, Result};
use s3s::{
    S3Result,
    access::{S3Access, S3AccessContext},
    s3_error,
};
use serde_json::Value;

/// What each access key is allowed. A key without a policy is the tests' own and may do everything.
#[derive(Debug, Default)]
pub(super) struct Rights(HashMap<String, Vec<Statement>>);

/// Actions that are allowed on resources; either may end in `*`.
#[derive(Debug)]
struct Statement {
    actions: Vec<String>,
    resources: Vec<String>,
}

impl Rights {
    /// Gives a key the rights of a policy document: `Allow` statements with actions and resources, nothing else.
    pub(super) fn allow(&mut self, access_key: &str, document: &str) -> Result<()> {
        let document: Value = serde_json::from_str(document).context("the policy is not JSON")?;
        let statements = document["Statement"].as_array().context("the policy has no statements")?;
        // One may stand alone, or several in a list.
        let texts = |value: &Value| {
            let several = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            several.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let read = statements.iter().map(|statement| {
            anyhow::ensure!(statement["Effect"] == "Allow", "a statement that allows nothing is not known here");
            Ok(Statement { actions: texts(&statement["Action"]), resources: texts(&statement["Resource"]) })
        });
        self.0.insert(access_key.to_owned(), read.collect::<Result<_>>()?);
        Ok(())
    }
}

#[async_trait::async_trait]
impl S3Access for Rights {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = context.credentials() else {
            return Err(s3_error!(AccessDenied, "Signature is required"));
        };
        let Some(statements) = self.0.get(&credentials.access_key) else { return Ok(()) };
        // As AWS names the right that a request takes.
        let action = match context.s3_op().name() {
            "GetObject" | "HeadObject" => "s3:GetObject",
            "PutObject" | "CreateMultipartUpload" | "UploadPart" | "CompleteMultipartUpload" => "s3:PutObject",
            "AbortMultipartUpload" => "s3:AbortMultipartUpload",
            "DeleteObject" => "s3:DeleteObject",
            _ => "s3:ListBucket",
        };
        let resource = match context.s3_path().as_object() {
            Some((bucket, key)) => format!("arn:aws:s3:::{bucket}/{key}"),
            None => "arn:aws:s3:::".to_owned(),
        };
        let allows = |statement: &Statement| {
            statement.actions.iter().any(|pattern| matches(pattern, action))
                && statement.resources.iter().any(|pattern| matches(pattern, &resource))
        };
        if statements.iter().any(allows) { Ok(()) } else { Err(s3_error!(AccessDenied, "Access Denied")) }
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}
