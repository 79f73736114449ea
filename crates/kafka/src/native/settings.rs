//! The settings of topics and brokers, each with the broker's error: the wrapper leaves the error out, and gives a topic that may not be
//! described, or that the broker does not know, no settings.

use std::{
    ffi::{CStr, CString},
    slice,
    time::Duration,
};

use rdkafka::{bindings as rd, error::RDKafkaErrorCode};

use super::answers::{Answers, Event, RequestOptions, outcome};
use crate::context::KafkaClient;

/// The settings of a topic or broker by name, or why the broker does not tell them.
pub type Told = Result<Vec<(String, String)>, RDKafkaErrorCode>;

impl Answers {
    /// Asks a broker for the settings of topics, the defaults included. Blocks, for so long at the most.
    pub fn topic_settings(
        &self,
        client: &KafkaClient,
        topics: &[CString],
        wait: Duration,
    ) -> Result<Vec<(String, Told)>, RDKafkaErrorCode> {
        self.described(client, (rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC, topics), wait)
    }

    /// Asks a broker for its own settings. Blocks, for so long at the most.
    pub fn broker_settings(&self, client: &KafkaClient, broker: i32, wait: Duration) -> Result<Told, RDKafkaErrorCode> {
        let name = CString::new(broker.to_string()).unwrap_or_default();
        let of = rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_BROKER;
        let mut told = self.described(client, (of, &[name]), wait)?;
        told.pop().map(|(_, settings)| settings).ok_or(RDKafkaErrorCode::Unknown)
    }

    fn described(
        &self,
        client: &KafkaClient,
        (of, names): (rd::rd_kafka_ResourceType_t, &[CString]),
        wait: Duration,
    ) -> Result<Vec<(String, Told)>, RDKafkaErrorCode> {
        let describe = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS;
        let options = RequestOptions::new(client, describe, wait);
        // SAFETY: client, queue, options and names are alive; librdkafka copies the names, the resources and the options. A resource is
        // ours, is not null (that without a name would be), and is destroyed once.
        unsafe {
            let resources = names.iter().map(|name| rd::rd_kafka_ConfigResource_new(of, name.as_ptr()));
            let mut resources: Vec<_> = resources.filter(|resource| !resource.is_null()).collect();
            let (first, count) = (resources.as_mut_ptr(), resources.len());
            rd::rd_kafka_DescribeConfigs(client.native_ptr(), first, count, options.as_ptr(), self.queue());
            rd::rd_kafka_ConfigResource_destroy_array(first, count);
        }
        let event = self.next(wait).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
        told(&event)
    }
}

fn told(event: &Event) -> Result<Vec<(String, Told)>, RDKafkaErrorCode> {
    let event = event.as_ptr();
    // SAFETY: the event is alive, and what is read here belongs to it. `DescribeConfigs_result` is null where it is the answer to something
    // else; its resources are `count` pointers, and none of them is null.
    unsafe {
        outcome(rd::rd_kafka_event_error(event))?;
        let result = rd::rd_kafka_event_DescribeConfigs_result(event);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let mut count = 0;
        let resources = rd::rd_kafka_DescribeConfigs_result_resources(result, &mut count);
        if resources.is_null() {
            return Ok(Vec::new());
        }
        let resources = slice::from_raw_parts(resources, count).iter();
        Ok(resources.map(|&resource| (text(rd::rd_kafka_ConfigResource_name(resource)), settings(resource))).collect())
    }
}

/// # Safety
/// The resource is alive.
unsafe fn settings(resource: *const rd::rd_kafka_ConfigResource_t) -> Told {
    // SAFETY: the resource is alive, and its entries, `count` pointers, belong to it; a value that the broker does not tell is null.
    unsafe {
        outcome(rd::rd_kafka_ConfigResource_error(resource))?;
        let mut count = 0;
        let entries = rd::rd_kafka_ConfigResource_configs(resource, &mut count);
        if entries.is_null() {
            return Ok(Vec::new());
        }
        let entries = slice::from_raw_parts(entries, count).iter();
        let known = entries.filter(|&&entry| !rd::rd_kafka_ConfigEntry_value(entry).is_null());
        let named = known.map(|&entry| {
            let (name, value) = (rd::rd_kafka_ConfigEntry_name(entry), rd::rd_kafka_ConfigEntry_value(entry));
            (text(name), text(value))
        });
        Ok(named.collect())
    }
}

/// # Safety
/// It is a C string, and alive.
unsafe fn text(text: *const std::ffi::c_char) -> String {
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
