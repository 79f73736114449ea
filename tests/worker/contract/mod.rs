//! What the docs promise to users, rule by rule, against a real Kafka, a real Redis Cluster and an S3.
//!
//! Most rules share one run of one worker ([`run::RUN`]): each file publishes its records into it and its tests look
//! at what became of them.

mod caps;
mod decisions;
mod hostile;
mod intents;
mod policy;
mod run;
mod segments;
mod time;
mod topics;
