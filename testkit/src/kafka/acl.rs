//! ACLs, written as the arguments of `kafka-acls.sh --add`, without the start of a JVM for each.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    ptr,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::{bindings as rd, types::RDKafkaRespErr};

use super::KafkaClient;
use crate::wait_for;

/// How long the broker may take to answer, and to show what was granted.
const DEADLINE: Duration = Duration::from_secs(30);
/// Room for librdkafka's own words about an ACL that is none.
const REASON_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    operations: Vec<rd::rd_kafka_AclOperation_t>,
    resources: Vec<(rd::rd_kafka_ResourceType_t, String)>,
    pattern: rd::rd_kafka_ResourcePatternType_t,
}

impl Grant {
    /// Reads `--operation Read --topic a --topic b`, `--operation Write --transactional-id x- --resource-pattern-type
    /// prefixed` and so on.
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
    pub fn bindings(&self) -> Vec<(String, String)> {
        let called = |operation| format!("{operation:?}").trim_start_matches("RD_KAFKA_ACL_OPERATION_").to_owned();
        let of = |name: &String| self.operations.iter().map(|op| (called(op), name.clone())).collect::<Vec<_>>();
        self.resources.iter().flat_map(|(_, name)| of(name)).collect()
    }
}

type Right = (rd::rd_kafka_ResourceType_t, String, rd::rd_kafka_ResourcePatternType_t, rd::rd_kafka_AclOperation_t);

impl KafkaClient {
    /// Allows a user (`User:weir` is `weir`) these things, all at once, and waits until the broker that answers shows them: the
    /// controller accepts ACLs before brokers know of them.
    pub fn grant(&self, user: &str, grants: &[Grant]) -> Result<()> {
        let (admin, principal) = (self.admin()?, CString::new(format!("User:{user}"))?);
        let client = admin.inner().native_ptr();
        let mut rights: HashSet<Right> = HashSet::new();
        for grant in grants {
            for (kind, name) in &grant.resources {
                rights
                    .extend(grant.operations.iter().map(|&operation| (*kind, name.clone(), grant.pattern, operation)));
            }
        }
        let mut bindings = rights.iter().map(|right| binding(&principal, right)).collect::<Result<Vec<_>>>()?;
        create(client, &mut bindings)?;
        let mut last = None;
        let are_shown =
            || last.insert(shown(client, &principal)).as_ref().ok().filter(|shown| rights.is_subset(shown)).map(drop);
        if wait_for(DEADLINE, are_shown).is_none() {
            bail!("of the rights {rights:?} of {user} the broker shows {last:?}");
        }
        Ok(())
    }
}

fn binding(principal: &CStr, (kind, name, pattern, operation): &Right) -> Result<*mut rd::rd_kafka_AclBinding_t> {
    let name = CString::new(name.as_str())?;
    let mut reason = [0; REASON_BYTES];
    // SAFETY: all texts end in NUL and are copied; `reason` has the room that is told.
    let made = unsafe {
        rd::rd_kafka_AclBinding_new(
            *kind,
            name.as_ptr(),
            *pattern,
            principal.as_ptr(),
            c"*".as_ptr(),
            *operation,
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
    // SAFETY: the client is alive; the bindings are ours until they are destroyed, and librdkafka copies them.
    let answer = unsafe {
        Answer::to(client, |queue| {
            rd::rd_kafka_CreateAcls(client, bindings.as_mut_ptr(), bindings.len(), ptr::null(), queue);
            rd::rd_kafka_AclBinding_destroy_array(bindings.as_mut_ptr(), bindings.len());
        })
    }?;
    // SAFETY: the answer is alive, and what it gives lives as long.
    unsafe {
        let result = rd::rd_kafka_event_CreateAcls_result(answer.0);
        ensure!(!result.is_null(), "an answer to something else came");
        let mut count = 0;
        let results = rd::rd_kafka_CreateAcls_result_acls(result, &mut count);
        for index in 0..count {
            let error = rd::rd_kafka_acl_result_error(*results.add(index));
            if !error.is_null() {
                bail!("an ACL was refused: {}", CStr::from_ptr(rd::rd_kafka_error_string(error)).to_string_lossy());
            }
        }
    }
    Ok(())
}

/// What the broker that answers knows to be allowed to somebody.
fn shown(client: *mut rd::rd_kafka_t, principal: &CStr) -> Result<HashSet<Right>> {
    let mut reason = [0; REASON_BYTES];
    // SAFETY: the client is alive; the text ends in NUL and is copied, as the filter is, which is destroyed once; null stands for all.
    let answer = unsafe {
        let filter = rd::rd_kafka_AclBindingFilter_new(
            rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_ANY,
            ptr::null(),
            rd::rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_ANY,
            principal.as_ptr(),
            ptr::null(),
            rd::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_ANY,
            rd::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
            reason.as_mut_ptr(),
            reason.len(),
        );
        ensure!(!filter.is_null(), "{}", CStr::from_ptr(reason.as_ptr()).to_string_lossy());
        Answer::to(client, |queue| {
            rd::rd_kafka_DescribeAcls(client, filter, ptr::null(), queue);
            rd::rd_kafka_AclBinding_destroy(filter);
        })
    }?;
    // SAFETY: the answer is alive, and what it gives lives as long; names end in NUL.
    unsafe {
        let result = rd::rd_kafka_event_DescribeAcls_result(answer.0);
        ensure!(!result.is_null(), "an answer to something else came");
        let mut count = 0;
        let acls = rd::rd_kafka_DescribeAcls_result_acls(result, &mut count);
        let right = |index| {
            let acl = *acls.add(index);
            let name = CStr::from_ptr(rd::rd_kafka_AclBinding_name(acl)).to_string_lossy().into_owned();
            let (kind, pattern) =
                (rd::rd_kafka_AclBinding_restype(acl), rd::rd_kafka_AclBinding_resource_pattern_type(acl));
            (kind, name, pattern, rd::rd_kafka_AclBinding_operation(acl))
        };
        Ok((0..count).map(right).collect())
    }
}

/// An answer of a broker; freed when dropped.
pub(super) struct Answer(pub(super) *mut rd::rd_kafka_event_t);

impl Answer {
    /// The answer to what is asked by `ask`, which gets the queue that it comes to.
    ///
    /// # Safety
    /// The client is alive.
    pub(super) unsafe fn to(client: *mut rd::rd_kafka_t, ask: impl FnOnce(*mut rd::rd_kafka_queue_t)) -> Result<Self> {
        let wait_ms = i32::try_from(DEADLINE.as_millis())?;
        // SAFETY: the client is alive; the queue is destroyed once, after its last use.
        let answer = unsafe {
            let queue = rd::rd_kafka_queue_new(client);
            ask(queue);
            let event = rd::rd_kafka_queue_poll(queue, wait_ms);
            rd::rd_kafka_queue_destroy(queue);
            ensure!(!event.is_null(), "no answer after {DEADLINE:?}");
            Self(event)
        };
        // SAFETY: the event is alive.
        let code = unsafe { rd::rd_kafka_event_error(answer.0) };
        ensure!(code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR, "the broker refused: {code:?}");
        Ok(answer)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: it is ours and not null, and freed once.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}
