//! ACLs, written as the arguments of `kafka-acls.sh --add`.

use std::{collections::HashSet, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf as _, BufMut as _};

use super::{
    Kafka, KafkaClient,
    wire::{put_text, request, take_outcome, take_text},
};
use crate::wait_for;

/// How long the broker may take to show what was changed.
const DEADLINE: Duration = Duration::from_secs(30);
/// Kinds of requests, and their versions: <https://kafka.apache.org/protocol#protocol_api_keys>.
const DESCRIBE: [i16; 2] = [29, 1];
const CREATE: [i16; 2] = [30, 1];
const DELETE: [i16; 2] = [31, 1];
/// A filter that all kinds of resources, patterns, operations and permissions pass.
const ANY: i8 = 1;
/// The length of a text that is not there: a filter that all pass.
const NULL: i16 = -1;
const DENY: i8 = 2;
const ALLOW: i8 = 3;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
/// Whom brokers take clients without credentials for.
const ANYBODY: &str = "User:ANONYMOUS";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// As they are listed, and their numbers.
    operations: Vec<(&'static str, i8)>,
    /// The numbers of their kinds, and their names.
    resources: Vec<(i8, String)>,
    pattern: i8,
}

impl Grant {
    /// Reads `--operation Read --topic a --topic b`, `--operation Write --transactional-id x- --resource-pattern-type
    /// prefixed` and so on.
    pub fn parse(arguments: &str) -> Result<Self> {
        let mut grant = Self { operations: Vec::new(), resources: Vec::new(), pattern: LITERAL };
        let mut words = arguments.split_whitespace();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} has no value in {arguments:?}"));
            match word {
                "--operation" => grant.operations.push(match value()? {
                    "Read" => ("READ", 3),
                    "Write" => ("WRITE", 4),
                    "Create" => ("CREATE", 5),
                    "Describe" => ("DESCRIBE", 8),
                    "DescribeConfigs" => ("DESCRIBE_CONFIGS", 10),
                    "IdempotentWrite" => ("IDEMPOTENT_WRITE", 12),
                    other => bail!("{other} is no operation that is known here"),
                }),
                "--topic" => grant.resources.push((2, value()?.to_owned())),
                "--group" => grant.resources.push((3, value()?.to_owned())),
                "--cluster" => grant.resources.push((4, "kafka-cluster".to_owned())),
                "--transactional-id" => grant.resources.push((5, value()?.to_owned())),
                "--resource-pattern-type" => match value()? {
                    "literal" => {}
                    "prefixed" => grant.pattern = PREFIXED,
                    other => bail!("{other} is no pattern type that is known here"),
                },
                other => bail!("{other} is no argument that is known here, in {arguments:?}"),
            }
        }
        ensure!(!grant.operations.is_empty() && !grant.resources.is_empty(), "{arguments:?} grants nothing");
        Ok(grant)
    }

    /// Each operation, as `kafka-acls.sh --list` calls it, with each resource's name.
    pub fn bindings(&self) -> Vec<(String, String)> {
        self.each().map(|((listed, _), (_, name))| (listed.to_owned(), name.clone())).collect()
    }

    fn acls(&self, principal: &str, permission: i8) -> impl Iterator<Item = Acl> {
        self.each().map(move |((_, operation), (kind, name))| {
            let (kind, name, principal) = (*kind, name.clone(), principal.to_owned());
            Acl { kind, name, pattern: self.pattern, principal, operation, permission }
        })
    }

    /// Each operation on each resource.
    fn each(&self) -> impl Iterator<Item = ((&'static str, i8), &(i8, String))> {
        self.resources.iter().flat_map(|resource| self.operations.iter().map(move |operation| (*operation, resource)))
    }
}

/// What somebody may do or not, from anywhere.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Acl {
    kind: i8,
    name: String,
    pattern: i8,
    principal: String,
    operation: i8,
    permission: i8,
}

/// A right that is denied until it is lifted.
#[derive(Debug)]
#[must_use = "the right stays denied until it is lifted"]
pub struct Denial {
    client: KafkaClient,
    denied: HashSet<Acl>,
}

impl Kafka {
    /// Denies everybody to write to a topic. For brokers that were started with taps, which look at ACLs.
    pub fn deny_writing(&self, topic: &str) -> Result<Denial> {
        self.deny(&format!("--operation Write --topic {topic}"))
    }

    /// Denies everybody to see a group's offsets. Members that are in it already go on.
    pub fn deny_describing_group(&self, group: &str) -> Result<Denial> {
        self.deny(&format!("--operation Describe --group {group}"))
    }

    fn deny(&self, right: &str) -> Result<Denial> {
        let (client, denied) = (self.client().clone(), Grant::parse(right)?.acls(ANYBODY, DENY).collect());
        client.change_acls(CREATE, ANYBODY, &denied)?;
        Ok(Denial { client, denied })
    }
}

impl Denial {
    pub fn lift(self) -> Result<()> {
        self.client.change_acls(DELETE, ANYBODY, &self.denied)
    }
}

impl KafkaClient {
    /// Allows a user (`User:weir` is `weir`) these things, all at once.
    pub fn grant(&self, user: &str, grants: &[Grant]) -> Result<()> {
        let principal = format!("User:{user}");
        self.change_acls(CREATE, &principal, &grants.iter().flat_map(|grant| grant.acls(&principal, ALLOW)).collect())
    }

    /// Makes or deletes somebody's ACLs, and waits until the broker that answers shows it: the controller accepts a change before
    /// brokers know of it.
    fn change_acls(&self, how: [i16; 2], principal: &str, acls: &HashSet<Acl>) -> Result<()> {
        let mut request = request(how)?;
        request.put_i32(i32::try_from(acls.len())?);
        for Acl { kind, name, pattern, principal, operation, permission } in acls {
            request.put_i8(*kind);
            put_text(&mut request, name)?;
            request.put_i8(*pattern);
            put_text(&mut request, principal)?;
            put_text(&mut request, "*")?;
            request.put_i8(*operation);
            request.put_i8(*permission);
        }
        let mut answer = self.answer_to(&request)?;
        for _ in 0..answer.try_get_i32()? {
            take_outcome(&mut answer).context("an ACL was refused")?;
            if how == DELETE {
                // What was deleted follows: of the one ACL of a denial.
                break;
            }
        }
        let mut last = None;
        let is_shown = || {
            let shown = last.insert(self.acls_of(principal)).as_ref().ok()?;
            let is_so = if how == DELETE { acls.is_disjoint(shown) } else { acls.is_subset(shown) };
            is_so.then_some(())
        };
        let is_so = wait_for(DEADLINE, is_shown).is_some();
        ensure!(is_so, "of the changed ACLs {acls:?} the broker shows {last:?}");
        Ok(())
    }

    /// What the broker that answers knows to be allowed or denied to somebody.
    fn acls_of(&self, principal: &str) -> Result<HashSet<Acl>> {
        let mut request = request(DESCRIBE)?;
        request.put_i8(ANY);
        request.put_i16(NULL);
        request.put_i8(ANY);
        put_text(&mut request, principal)?;
        request.put_i16(NULL);
        request.put_slice(&[ANY.cast_unsigned(); 2]);
        let mut answer = self.answer_to(&request)?;
        take_outcome(&mut answer)?;
        let mut found = HashSet::new();
        for _ in 0..answer.try_get_i32()? {
            let (kind, name, pattern) = (answer.try_get_i8()?, take_text(&mut answer)?, answer.try_get_i8()?);
            for _ in 0..answer.try_get_i32()? {
                let (principal, _from) = (take_text(&mut answer)?, take_text(&mut answer)?);
                let (operation, permission) = (answer.try_get_i8()?, answer.try_get_i8()?);
                found.insert(Acl { kind, name: name.clone(), pattern, principal, operation, permission });
            }
        }
        Ok(found)
    }
}
