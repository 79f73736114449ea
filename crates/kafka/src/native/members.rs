//! What a group's coordinator says of one member, which the wrapper reports only for whole clusters.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, c_void},
    time::Duration,
};

use rdkafka::{
    TopicPartitionList,
    bindings::{self as rd, rd_kafka_consumer_group_state_t as State},
    error::RDKafkaErrorCode,
};

use super::answers::{Answers, Event, RequestOptions, outcome};
use crate::context::KafkaClient;

impl Answers {
    /// Whether this client has exactly these partitions in its group, and the group is stable, by its coordinator; also where that cannot be
    /// asked: librdkafka's mock cluster. Blocks, for so long at the most.
    pub fn holds(
        &self,
        client: &KafkaClient,
        (group, partitions): (&CStr, &TopicPartitionList),
        wait: Duration,
    ) -> Result<bool, RDKafkaErrorCode> {
        let mut groups = [group.as_ptr()];
        let of = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
        let options = RequestOptions::new(client, of, wait);
        // SAFETY: client, queue, options and name are alive; librdkafka copies the names and the options.
        unsafe {
            rd::rd_kafka_DescribeConsumerGroups(
                client.native_ptr(),
                groups.as_mut_ptr(),
                groups.len(),
                options.as_ptr(),
                self.queue(),
            );
        }
        let event = self.next(wait).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
        let Some(member) = member_id(client) else { return Ok(false) };
        let wanted = partitions.elements().iter().map(|element| element.partition()).collect();
        match holds(&event, &member, &wanted) {
            Err(RDKafkaErrorCode::UnsupportedFeature) => Ok(true),
            answer => answer,
        }
    }
}

fn member_id(client: &KafkaClient) -> Option<CString> {
    // SAFETY: the client is alive; what it gives is null, or a C string that is ours, and is freed once.
    unsafe {
        let text = rd::rd_kafka_memberid(client.native_ptr());
        if text.is_null() {
            return None;
        }
        let member = CStr::from_ptr(text).to_owned();
        rd::rd_kafka_mem_free(client.native_ptr(), text.cast::<c_void>());
        Some(member)
    }
}

fn holds(event: &Event, member: &CStr, wanted: &BTreeSet<i32>) -> Result<bool, RDKafkaErrorCode> {
    let event = event.as_ptr();
    // SAFETY: the event is alive, and what is read here belongs to it. The result is null where it is the answer to something
    // else; each description and each of its members is there as long as the event. A null error is no error.
    unsafe {
        outcome(rd::rd_kafka_event_error(event))?;
        let result = rd::rd_kafka_event_DescribeConsumerGroups_result(event);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let mut count = 0;
        let groups = rd::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
        if groups.is_null() || count == 0 {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let group = *groups;
        outcome(rd::rd_kafka_error_code(rd::rd_kafka_ConsumerGroupDescription_error(group)))?;
        match rd::rd_kafka_ConsumerGroupDescription_state(group) {
            State::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE => {}
            State::RD_KAFKA_CONSUMER_GROUP_STATE_UNKNOWN
            | State::RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE
            | State::RD_KAFKA_CONSUMER_GROUP_STATE_COMPLETING_REBALANCE
            | State::RD_KAFKA_CONSUMER_GROUP_STATE_DEAD
            | State::RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY
            | State::RD_KAFKA_CONSUMER_GROUP_STATE__CNT => return Ok(false),
        }
        for index in 0..rd::rd_kafka_ConsumerGroupDescription_member_count(group) {
            let described = rd::rd_kafka_ConsumerGroupDescription_member(group, index);
            let id = rd::rd_kafka_MemberDescription_consumer_id(described);
            if id.is_null() || CStr::from_ptr(id) != member {
                continue;
            }
            let assignment = rd::rd_kafka_MemberDescription_assignment(described);
            let list = rd::rd_kafka_MemberAssignment_partitions(assignment);
            return Ok(partitions(list) == *wanted);
        }
    }
    Ok(false)
}

/// # Safety
/// The list is null or alive.
unsafe fn partitions(list: *const rd::rd_kafka_topic_partition_list_t) -> BTreeSet<i32> {
    if list.is_null() {
        return BTreeSet::new();
    }
    // SAFETY: it has `cnt` elements behind `elems`, which is null where there are none.
    unsafe {
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        (0..count).map(|index| (*(*list).elems.add(index)).partition).collect()
    }
}
