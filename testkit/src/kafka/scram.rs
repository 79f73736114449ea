//! Passwords of a running Kafka's users, without the start of a JVM for each.

use std::{
    ffi::{CStr, CString},
    ptr,
};

use anyhow::{Result, bail, ensure};
use rdkafka::{bindings as rd, types::RDKafkaRespErr};

use super::{KafkaClient, acl::Answer};

/// Kafka's own number of iterations.
const ITERATIONS: i32 = 4_096;

impl KafkaClient {
    /// Gives a user another password under SHA-512. The controller accepts it before brokers know of it; once they do, the one before
    /// lets nobody in any more.
    pub fn set_scram_password(&self, user: &str, password: &str) -> Result<()> {
        let (admin, user) = (self.admin()?, CString::new(user)?);
        let client = admin.inner().native_ptr();
        // SAFETY: the client is alive; the user ends in NUL; user and password are copied, as the alteration is, which is destroyed once.
        // Without a salt librdkafka makes one.
        let answer = unsafe {
            let mut alteration = rd::rd_kafka_UserScramCredentialUpsertion_new(
                user.as_ptr(),
                rd::rd_kafka_ScramMechanism_t::RD_KAFKA_SCRAM_MECHANISM_SHA_512,
                ITERATIONS,
                password.as_ptr(),
                password.len(),
                ptr::null(),
                0,
            );
            ensure!(!alteration.is_null(), "librdkafka makes no alteration of a SCRAM user");
            Answer::to(client, |queue| {
                rd::rd_kafka_AlterUserScramCredentials(client, &raw mut alteration, 1, ptr::null(), queue);
                rd::rd_kafka_UserScramCredentialAlteration_destroy(alteration);
            })
        }?;
        // SAFETY: the answer is alive, and what it gives lives as long.
        unsafe {
            let result = rd::rd_kafka_event_AlterUserScramCredentials_result(answer.0);
            ensure!(!result.is_null(), "an answer to something else came");
            let mut count = 0;
            let responses = rd::rd_kafka_AlterUserScramCredentials_result_responses(result, &raw mut count);
            for index in 0..count {
                let error = rd::rd_kafka_AlterUserScramCredentials_result_response_error(*responses.add(index));
                if !error.is_null() && rd::rd_kafka_error_code(error) != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                    let reason = CStr::from_ptr(rd::rd_kafka_error_string(error));
                    bail!("the password was refused: {}", reason.to_string_lossy());
                }
            }
        }
        Ok(())
    }
}
