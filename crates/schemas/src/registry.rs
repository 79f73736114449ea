//! A Schema Registry, by its HTTP API.

use std::{fmt::Debug, future::Future, pin::Pin};

use serde::Deserialize;
use weir_core::ports::{SchemaId, SchemasUnavailable};

use crate::plan::{Definition, MAX_TEXT_BYTES};

/// Schemas that one schema refers to, directly or not, at most.
const MAX_REFERENCES: usize = 64;
/// What a registry calls schemas where it does not say.
const DEFAULT_TYPE: &str = "AVRO";
/// An id that no schema has, and that is one to every registry: they count up from 1, in 32 bits.
const UNUSED_ID: SchemaId = i32::MAX as SchemaId;
/// Codes of the API behind status 404: a subject, a version or a schema that is not found.
const NOT_FOUND: [i64; 3] = [40_401, 40_402, 40_403];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    /// The body; `None` where it is larger than is read.
    pub body: Option<Vec<u8>>,
}

pub type Getting<'s> = Pin<Box<dyn Future<Output = Result<HttpAnswer, String>> + Send + 's>>;

/// Asks a registry over HTTP. Time and size of an answer are bounded; a redirection is an answer like others.
pub trait RegistryClient: Debug + Send + Sync {
    /// What is at a path behind the registry's URL.
    fn get<'s>(&'s self, path: &'s str) -> Getting<'s>;
}

#[derive(Debug)]
pub struct Registry(Box<dyn RegistryClient>);

#[derive(Deserialize)]
struct FoundSchema {
    schema: String,
    #[serde(rename = "schemaType")]
    schema_type: Option<String>,
    references: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
    subject: String,
    version: i64,
}

#[derive(Deserialize)]
struct RegistryProblem {
    error_code: i64,
}

impl Registry {
    pub fn new(client: impl RegistryClient + 'static) -> Self {
        Self(Box::new(client))
    }

    /// Asks for a schema, so that what a lane would meet is met before: no answer, an answer that is not a registry's, and
    /// credentials that are refused.
    pub async fn look(&self) -> Result<(), SchemasUnavailable> {
        self.ask(&format!("/schemas/ids/{UNUSED_ID}")).await.map(drop).map_err(|failed| failed.why)
    }

    /// A schema with all that it refers to, or why there is none; fails where the registry does not answer, or not as one does.
    pub(crate) async fn schema(&self, id: SchemaId) -> Result<Result<Definition, String>, SchemasUnavailable> {
        if id > UNUSED_ID {
            // No registry has it, and some do not answer 404 as they do for a schema that is absent.
            return Ok(Err(format!("is not in the registry: ids end at {UNUSED_ID}")));
        }
        let found = match self.find(&format!("/schemas/ids/{id}")).await? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let schema_type = found.schema_type.unwrap_or_else(|| DEFAULT_TYPE.to_owned());
        let (mut references, mut bytes) = (Vec::<(String, String)>::new(), found.schema.len());
        // Depth first: a reference comes before the schemas that refer to it.
        let mut open: Vec<Step> = found.references.into_iter().flatten().map(Step::Ask).collect();
        let mut asked = Vec::new();
        while let Some(step) = open.pop() {
            let Reference { name, subject, version } = match step {
                Step::Done(name, text) => {
                    references.push((name, text));
                    continue;
                }
                Step::Ask(reference) => reference,
            };
            if asked.contains(&name) {
                continue;
            }
            if asked.len() == MAX_REFERENCES {
                return Ok(Err(format!("refers to more than {MAX_REFERENCES} schemas")));
            }
            let path = format!("/subjects/{}/versions/{version}", in_path(&subject));
            let found = match self.find(&path).await? {
                Ok(found) => found,
                Err(why) => return Ok(Err(format!("refers to version {version} of {subject:?}, which {why}"))),
            };
            bytes += found.schema.len();
            if bytes > MAX_TEXT_BYTES {
                return Ok(Err(format!("has more than {MAX_TEXT_BYTES} bytes, with what it refers to")));
            }
            asked.push(name.clone());
            open.push(Step::Done(name, found.schema));
            open.extend(found.references.into_iter().flatten().map(Step::Ask));
        }
        Ok(Ok(Definition { schema_type, text: found.schema, references }))
    }

    /// What is at a path; or why a registry that answers others has nothing there.
    async fn find(&self, path: &str) -> Result<Result<FoundSchema, String>, SchemasUnavailable> {
        let mut asked = self.ask(path).await;
        if let Err(Failed { why, alone: Some(_) }) = asked {
            // Of this schema alone, or of all: then it is an outage. It is asked for again, as something in between may have
            // answered in the registry's place.
            self.look().await.map_err(|_| why)?;
            asked = self.ask(path).await;
        }
        match asked {
            Ok(Some(found)) => Ok(Ok(found)),
            Ok(None) => Ok(Err("is not in the registry".to_owned())),
            Err(Failed { alone: Some(problem), .. }) => Ok(Err(problem)),
            Err(Failed { why, alone: None }) => Err(why),
        }
    }

    /// What is at a path; `None` where the registry says that there is nothing.
    async fn ask(&self, path: &str) -> Result<Option<FoundSchema>, Failed> {
        let unavailable = |why: String| SchemasUnavailable(format!("the schema registry, asked for {path}: {why}"));
        let failed = |why: String| Failed { why: unavailable(why), alone: None };
        let HttpAnswer { status, body } = self.0.get(path).await.map_err(failed)?;
        let alone = |why: String, problem: String| Failed { why: unavailable(why), alone: Some(problem) };
        let refused = |why: String| alone(why, format!("is refused by the registry ({status})"));
        let Some(body) = body else {
            let why = format!("it answers {status}, and more than is read");
            return Err(if status == 200 { alone(why, "is larger than is read".to_owned()) } else { failed(why) });
        };
        match status {
            200 => match serde_json::from_slice(&body) {
                Ok(found) => Ok(Some(found)),
                Err(error) => {
                    let why = format!("its answer is not that of a registry ({error})");
                    Err(alone(why, format!("is not answered as a schema is ({error})")))
                }
            },
            404 => match serde_json::from_slice::<RegistryProblem>(&body) {
                Ok(RegistryProblem { error_code }) if NOT_FOUND.contains(&error_code) => Ok(None),
                // Another server, or another path, knows no schema at all.
                Ok(_) | Err(_) => {
                    Err(refused("it answers 404, but not as a registry does: is schemas.registry its URL?".to_owned()))
                }
            },
            401 | 403 => {
                Err(refused(format!("it answers {status}: check schemas.username, the password and the user's rights")))
            }
            400 | 422 => Err(refused(format!("it answers {status}"))),
            _ => Err(failed(format!("it answers {status}"))),
        }
    }
}

/// No schema, and no word that there is none.
struct Failed {
    why: SchemasUnavailable,
    /// What is wrong with the schema, where the registry answers for others.
    alone: Option<String>,
}

enum Step {
    Ask(Reference),
    /// All that it refers to is there.
    Done(String, String),
}

/// A part of a path, with all but letters, digits and `-._~` escaped.
fn in_path(part: &str) -> String {
    let escaped = part.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}
