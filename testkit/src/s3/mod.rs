//! An S3 in this process: the s3s crates serve a temporary folder, behind a layer that counts and breaks requests.

mod access;
mod bucket;
mod faults;
mod server;

pub use bucket::{ACCESS_KEY, Bucket, REGION, SECRET_KEY};
pub use faults::{Counts, Fault};
pub use server::{Guest, S3};
