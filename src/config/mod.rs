//! Configuration: a TOML file and environment variables over it, to checked [`Settings`].
//!
//! The only place that knows the names of settings: [`keys::SETTINGS`] lists each with its default and meaning;
//! the check reads defaults from it, and docs/configuration.md and schemas/config.schema.json are written from it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use weir_core::document::{Document, Format, Problems};

use crate::files::read_file;

mod check;
pub mod keys;
mod layers;
mod secret;
mod settings;

pub use secret::Secret;
pub use settings::{
    Delivery, HttpSettings, IntentFields, IntentSettings, KafkaSettings, LogFormat, LogSettings, PolicySettings,
    RedisSettings, RedisTls, S3Settings, SegmentAccess, SegmentsSettings, Settings, Source, WorkerSettings,
};

/// Why there are no settings: exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {error}; name the configuration with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What it says, or what a variable says, is wrong.
    #[error("{0}")]
    Invalid(#[from] Problems),
}

/// Reads the configuration from a file and these environment variables, of which `WEIR__...` are looked at.
/// Also reads the files that secrets are in.
///
/// # Errors
/// [`ConfigError`], with all that is wrong at once.
pub fn load(path: &Path, env: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Settings, ConfigError> {
    let text = read_file(path).map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(parse(&path.display().to_string(), &text, folder, env)?)
}

/// Reads of the configuration what commands that work on sets of segments want; nothing else has to be set.
///
/// # Errors
/// [`ConfigError`], with all that is wrong; a key that is not known is wrong here too.
pub fn load_segment_access(
    path: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<SegmentAccess, ConfigError> {
    let text = read_file(path).map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
    let name = path.display().to_string();
    let document = Document::new(&name, &text);
    let root = document.parse(Format::Toml);
    let folder = path.parent().unwrap_or(Path::new(""));
    let access =
        root.as_ref().and_then(|root| check::segment_access(&layers::Layers::new(&document, root, env), folder));
    Ok(document.finish(access)?)
}

/// As [`load`], from the text of a file: `name` is what problems are reported under, `folder` is what relative
/// paths are relative to.
///
/// # Errors
/// All that is wrong.
pub fn parse(
    name: &str,
    text: &str,
    folder: &Path,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, Problems> {
    let document = Document::new(name, text);
    let root = document.parse(Format::Toml);
    let settings = root.as_ref().and_then(|root| {
        let layers = layers::Layers::new(&document, root, env);
        check::settings(&layers, folder)
    });
    document.finish(settings)
}
