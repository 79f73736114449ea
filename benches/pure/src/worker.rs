//! src/worker, as far as it is pure.

#[path = "../../../src/worker/desk.rs"]
pub mod desk;
#[path = "../../../src/worker/letter.rs"]
mod letter;
#[path = "../../../src/worker/limits.rs"]
pub mod limits;
#[path = "../../../src/worker/output.rs"]
mod output;
#[path = "../../../src/worker/record.rs"]
pub mod record;
pub mod refresh;
