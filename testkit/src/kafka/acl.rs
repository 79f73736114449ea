//! ACLs, written as the arguments of `kafka-acls.sh --add`, without the start of a JVM for each.

use std::{
    ffi::{CStr, CString},
    ptr,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::{bindings as rd, types::RDKafkaRespErr};

use super::KafkaClient;

/// How long the broker may take to grant.
const GRANT_DEADLINE: Duration = Duration::from_secs(30);
/// Room for librdkafka's own words about an ACL that is none.
const REASON_BYTES: usize = 512;

/// Rights of one kind on some resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    operations: Vec<rd::rd_kafka_AclOperation_t>,
    resources: Vec<(rd::rd_kafka_ResourceType_t, String)>,
    pattern: rd::rd_kafka_ResourcePatternType_t,
}

impl Grant {
    /// Reads `--operation Read --topic a --topic b`, `--operation Write --transactional-id x- --resource-pattern-type
    /// prefixed` and so on.
    ///
    /// # Errors
    /// When an argument is none that is known here.
    pub fn parse(arguments: &str) -> Result<Self> {
        use rd::{rd_kafka_AclOperation_t as Operation, rd_kafka_ResourceType_t as Resource};
        let mut grant = Self {
            operations: Vec::new(),
            resources: Vec::new(),
            pattern: rd::rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_LITERAL,
        };
        let mut words = arguments.split_whitespace();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().with_context(|| format!("{word} has no value in {arguments:?}")).map(str::to_owned);
            match word {
                "--operation" => grant.operations.push(match value()?.as_str() {
                    "Read" => Operation::RD_KAFKA_ACL_OPERATION_READ,
                    "Write" => Operation::RD_KAFKA_ACL_OPERATION_WRITE,
                    "Create" => Operation::RD_KAFKA_ACL_OPERATION_CREATE,
                    "Describe" => Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE,
                    "DescribeConfigs" => Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS,
                    "IdempotentWrite" => Operation::RD_KAFKA_ACL_OPERATION_IDEMPOTENT_WRITE,
                    other => bail!("{other} is no operation that is known here"),
                }),
                "--topic" => grant.resources.push((Resource::RD_KAFKA_RESOURCE_TOPIC, value()?)),
                "--group" => grant.resources.push((Resource::RD_KAFKA_RESOURCE_GROUP, value()?)),
                "--transactional-id" => {
                    grant.resources.push((Resource::RD_KAFKA_RESOURCE_TRANSACTIONAL_ID, value()?));
                }
                "--cluster" => grant.resources.push((Resource::RD_KAFKA_RESOURCE_BROKER, "kafka-cluster".to_owned())),
                "--resource-pattern-type" => match value()?.as_str() {
                    "literal" => {}
                    "prefixed" => {
                        grant.pattern = rd::rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_PREFIXED;
                    }
                    other => bail!("{other} is no pattern type that is known here"),
                },
                other => bail!("{other} is no argument that is known here, in {arguments:?}"),
            }
        }
        ensure!(!grant.operations.is_empty() && !grant.resources.is_empty(), "{arguments:?} grants nothing");
        Ok(grant)
    }

    /// Each operation, as `kafka-acls.sh --list` calls it, with each resource's name.
    #[must_use]
    pub fn bindings(&self) -> Vec<(String, String)> {
        let called = |operation| format!("{operation:?}").trim_start_matches("RD_KAFKA_ACL_OPERATION_").to_owned();
        let of = |name: &String| self.operations.iter().map(|op| (called(op), name.clone())).collect::<Vec<_>>();
        self.resources.iter().flat_map(|(_, name)| of(name)).collect()
    }
}

impl KafkaClient {
    /// Allows a user (`User:weir` is `weir`) these things, all at once.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn grant(&self, user: &str, grants: &[Grant]) -> Result<()> {
        let admin = self.admin()?;
        let mut bindings = Vec::new();
        for grant in grants {
            for &(kind, ref name) in &grant.resources {
                for &operation in &grant.operations {
                    bindings.push(binding(user, kind, name, grant.pattern, operation)?);
                }
            }
        }
        create(admin.inner().native_ptr(), &mut bindings)
    }
}

fn binding(
    user: &str,
    kind: rd::rd_kafka_ResourceType_t,
    name: &str,
    pattern: rd::rd_kafka_ResourcePatternType_t,
    operation: rd::rd_kafka_AclOperation_t,
) -> Result<*mut rd::rd_kafka_AclBinding_t> {
    let (name, principal) = (CString::new(name)?, CString::new(format!("User:{user}"))?);
    let mut reason = [0; REASON_BYTES];
    // SAFETY: all texts end in NUL and are copied; `reason` has the room that is told.
    let made = unsafe {
        rd::rd_kafka_AclBinding_new(
            kind,
            name.as_ptr(),
            pattern,
            principal.as_ptr(),
            c"*".as_ptr(),
            operation,
            rd::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
            reason.as_mut_ptr(),
            reason.len(),
        )
    };
    // SAFETY: librdkafka ends what it writes there with NUL.
    ensure!(!made.is_null(), "{}", unsafe { CStr::from_ptr(reason.as_ptr()) }.to_string_lossy());
    Ok(made)
}

/// Makes the ACLs and frees their bindings.
fn create(client: *mut rd::rd_kafka_t, bindings: &mut [*mut rd::rd_kafka_AclBinding_t]) -> Result<()> {
    let wait_ms = i32::try_from(GRANT_DEADLINE.as_millis())?;
    // SAFETY: the client is alive; the bindings are ours until they are destroyed below; queue and event are destroyed
    // once, after the last use of what belongs to them.
    unsafe {
        let queue = rd::rd_kafka_queue_new(client);
        rd::rd_kafka_CreateAcls(client, bindings.as_mut_ptr(), bindings.len(), ptr::null(), queue);
        rd::rd_kafka_AclBinding_destroy_array(bindings.as_mut_ptr(), bindings.len());
        let event = rd::rd_kafka_queue_poll(queue, wait_ms);
        let outcome = judge(event);
        if !event.is_null() {
            rd::rd_kafka_event_destroy(event);
        }
        rd::rd_kafka_queue_destroy(queue);
        outcome
    }
}

/// # Safety
/// `event` is null, or an event that is alive.
unsafe fn judge(event: *mut rd::rd_kafka_event_t) -> Result<()> {
    ensure!(!event.is_null(), "no answer after {GRANT_DEADLINE:?}");
    // SAFETY: the event is alive, and what it gives lives as long.
    unsafe {
        let code = rd::rd_kafka_event_error(event);
        ensure!(code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR, "the ACLs were refused: {code:?}");
        let answer = rd::rd_kafka_event_CreateAcls_result(event);
        ensure!(!answer.is_null(), "an answer to something else came");
        let mut count = 0;
        let results = rd::rd_kafka_CreateAcls_result_acls(answer, &mut count);
        for index in 0..count {
            let error = rd::rd_kafka_acl_result_error(*results.add(index));
            if !error.is_null() {
                bail!("an ACL was refused: {}", CStr::from_ptr(rd::rd_kafka_error_string(error)).to_string_lossy());
            }
        }
    }
    Ok(())
}
