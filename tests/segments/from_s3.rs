//! Sets from S3.
