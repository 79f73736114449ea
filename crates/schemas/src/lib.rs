//! Intents with the frame of a Schema Registry: Avro, Protobuf, and JSON.
//!
//! [`IntentSchemas`] implements the port [`weir_core::ports::Schemas`]. A schema is compiled to a plan once; reading a value walks
//! it along its plan, picks up what stands at the places of the mapped fields, and passes over the rest. No tree of a value is
//! built: a hostile value takes no memory, a bounded depth and a bounded number of steps.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]
#![cfg_attr(
    not(any(feature = "avro", feature = "protobuf")),
    allow(dead_code, unused_variables, reason = "without a format there are no plans")
)]

#[cfg(feature = "avro")]
mod avro;
mod cursor;
mod place;
mod plan;
#[cfg(feature = "protobuf")]
mod protobuf;
mod registry;
mod schemas;
mod table;
#[cfg(test)]
mod tests;

pub use self::{
    plan::{Definition, Format},
    registry::{Getting, HttpAnswer, Registry, RegistryClient},
    schemas::{FileError, IntentSchemas},
};
