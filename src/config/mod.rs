//! Configuration: a TOML file and environment variables over it, to checked [`Settings`].
//!
//! settings.rs declares each setting once; docs/configuration.md and schemas/config.schema.json are written from it.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use weir_core::basis::document::{Document, Format, Problems};

use crate::files::read_file;

mod checks;
mod forms;
pub mod keys;
mod layers;
mod log_filter;
mod render;
mod schemas;
mod secret;
mod settings;
mod show;
mod urls;
mod values;

use self::layers::Layers;
pub(crate) use self::log_filter::check as check_log_filter;
pub use self::{
    schemas::{IntentFormat, SchemasSettings},
    secret::{Secret, SecretFile, TokenFile},
    settings::{
        ActivityFields, Delivery, HttpSettings, IntentFields, KafkaSettings, LogFormat, LogSettings, PolicySettings,
        RedisSettings, S3Settings, SegmentAccess, SegmentsSettings, Settings, TracingSettings, WorkerSettings,
    },
    show::{Effective, Source},
};

/// Why there are no settings: exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {error}; name the configuration with --config", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{0}")]
    Invalid(#[from] Problems),
}

/// Reads the configuration from a file and these environment variables, of which `WEIR__...` are looked at.
/// Also reads the files that secrets are in.
pub fn load(path: &Path, env: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Settings, ConfigError> {
    read(path, env, Settings::read)
}

/// Reads the configuration as [`load`] does, with the environment of this process, and gives each setting's value and where it comes from, without secrets.
pub fn effective(path: &Path) -> Result<Vec<Effective>, ConfigError> {
    read(path, std::env::vars_os(), |layers| Some(show::effective(layers, &Settings::read(layers)?)))
}

/// Reads of the configuration where HTTP listens; nothing else has to be set.
pub fn load_listen(path: &Path) -> Result<SocketAddr, ConfigError> {
    read(path, std::env::vars_os(), |layers| layers.get("http.listen", values::address))
}

/// Reads of the configuration what commands that work on sets of segments want; nothing else has to be set. A key that is not known
/// is wrong here too.
pub fn load_segment_access(path: &Path) -> Result<SegmentAccess, ConfigError> {
    read(path, std::env::vars_os(), |layers| {
        let user_id_prefix = layers.optional("segments.user_id_prefix", values::name);
        Some(SegmentAccess { s3: S3Settings::read(layers)?, user_id_prefix })
    })
}

fn read<T>(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    take: impl FnOnce(&Layers<'_>) -> Option<T>,
) -> Result<T, ConfigError> {
    let text = read_file(path).map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(check(&path.display().to_string(), &text, folder, env, take)?)
}

/// As [`load`], from the text of a file: `name` is what problems are reported under, `folder` is what relative
/// paths are relative to.
pub fn parse(
    name: &str,
    text: &str,
    folder: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, Problems> {
    check(name, text, folder, env, Settings::read)
}

/// The section `[kafka]` of a text that has no other.
pub(crate) fn kafka(text: &str) -> Result<KafkaSettings, Problems> {
    check("[kafka]", text, Path::new(""), [], KafkaSettings::read)
}

/// A section of which nothing is set.
fn defaults<T>(read: impl FnOnce(&Layers<'_>) -> Option<T>) -> Result<T, Problems> {
    check("the defaults", "", Path::new(""), [], read)
}

fn check<T>(
    name: &str,
    text: &str,
    folder: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    read: impl FnOnce(&Layers<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let document = Document::new(name, text);
    let root = document.parse(Format::Toml);
    let checked = root.as_ref().and_then(|root| read(&Layers::new(&document, root, folder, env)));
    document.finish(checked)
}
