//! The Schema Registry: whether it answers, and whom it lets in.

use weir_schemas::Format;

use super::{
    CheckArgs,
    report::{CheckReport, Finding},
};
use crate::{config::Settings, schemas};

const WHAT: &str = "schema registry";

pub(super) async fn look(settings: &Settings, args: &CheckArgs, report: &mut CheckReport) {
    if settings.schemas.registry.is_none() {
        return;
    }
    match settings.intent.format {
        None => {
            let message = "schemas.registry is set, and not asked: intents are JSON without a frame. Set intent.format";
            return report.add(Finding::Warning, WHAT, message);
        }
        Some(Format::JsonSchema) => {
            return report.add(Finding::Skipped, WHAT, "not asked: json_schema is read without its schemas");
        }
        Some(Format::Avro | Format::Protobuf) => {}
    }
    if args.offline {
        return report.add(Finding::Skipped, WHAT, "not connected to (--offline)");
    }
    // What is wrong with the settings is reported with the files.
    let Ok(Some(registry)) = schemas::registry(&settings.schemas) else { return };
    match registry.look().await {
        Ok(()) => report.add(Finding::Ok, WHAT, "it answers, and lets weir in"),
        Err(error) => report.add(Finding::Error, WHAT, error.to_string()),
    }
}
