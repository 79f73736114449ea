//! How intents are written, and where their schemas are.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use weir_core::basis::document::{Node, value::Parsed};
use weir_schemas::Format;

use super::{
    Secret, SecretFile,
    forms::{AUTHORITIES, Check, Form, SECRET, ValueCheck, between, whole_in, word},
    keys::{Otherwise, Setting, section},
    layers::Layers,
    urls,
    values::{self, EntriesOf, MINUTE, SECOND},
};
use crate::authorities::Authorities;

const INTENT_FORMATS: &[(&str, Option<Format>)] = &[
    ("json", None),
    ("json_schema", Some(Format::JsonSchema)),
    ("avro", Some(Format::Avro)),
    ("protobuf", Some(Format::Protobuf)),
];

section! {
    /// `[intent]` without its fields.
    IntentFormat "intent" {
        /// How intents are written: `json`, or with the frame of a Schema Registry as `json_schema`, `avro` or `protobuf`.
        format: Option<Format> = is "json", word(INTENT_FORMATS);
    }
}

section! {
    /// `[schemas]`: those of intents in Avro or Protobuf.
    SchemasSettings "schemas" {
        /// URL of a Schema Registry.
        registry: Option<String> = unset "none", REGISTRY_URL;
        /// User of the registry (HTTP basic authentication).
        username: Option<String> = unset "none", BASIC_USER;
        /// The user's password. Prefer `schemas.password_file`.
        password: Option<Secret> = unset "none", SECRET;
        /// File with the password. Read for each request, so that it can be replaced.
        password_file: Option<SecretFile> = unset "none", READ_AGAIN;
        /// Certificate authority of the registry, a PEM file. No other is trusted then. Read for each request, so that it can be replaced.
        ca_file: Option<Authorities> = unset "the system's", AUTHORITIES;
        /// Schemas in files, by their ids: `7 = "intent.avsc"`. The registry is not asked for these.
        files: BTreeMap<u32, PathBuf> = unset "none" or BTreeMap::new, FILES_BY_ID;
        /// Schemas of the registry in memory, at most, and at most 64 MiB of them.
        cache: usize = is "1000", whole_in::<usize>(1, 100_000);
        /// Timeout of a request to the registry.
        timeout: Duration = is "10s", between(SECOND / 100, MINUTE);
    }
}

const REGISTRY_URL: ValueCheck<String> = Check { form: Form::Text(Some("^https?://[^@?#]+$")), read: registry_url };
const BASIC_USER: ValueCheck<String> = Check { form: Form::Text(Some("^[^:]+$")), read: basic_user };
const READ_AGAIN: ValueCheck<SecretFile> = Check { form: Form::Path(None), read: secret_read_again };
const FILES_BY_ID: ValueCheck<BTreeMap<u32, PathBuf>> = Check { form: Form::PathsById, read: files_by_id };

/// Paths are put behind it. One that may have a password in it is not shown.
fn registry_url(node: &Node, layers: &Layers<'_>) -> Parsed<String> {
    if values::name(node, layers)?.contains(['@', '?', '#']) {
        return Err("must be a URL without user, query and fragment: the user is schemas.username".to_owned());
    }
    urls::http_url(node, layers)
}

/// A name in HTTP's basic authentication ends at the first colon.
fn basic_user(node: &Node, layers: &Layers<'_>) -> Parsed<String> {
    let name = values::name(node, layers)?;
    if name.contains(':') { Err("must be a name without a colon".to_owned()) } else { Ok(name) }
}

fn secret_read_again(node: &Node, layers: &Layers<'_>) -> Parsed<SecretFile> {
    let path = values::path(node, layers)?;
    Ok(SecretFile { secret: values::read_secret(&path)?, path })
}

fn files_by_id(node: &Node, layers: &Layers<'_>) -> Parsed<BTreeMap<u32, PathBuf>> {
    let entries = EntriesOf { table: "schemas.files", entry: "id = \"file\"" };
    entries.read(node, layers, schema_id, |_, node| values::path(node, layers))
}

/// `07` or `+7` would be a second name for 7, and one of both files would be left out.
fn schema_id(text: &str) -> Parsed<u32> {
    text.parse().ok().filter(|id: &u32| id.to_string() == text).ok_or_else(|| {
        let most = u32::MAX;
        format!("must be the id of a schema: a whole number from 0 to {most}, without sign or leading zeros")
    })
}

/// A format needs schemas, except JSON; and each user a password.
pub(super) fn check(layers: &Layers<'_>, format: Option<&IntentFormat>, schemas: Option<&SchemasSettings>) {
    let (Some(IntentFormat { format }), Some(schemas)) = (format, schemas) else { return };
    if let Some(format) = format
        && !format.is_built()
    {
        layers.note(
            "intent.format",
            "names a format that this weir was built without: cargo's features are avro and protobuf",
        );
    }
    let has_schemas = schemas.registry.is_some() || !schemas.files.is_empty();
    if matches!(format, Some(Format::Avro | Format::Protobuf)) && !has_schemas {
        layers.note("intent.format", "needs schemas.registry or schemas.files");
    }
    if schemas.username.is_some() != (schemas.password.is_some() || schemas.password_file.is_some()) {
        layers.note("schemas.username", "and schemas.password_file belong together: set both or none");
    }
    if schemas.registry.is_none() && (schemas.username.is_some() || schemas.ca_file.is_some()) {
        layers.note("schemas.registry", "is not set, and the registry's username or ca_file is");
    }
}
