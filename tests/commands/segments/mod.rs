//! Segments (docs/segments.md): sets from files and S3, checked as a whole, replaced as a whole.

mod asked;
mod bad_objects;
mod commands;
mod commands_s3;
mod formats;
mod from_files;
mod from_s3;
mod other_libraries;
mod refused;
mod support;
