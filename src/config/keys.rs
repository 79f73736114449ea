//! What a setting is, and how a section of them is declared: once, with type, default, check and documentation.

use std::sync::LazyLock;

use super::settings::Settings;
pub use super::{
    forms::Form,
    render::{markdown, schema_text},
};

/// What holds where a setting is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    Required,
    /// This, written as in a variable.
    Is(&'static str),
    /// Nothing, which means this.
    Unset(&'static str),
}

#[derive(Debug, Clone)]
pub struct Setting {
    /// Its path in the file: `kafka.brokers`.
    pub key: &'static str,
    pub form: Form,
    pub default: Otherwise,
    pub meaning: &'static str,
}

impl Setting {
    /// The environment variable that sets it: `WEIR__KAFKA__BROKERS`.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_uppercase().replace('.', "__"))
    }

    pub fn description(&self) -> String {
        self.form.bounds().map_or_else(|| self.meaning.to_owned(), |bounds| format!("{} {bounds}.", self.meaning))
    }
}

/// What the environment variables of weir begin with.
pub const PREFIX: &str = "WEIR__";

/// All settings, in the order of the documentation.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(Settings::declared);

/// Declares a section: a struct with a field per setting. A field has the setting's documentation, its type, its default
/// (`required`, `is "text"`, `unset "meaning"`, which makes an `Option` unless `or` gives a value), and its
/// [`super::forms::Check`]: the documentation and the schema say which values that accepts.
macro_rules! section {
    (
        $(#[$doc:meta])* $name:ident $section:literal {
            $($(#[doc = $meaning:literal])+ $field:ident: $type:ty = $default:ident $($text:literal)? $(or $or:expr)?, $check:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $meaning])+ pub $field: $type,)*
        }

        impl $name {
            pub(super) fn declared() -> Vec<Setting> {
                vec![$(Setting {
                    key: concat!($section, ".", stringify!($field)),
                    form: $check.form,
                    default: section!(@default $default $($text)?),
                    meaning: concat!($($meaning),+).trim_ascii(),
                },)*]
            }

            /// Checks the section; `None` where something is wrong, which is noted.
            pub(super) fn read(layers: &Layers<'_>) -> Option<Self> {
                // All are checked before the first `?`, so that all problems are noted.
                $(let $field =
                    section!(@read $default $(or $or)?, layers, concat!($section, ".", stringify!($field)), $check.read);)*
                Some(Self { $($field: $field?,)* })
            }
        }
    };
    (@default required) => { Otherwise::Required };
    (@default is $text:literal) => { Otherwise::Is($text) };
    (@default unset $text:literal) => { Otherwise::Unset($text) };
    (@read unset, $layers:ident, $key:expr, $parse:expr) => { Some($layers.optional($key, $parse)) };
    (@read unset or $or:expr, $layers:ident, $key:expr, $parse:expr) => {
        Some($layers.optional($key, $parse).unwrap_or_else($or))
    };
    (@read $default:ident, $layers:ident, $key:expr, $parse:expr) => { $layers.get($key, $parse) };
}
pub(super) use section;

/// Declares all sections, in the order of the documentation, and how those are checked that depend on each other.
macro_rules! sections {
    ($($name:ident: $section:ident,)* |$layers:ident| $check:expr) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $(pub $name: $section,)*
        }

        impl Settings {
            pub(super) fn declared() -> Vec<Setting> {
                [$($section::declared()),*].concat()
            }

            /// Checks everything; `None` where something is wrong, which is noted.
            pub(super) fn read($layers: &Layers<'_>) -> Option<Self> {
                // Each section is checked before the first `?`, so that all problems are noted.
                $(let $name = $section::read($layers);)*
                $check;
                Some(Self { $($name: $name?,)* })
            }
        }
    };
}
pub(super) use sections;

/// Properties that are weir's to set, and why.
pub const REFUSED_PROPERTIES: [(&str, &str); 18] = [
    ("acks", "weir needs all: fewer may lose what was decided"),
    ("bootstrap.servers", "set kafka.brokers"),
    ("delivery.report.only.error", "weir reads the delivery reports"),
    ("enable.auto.commit", "offsets are committed with the decisions"),
    ("enable.auto.offset.store", "offsets are committed with the decisions"),
    ("enable.idempotence", "without it, records may be written twice or in another order"),
    ("enable.partition.eof", "weir needs the ends of partitions: their lag goes by them"),
    ("group.id", "set kafka.group"),
    ("group.instance.id", "each lane is a member of the group; they would share the name"),
    ("group.protocol", "weir needs classic, the default: with consumer, brokers assign partitions by their rules"),
    ("group.remote.assignor", "it belongs to group.protocol = consumer, and weir needs classic"),
    ("isolation.level", "weir reads committed intents only"),
    ("metadata.broker.list", "set kafka.brokers"),
    ("partition.assignment.strategy", "weir rebuilds its lanes by it"),
    ("partitioner", "the partition is that of Java's default partitioner, so that a user's records stay in order"),
    ("request.required.acks", "weir needs all: fewer may lose what was decided"),
    ("transactional.id", "set kafka.instance"),
    ("transaction.timeout.ms", "weir sets it: it bounds how long a dead instance holds up readers"),
];
