//! A policy as a source that is read again and again.

use std::sync::Arc;

use weir_core::{
    basis::document::{Format, MAX_DOCUMENT_BYTES, Problems},
    policy::{
        Policy,
        file::{PolicyBounds, parse_policy},
    },
};
use weir_worker::refresh::RefreshSource;

use crate::object_store::{ObjectError, StoredObject, Version};

#[derive(Debug, thiserror::Error)]
pub enum PolicySourceError {
    #[error("the policy {0} is neither a .toml nor a .json file: its ending says how it is read")]
    Ending(String),
    #[error("the policy cannot be read: {0}")]
    Object(#[from] ObjectError),
    #[error("the policy {0} is not UTF-8: save it as UTF-8")]
    NotUtf8(String),
    #[error("{0}")]
    Invalid(#[from] Problems),
}

pub struct PolicySource {
    object: StoredObject,
    name: String,
    format: Format,
    bounds: PolicyBounds,
    last: Option<Version>,
}

impl PolicySource {
    /// The policy in this object. `bounds` is what it must keep to.
    pub fn new(object: StoredObject, bounds: impl Into<PolicyBounds>) -> Result<Self, PolicySourceError> {
        let name = object.location().to_string();
        let format = Format::of_name(&name).ok_or_else(|| PolicySourceError::Ending(name.clone()))?;
        Ok(Self { object, name, format, bounds: bounds.into(), last: None })
    }
}

impl RefreshSource for PolicySource {
    type Value = Policy;
    type Error = PolicySourceError;

    const NAME: &'static str = "policy";

    fn version(value: &Policy) -> &str {
        &value.version
    }

    fn is_temporary(error: &PolicySourceError) -> bool {
        match error {
            PolicySourceError::Object(error) => error.problem.is_temporary(),
            PolicySourceError::Ending(_) | PolicySourceError::NotUtf8(_) | PolicySourceError::Invalid(_) => false,
        }
    }

    async fn load(&mut self) -> Result<Option<Arc<Policy>>, PolicySourceError> {
        let limit_bytes = MAX_DOCUMENT_BYTES as u64;
        let read = self.object.get_if_changed(self.last.as_ref(), limit_bytes).await?;
        let Some((bytes, version)) = read else { return Ok(None) };
        let text = std::str::from_utf8(&bytes).map_err(|_| PolicySourceError::NotUtf8(self.name.clone()))?;
        let policy = parse_policy(&self.name, text, self.format, self.bounds)?;
        self.last = version;
        Ok(Some(Arc::new(policy)))
    }
}
