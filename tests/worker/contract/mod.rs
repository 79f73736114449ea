//! What the docs promise to users, rule by rule, against a real Kafka, a real Redis Cluster and an S3.
//!
//! Most rules share one run of one worker ([`run::RUN`]): each file publishes its records into it and its rules look at what became
//! of them. Each test runs in a process of its own, so one test asks all rules of a run, and names each that is broken.

mod caps;
mod decisions;
mod hostile;
mod intents;
mod policy;
mod run;
mod segments;
mod time;
mod topics;

/// Checks all rules, and fails with the names of the broken ones.
macro_rules! keep {
    ($($file:ident :: $rule:ident),* $(,)?) => {
        $crate::support::keep(&[$((concat!(stringify!($file), "::", stringify!($rule)), $file::$rule as fn())),*])
    };
}

/// Those of [`run::RUN`].
#[test]
fn one_run_keeps_every_rule() {
    keep![
        caps::a_sliding_window_counts_what_was_approved_in_it_and_no_more,
        caps::eligible_at_is_when_the_send_that_blocks_has_left_the_window,
        caps::a_send_takes_its_cost,
        caps::a_cap_asks_and_counts_only_its_channels_and_categories,
        caps::each_campaign_counts_its_own_sends,
        caps::a_limit_of_0_means_never,
        caps::of_several_caps_that_deny_the_one_that_frees_last_is_named,
        caps::an_unlimited_segment_is_not_capped_and_recorded_all_the_same,
        caps::the_same_id_is_not_sent_twice_to_the_same_user,
        caps::a_denied_intent_is_not_recorded,
        caps::a_bypass_that_does_not_count_is_neither_capped_nor_recorded_nor_a_duplicate,
        caps::a_bypass_that_counts_is_recorded_and_counts_against_later_sends,
        caps::a_replay_gets_the_verdict_and_the_time_it_had,
        decisions::an_approved_record_has_one_header_with_the_decision,
        decisions::a_field_is_absent_where_there_is_nothing_to_say,
        decisions::the_envelope_says_exactly_this,
        decisions::the_intent_in_the_envelope_is_as_it_came,
        decisions::every_envelope_is_valid_by_the_schema,
        decisions::decided_at_is_the_clock_of_the_decision,
        decisions::eligible_at_is_never_before_the_decision,
        decisions::a_dead_letter_says_why_in_the_headers_of_kafka_connect,
        intents::a_user_id_as_number_and_as_text_is_one_user,
        intents::null_is_the_same_as_absent,
        intents::a_structured_cloud_event_is_an_intent,
        intents::events_of_two_sources_with_one_id_are_two_intents,
        intents::a_binary_cloud_event_is_an_intent,
        time::a_calendar_day_begins_at_midnight_in_the_intents_zone,
        time::a_user_without_a_zone_has_the_policys,
        time::a_calendar_week_begins_on_monday,
        time::a_calendar_month_begins_on_its_first_day,
        time::an_intent_past_its_expiry_or_older_than_max_age_has_expired,
        time::an_intent_that_is_not_due_is_too_early_until_then,
        topics::every_key_comes_out_byte_for_byte,
        topics::approved_and_dead_values_come_out_byte_for_byte,
        topics::the_intents_headers_come_first_and_unchanged_and_ours_behind_them,
        topics::a_record_goes_to_the_partition_of_its_key,
        topics::a_null_key_keeps_its_partition_modulo_the_outputs_count,
        topics::a_users_approved_messages_stay_in_order,
    ];
}

/// Those of [`hostile::HOSTILE`].
#[test]
fn hostile_records_keep_every_rule() {
    keep![
        hostile::every_hostile_record_ends_where_the_docs_say,
        hostile::nothing_stops_the_intent_behind_a_hostile_record_is_decided,
        hostile::a_dead_letter_keeps_its_value_and_says_where_it_came_from,
        hostile::dead_letters_are_counted,
        hostile::logs_hold_no_user_no_payload_and_no_secret,
        segments::hashes_know_users_by_ids_that_are_no_numbers,
    ];
}

/// Those of a run in which the policy is reloaded.
#[test]
fn reloads_of_a_policy_keep_every_rule() {
    keep![
        policy::a_new_policy_is_taken_up_without_a_restart_and_applies_to_what_was_sent_before,
        policy::an_invalid_policy_is_refused_and_the_last_good_one_stays,
        policy::a_refusal_is_logged_with_file_place_and_reason,
        policy::in_shadow_mode_everything_is_sent_and_says_what_it_would_have_been,
        policy::what_is_sent_in_shadow_mode_is_recorded_and_counts,
        policy::in_quiet_hours_intents_are_suppressed_until_their_end_in_the_users_zone,
    ];
}

/// Those of a run with a set and a policy from an S3.
#[test]
fn segments_and_policies_from_s3_keep_every_rule() {
    keep![
        segments::a_set_built_into_s3_tells_who_is_where_whether_an_id_has_the_prefix_or_is_no_number,
        segments::the_policy_and_the_fields_of_an_intent_are_where_the_configuration_says,
        segments::nothing_is_downloaded_when_nothing_has_changed,
        segments::a_new_set_is_taken_up_without_a_restart,
        segments::a_bad_set_is_refused_whole_and_the_last_good_one_stays,
        segments::a_user_in_two_segments_is_in_the_first_one_and_counted,
    ];
}
