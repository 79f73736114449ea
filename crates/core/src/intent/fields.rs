//! Where an intent's fields are found in a value: a JSON pointer (RFC 6901) for each.

pub mod schemas;
pub(crate) mod trie;

use std::sync::Arc;

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use self::{
    schemas::Schemas,
    trie::{FieldSlot, Trie},
};
use crate::{basis::words, intent::MAX_DEPTH};

words! {
    /// A field of an intent, in the order in which they are judged: [`crate::intent::Intent`] says what each is. Its name is that in
    /// configurations, and where nothing is configured in values too.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum IntentField {
        Id = "id",
        UserId = "user_id",
        Channel = "channel",
        Category = "category",
        Campaign = "campaign",
        Cost = "cost",
        CreatedAt = "created_at",
        ExpiresAt = "expires_at",
        NotBefore = "not_before",
        Timezone = "timezone",
    }
}

impl IntentField {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }
}

/// The most steps in a pointer: deeper than this there is nothing in a value, a CloudEvent's `data` included.
pub const MAX_POINTER_STEPS: usize = MAX_DEPTH - 1;

/// Why a mapping of fields was refused. To be shown behind the setting's place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldMapError(String);

/// How fields are called.
pub(crate) type NameOf = fn(IntentField) -> &'static str;

/// A place that no value has anything at, for fields that are not read.
const NOWHERE: &str = "/\u{0}";

/// Where each field is, made ready for reading. [`FieldMap::default`] has them by their names at the top.
#[derive(Debug, Clone)]
pub struct FieldMap {
    pointers: Vec<String>,
    pub(crate) name: NameOf,
    pub(crate) plain: Trie,
    pub(crate) event: Trie,
    /// How values are read; `None`: as JSON without a frame.
    pub(crate) schemas: Option<Arc<dyn Schemas>>,
}

impl Default for FieldMap {
    fn default() -> Self {
        Self::new([]).expect("the names of fields are pointers to different places")
    }
}

impl FieldMap {
    /// The map with these fields elsewhere, the others by their names at the top. Two fields may be one place. Fails for a mapping that is
    /// not a pointer, or that lies inside another field's place.
    pub fn new<'p>(mapped: impl IntoIterator<Item = (IntentField, &'p str)>) -> Result<Self, FieldMapError> {
        let by_names = IntentField::ALL.map(|field| format!("/{}", field.as_str()));
        Self::of(by_names.into(), mapped, IntentField::as_str)
    }

    /// The map of a record that has these fields alone, and of how messages call them. No other field is read. Fails as [`FieldMap::new`]
    /// does.
    pub fn only<'p>(
        mapped: impl IntoIterator<Item = (IntentField, &'p str)>,
        name: NameOf,
    ) -> Result<Self, FieldMapError> {
        Self::of(vec![NOWHERE.to_owned(); IntentField::ALL.len()], mapped, name)
    }

    fn of<'p>(
        mut pointers: Vec<String>,
        mapped: impl IntoIterator<Item = (IntentField, &'p str)>,
        name: NameOf,
    ) -> Result<Self, FieldMapError> {
        for (field, pointer) in mapped {
            pointers[field as usize] = pointer.to_owned();
        }
        let mut steps = Vec::with_capacity(pointers.len());
        for (field, pointer) in IntentField::ALL.into_iter().zip(&pointers) {
            let invalid =
                |problem| FieldMapError(format!("{} = {pointer:?} is not a JSON pointer: {problem}", name(field)));
            steps.push((field, steps_of(pointer).map_err(invalid)?));
        }
        for (field, inner) in &steps {
            let around = steps.iter().find(|(_, outer)| outer.len() < inner.len() && inner.starts_with(outer));
            if let Some((other, _)) = around {
                let shown = |field: IntentField| format!("{} = {:?}", name(field), pointers[field as usize]);
                let (inner, outer) = (shown(*field), shown(*other));
                let message = format!("{inner} lies inside {outer}, which is no object: map them to different places");
                return Err(FieldMapError(message));
            }
        }
        let slots = || steps.iter().map(|(field, steps)| (FieldSlot::Field(*field), steps.as_slice()));
        let (plain, event) = (Trie::new(slots()), Trie::of_event(slots()));
        Ok(Self { pointers, name, plain, event, schemas: None })
    }

    /// The same for values with the frame of a Schema Registry.
    #[must_use]
    pub fn framed(self, schemas: Arc<dyn Schemas>) -> Self {
        Self { schemas: Some(schemas), ..self }
    }

    /// The same for values in JSON without a frame.
    #[must_use]
    pub fn as_json(&self) -> Self {
        Self { schemas: None, ..self.clone() }
    }

    /// What reads values with the frame of a Schema Registry; `None` where they are JSON without one.
    pub fn schemas(&self) -> Option<&Arc<dyn Schemas>> {
        self.schemas.as_ref()
    }

    /// The steps of a field's pointer, unescaped.
    pub fn steps(&self, field: IntentField) -> Vec<String> {
        steps_of(self.pointer(field)).expect("the map's pointers were checked when it was made")
    }

    /// A number that stands for where the fields are: another mapping has another, as good as surely (64 bits).
    pub fn digest(&self) -> u64 {
        xxh3_64(self.pointers.join("\0").as_bytes())
    }

    /// The pointer of a field; in a structured CloudEvent it starts at `data`.
    pub fn pointer(&self, field: IntentField) -> &str {
        &self.pointers[field as usize]
    }
}

/// The steps of a pointer, unescaped; or what is wrong with it.
fn steps_of(pointer: &str) -> Result<Vec<String>, &'static str> {
    let Some(path) = pointer.strip_prefix('/') else {
        return Err(if pointer.is_empty() { "the whole value cannot be a field" } else { "it has to begin with /" });
    };
    let steps: Vec<String> = path.split('/').map(unescaped).collect::<Result<_, _>>()?;
    if steps.len() > MAX_POINTER_STEPS { Err("it has more steps than a value may have levels") } else { Ok(steps) }
}

/// One step of a pointer: `~0` stands for `~` and `~1` for `/`.
fn unescaped(step: &str) -> Result<String, &'static str> {
    if !step.split('~').skip(1).all(|behind| behind.starts_with(['0', '1'])) {
        return Err("behind ~ there has to be 0 (for ~) or 1 (for /)");
    }
    Ok(step.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_name() {
        for (at, field) in IntentField::ALL.into_iter().enumerate() {
            assert_eq!(field as usize, at);
            assert_eq!(IntentField::named(field.as_str()), Some(field));
            assert_eq!(serde_json::from_value::<IntentField>(field.as_str().into()).unwrap(), field);
        }
        assert_eq!(IntentField::named("payload"), None);
    }

    #[test]
    fn a_pointer_is_split_and_unescaped() {
        let deep = "/a".repeat(MAX_POINTER_STEPS);
        let cases: [(&str, &[&str]); 7] = [
            ("/id", &["id"]),
            ("/recipient/id", &["recipient", "id"]),
            ("/a~1b/m~0n/~01", &["a/b", "m~n", "~1"]),
            ("/", &[""]),
            ("//", &["", ""]),
            ("/0/é", &["0", "é"]),
            (&deep, &["a"; MAX_POINTER_STEPS]),
        ];
        for (pointer, steps) in cases {
            assert_eq!(steps_of(pointer).unwrap(), steps, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused_with_the_field_and_the_reason() {
        let deep = "/a".repeat(MAX_POINTER_STEPS + 1);
        let cases = [
            ("", "the whole value"),
            ("id", "begin with /"),
            ("$.id", "begin with /"),
            ("/a~", "behind ~"),
            ("/a~2", "behind ~"),
            ("/a~é", "behind ~"),
            (&deep, "more steps"),
        ];
        for (pointer, problem) in cases {
            let refused = FieldMap::new([(IntentField::UserId, pointer)]).unwrap_err().to_string();
            assert!(refused.starts_with("user_id = ") && refused.contains(problem), "{pointer}: {refused}");
        }
    }

    #[test]
    fn a_field_inside_another_field_is_refused() {
        let refused = FieldMap::new([(IntentField::UserId, "/id/user")]).unwrap_err().to_string();
        let expected =
            r#"user_id = "/id/user" lies inside id = "/id", which is no object: map them to different places"#;
        assert_eq!(refused, expected);
        assert!(FieldMap::new([(IntentField::UserId, "/id")]).is_ok(), "two fields may be one place");
        assert!(FieldMap::new([(IntentField::UserId, "/idx/user")]).is_ok(), "a longer name is another place");
    }
}
