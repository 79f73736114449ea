//! Settings come from a file and the environment, and what is wrong is said with its place.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use weir::{
    aws_iam::AwsCache,
    config::{
        self, Delivery, LogFormat, Secret, Settings,
        keys::{Form, Otherwise, REFUSED_PROPERTIES, SETTINGS, Setting},
    },
    object_store::Location,
};

use super::docs::{is_current, read};
use crate::support::{SMALLEST, contains_all};

fn parse(text: &str, env: &[(&str, &str)]) -> Result<Settings, String> {
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    config::parse("weir.toml", text, Path::new("/etc/weir"), env).map_err(|problems| problems.to_string())
}

fn schema() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&config::keys::schema_text()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn the_smallest_configuration_gets_the_documented_defaults() {
    let settings = parse(SMALLEST, &[]).unwrap();
    let file = |path: &str| Location::File(Path::new("/etc/weir").join(path));
    assert_eq!(settings.kafka.group, "weir");
    assert_eq!(settings.kafka.delivery, Delivery::ExactlyOnce);
    assert!(!settings.kafka.instance.is_empty(), "the host name");
    assert_eq!(settings.kafka.properties, BTreeMap::new());
    assert_eq!(settings.redis.history, Duration::from_secs(8 * 24 * 60 * 60));
    assert_eq!((settings.redis.shards, settings.redis.users), (128, 10_000_000));
    let (segments, policy) = (settings.segments, settings.policy);
    assert_eq!((segments.source, segments.refresh), (file("set/manifest.json"), Duration::from_secs(60)));
    assert_eq!((policy.source, policy.refresh), (file("policy.toml"), Duration::from_secs(10)));
    assert_eq!((settings.worker.lanes, settings.worker.batch), (0, 10_000));
    assert_eq!(settings.worker.commit_interval, Duration::from_millis(50));
    assert_eq!(settings.worker.drain, Duration::from_secs(20));
    assert_eq!(settings.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.http.tokens().next(), None);
    assert_eq!(settings.intent_fields.user_id, "/user_id");
    assert_eq!((settings.log.format, &*settings.log.level), (LogFormat::Auto, "info"));
}

#[test]
fn http_may_close_without_waiting_and_no_other_length_of_time_is_0() {
    let with = |setting: &str| parse(&format!("{SMALLEST}\n[http]\n{setting} = \"0s\""), &[]);
    assert_eq!(with("drain").unwrap().http.drain, Duration::ZERO);
    assert!(with("timeout").unwrap_err().contains("http.timeout must be longer than 0"));
}

#[test]
fn a_byte_order_mark_is_left_out_and_what_may_be_in_a_value_stays() {
    assert!(parse(&format!("\u{FEFF}{SMALLEST}"), &[]).is_ok());
    let place = parse(&format!("\u{FEFF}x = 1\n{SMALLEST}"), &[]).unwrap_err();
    assert!(place.starts_with("weir.toml:1:1: x is not a known setting"), "{place}");
    for url in ["redis://u:p%23%40%2F@r:6379/2", "redis://:p@ss@r", "redis://[::1]:6379/"] {
        assert!(parse(&SMALLEST.replace("redis://r:6379", url), &[]).is_ok(), "{url}");
    }
    let pem = "\n[kafka.properties]\n\"ssl.ca.pem\" = \"-----BEGIN\\nCERTIFICATE\\n\"\n\"session.timeout.ms\" = 45000";
    assert!(parse(&format!("{SMALLEST}{pem}"), &[]).is_ok());
}

#[test]
fn the_least_that_the_documentation_says_is_enough() {
    let text = read("docs/configuration.md");
    let block = text.split("```toml\n").nth(1).and_then(|rest| rest.split_once("```")).unwrap().0;
    assert_eq!(parse(block, &[]).map(|settings| settings.kafka.brokers), Ok("127.0.0.1:9092".to_owned()));
}

#[test]
fn the_full_example_is_read_as_it_says() {
    let text = read("schemas/examples/config-full.toml");
    let settings = parse(&text, &[]).unwrap();
    assert_eq!(settings.kafka.instance, "weir-0");
    let property = |name: &str| settings.kafka.properties[name].expose().to_owned();
    assert_eq!(property("security.protocol"), "PLAINTEXT");
    assert_eq!(property("statistics.interval.ms"), "0");
    assert_eq!(property("socket.keepalive.enable"), "true");
    assert_eq!(settings.redis.nodes.len(), 2);
    assert_eq!(settings.segments.source.to_string(), "s3://bucket/segments/manifest.json");
    assert_eq!(settings.segments.user_id_prefix.as_deref(), Some("u"));
    assert_eq!(settings.s3.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
    assert!(settings.s3.force_path_style && settings.s3.requester_pays);
    assert_eq!(settings.intent_fields.user_id, "/recipient/id");
    assert_eq!(settings.kafka.activity.as_deref(), Some("app-activity"));
    assert_eq!((&*settings.activity_fields.user_id, &*settings.activity_fields.at), ("/actor", "/at"));
    assert_eq!(settings.intent_fields.id, "/id");
    assert_eq!(settings.log.format, LogFormat::Json);

    let schema = schema();
    assert!(schema.is_valid(&toml::from_str(&text).unwrap()));
    assert!(!schema.is_valid(&toml::from_str(&text.replace("brokers", "broker")).unwrap()));
}

/// Values that are not the default, of settings whose form does not say one: see [`other_value`].
const OTHER_VALUES: &[(&str, &str)] = &[
    ("kafka.brokers", "one:9092, two:9092"),
    ("kafka.group", "other"),
    ("kafka.delivery", "at_least_once"),
    ("kafka.instance", "weir-7"),
    ("redis.nodes", "rediss://a:1, rediss://b:2"),
    ("redis.username", "weir"),
    ("redis.password", "correct horse"),
    ("redis.ca_file", "ca.pem"),
    ("redis.history", "31d 3h"),
    ("redis.prefix", "weir.test"),
    ("segments.source", "s3://b/m.json"),
    ("segments.user_id_prefix", "u"),
    ("policy.source", "/p/policy.json"),
    ("s3.endpoint", "http://127.0.0.1:9000"),
    ("s3.region", "eu-west-1"),
    ("intent.format", "json_schema"),
    ("schemas.registry", "http://127.0.0.1:8081"),
    ("worker.memory", "512MiB"),
    ("http.listen", "[::1]:0"),
    ("http.token", "abc, d.e-f_/+~=="),
    ("kafka.aws_iam_region", "eu-west-1"),
    ("http.rate", "0"),
    ("log.format", "text"),
    ("log.level", "debug"),
    ("tracing.endpoint", "http://127.0.0.1:4318"),
];

/// These take files, need each other, kafka.deferred or schemas.registry, or take many names: each has a test of its own.
const ELSEWHERE: &str = "redis.aws_iam_cluster redis.aws_iam_region redis.aws_iam_service kafka.properties \
                         kafka.approved_by_channel kafka.property_files kafka.retries kafka.deferred_before \
                         redis.password_file redis.cert_file redis.key_file s3.ca_file http.token_file schemas.username \
                         schemas.password schemas.password_file schemas.ca_file schemas.files";

/// A value of a setting that is not its default.
fn other_value(setting: &Setting) -> String {
    let intents = SETTINGS.iter().find(|setting| setting.key == "kafka.intents").unwrap();
    if let Some((_, value)) = OTHER_VALUES.iter().find(|(key, _)| *key == setting.key) {
        (*value).to_owned()
    } else if let Form::Whole(range) = &setting.form {
        range.end().to_string()
    } else if let Form::Duration(range) = &setting.form {
        format!("{}ms", range.end().as_millis())
    } else if setting.form == Form::Flag {
        "true".to_owned()
    } else if setting.key.contains(".fields.") {
        "/a~1b/c".to_owned()
    } else {
        // Each topic has its own name.
        assert_eq!(setting.form, intents.form, "no value for {}", setting.key);
        setting.variable().replace("__", ".-")
    }
}

/// A setting's value as it is written in the file.
fn in_file(setting: &Setting, value: &str) -> String {
    if matches!(setting.form, Form::Whole(_) | Form::Flag) {
        value.to_owned()
    } else if matches!(setting.form, Form::Texts(_)) {
        format!("[\"{}\"]", value.replace(", ", "\", \""))
    } else {
        format!("{value:?}")
    }
}

/// The smallest configuration with one more setting, or another value of one.
fn smallest_with(key: &str, value: &str) -> toml::Table {
    let mut table: toml::Table = SMALLEST.parse().unwrap();
    let (parents, name) = key.rsplit_once('.').unwrap();
    let parsed: toml::Table = format!("v = {value}").parse().unwrap();
    let place = parents.split('.').fold(&mut table, |table, part| {
        table.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut().unwrap()
    });
    place.insert(name.to_owned(), parsed["v"].clone());
    table
}

#[test]
fn every_setting_can_be_given_in_the_file_and_as_a_variable_which_goes_before_it() {
    let smallest = parse(SMALLEST, &[("WEIR__KAFKA__INSTANCE", "host")]).unwrap();
    let schema = schema();
    for setting in SETTINGS.iter().filter(|setting| !ELSEWHERE.split(' ').any(|key| key == setting.key)) {
        let key = setting.key;
        let (name, value) = (setting.variable(), other_value(setting));
        let variable = [("WEIR__KAFKA__INSTANCE", "host"), (&*name, &*value)];
        let by_variable = parse(SMALLEST, &variable).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_ne!(by_variable, smallest, "{key} changes nothing");

        let table = smallest_with(key, &in_file(setting, &value));
        let env: &[_] = if key == "kafka.instance" { &[] } else { &variable[..1] };
        assert!(schema.is_valid(&serde_json::to_value(&table).unwrap()), "{key} = {value}, to the schema");
        let by_file = parse(&table.to_string(), env).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(by_file, by_variable, "{key}");
    }
}

#[test]
fn the_environment_alone_is_enough() {
    let required = SETTINGS.iter().filter(|setting| setting.default == Otherwise::Required);
    let env: Vec<(String, String)> = required.map(|setting| (setting.variable(), other_value(setting))).collect();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
    let settings = parse("", &env).unwrap();
    assert_eq!(settings.redis.nodes, [Secret::new("rediss://a:1"), Secret::new("rediss://b:2")]);
}

#[test]
fn kafka_properties_come_from_both_and_the_environment_goes_first() {
    let text = format!("{SMALLEST}\n[kafka.properties]\n\"sasl.username\" = \"a\"\n\"client.id\" = \"b\"");
    let env = [("WEIR__KAFKA__PROPERTIES__SASL_USERNAME", "c"), ("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", "secret")];
    let properties = parse(&text, &env).unwrap().kafka.properties;
    let found: Vec<(&str, &str)> = properties.iter().map(|(name, value)| (&**name, value.expose())).collect();
    assert_eq!(found, [("client.id", "b"), ("sasl.password", "secret"), ("sasl.username", "c")]);
}

#[test]
fn signing_in_by_iam_needs_what_aws_needs_and_nothing_else_signs_in_beside_it() {
    let with = |kafka: &str, redis: &str| {
        let text = SMALLEST.replacen("[kafka]\n", &format!("[kafka]\n{kafka}\n"), 1);
        let text = text.replacen("[redis]\n", &format!("[redis]\n{redis}\n"), 1);
        parse(&text.replace("redis://", "rediss://"), &[])
    };
    let region = "aws_iam_region = \"eu-west-1\"";
    let whole = format!("aws_iam_cluster = \"caps\"\n{region}\nusername = \"weir-0\"");
    let settings = with(region, &format!("{whole}\naws_iam_service = \"memorydb\"")).unwrap();
    assert_eq!(settings.kafka.aws_iam_region.as_deref(), Some("eu-west-1"));
    assert_eq!(settings.redis.aws_iam_cluster.as_deref(), Some("caps"));
    assert_eq!(settings.redis.aws_iam_service, AwsCache::MemoryDb);
    assert_eq!(with("", &whole).unwrap().redis.aws_iam_service, AwsCache::ElastiCache);
    let plain = parse(&SMALLEST.replacen("[redis]\n", &format!("[redis]\n{whole}\n"), 1), &[]).unwrap_err();
    assert!(plain.contains("redis.aws_iam_cluster needs TLS"), "{plain}");
    let in_url = SMALLEST.replace("redis://r", "rediss://weir:x@r");
    let in_url = parse(&in_url.replacen("[redis]\n", &format!("[redis]\n{whole}\n"), 1), &[]).unwrap_err();
    assert!(in_url.contains("leave users and passwords out of redis.nodes"), "{in_url}");
    for (redis, expected) in [
        (whole.replace("username", "prefix"), "redis.aws_iam_cluster needs redis.username"),
        (whole.replace(region, ""), "redis.aws_iam_cluster needs redis.aws_iam_region"),
        (whole.replace("aws_iam_cluster = \"caps\"", ""), "redis.aws_iam_region needs redis.aws_iam_cluster"),
        ("aws_iam_service = \"memorydb\"".to_owned(), "redis.aws_iam_service needs redis.aws_iam_cluster"),
        (format!("{whole}\npassword = \"x\""), "and redis.password are two ways"),
        (whole.replace("weir-0", "weir&0"), "redis.username must be letters"),
    ] {
        let error = with("", &redis).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for (properties, expected) in [
        ("\"sasl.password\" = \"x\"", "kafka.aws_iam_region and the property \"sasl.password\" are two ways"),
        ("\"enable.sasl.oauthbearer.unsecure.jwt\" = true", "are two ways"),
        ("\"security.protocol\" = \"sasl_plaintext\"", "kafka.aws_iam_region needs TLS"),
    ] {
        let error = with(&format!("{region}\nproperties = {{ {properties} }}"), "").unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    with(&format!("{region}\nproperties = {{ \"security.protocol\" = \"sasl_ssl\" }}"), "").unwrap();
}

#[test]
fn the_schema_knows_what_the_topics_of_channels_may_be() {
    let schema = schema();
    // Names of channels are no properties of librdkafka; `acks` is none that weir refuses here.
    for (topics, fine) in
        [(r#"acks = "b""#, true), (r#""push high" = "b""#, true), ("email = 7", false), (r#"email = "a b""#, false)]
    {
        let text = format!("{SMALLEST}\n[kafka.approved_by_channel]\n{topics}");
        let table: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(schema.is_valid(&serde_json::to_value(&table).unwrap()), fine, "{topics}, to the schema");
        assert_eq!(parse(&text, &[]).is_ok(), fine, "{topics}, to weir");
    }
}

#[test]
fn channels_have_approved_topics_of_their_own() {
    let text = format!("{SMALLEST}\n[kafka.approved_by_channel]\nemail = \"mails\"");
    let settings = parse(&text, &[("WEIR__KAFKA__APPROVED_BY_CHANNEL__WEB_PUSH", "texts")]).unwrap();
    let found: Vec<(&str, &str)> =
        settings.kafka.approved_by_channel.iter().map(|(channel, topic)| (&**channel, &**topic)).collect();
    assert_eq!(found, [("email", "mails"), ("web_push", "texts")]);
    for (topic, expected) in
        [("a b", "kafka.approved_by_channel.email must be a topic's name"), ("i", "must be a topic of its own")]
    {
        let error = parse(&format!("{SMALLEST}\n[kafka.approved_by_channel]\nemail = {topic:?}"), &[]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// `weir forget` and `DELETE /v1/users/{id}` name them.
#[test]
fn each_topic_of_the_settings_is_one_that_may_have_records_of_users() {
    let intents = SETTINGS.iter().find(|setting| setting.key == "kafka.intents").unwrap();
    let is_topic = |setting: &&Setting| setting.form == intents.form;
    let single: Vec<String> = SETTINGS.iter().filter(is_topic).map(Setting::variable).collect();
    assert!(single.len() >= 11, "{single:?}");
    let more = ["WEIR__KAFKA__DEFERRED_BEFORE", "WEIR__KAFKA__APPROVED_BY_CHANNEL__EMAIL"];
    let variables: Vec<&str> = single.iter().map(String::as_str).chain(more).collect();
    // Each has its own name for a value.
    let env: Vec<(&str, &str)> = variables.iter().map(|variable| (*variable, *variable)).collect();
    let topics = parse(SMALLEST, &env).unwrap().kafka.topics_of_users();
    let is_there = |name: &&&str| {
        let mut rests = topics.iter().filter_map(|topic| topic.strip_prefix(**name));
        rests.any(|rest| ["", "-hours", "-minutes", "-*"].contains(&rest))
    };
    let missing: Vec<&&str> = variables.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {topics:?}");
}

#[test]
fn a_format_has_its_schemas_and_a_registry_its_user() {
    let files = "[intent]\nformat = \"avro\"\n[schemas]\nfiles = { 7 = \"a.avsc\", 4294967295 = \"c.avsc\" }";
    let settings = parse(&format!("{SMALLEST}\n{files}"), &[("WEIR__SCHEMAS__FILES__12", "/b.avsc")]).unwrap();
    let expected = [(7, "/etc/weir/a.avsc"), (12, "/b.avsc"), (u32::MAX, "/etc/weir/c.avsc")];
    assert_eq!(settings.schemas.files, expected.map(|(id, file)| (id, PathBuf::from(file))).into());
    let user = format!("{SMALLEST}\n[schemas]\nregistry = \"https://r\"\nusername = \"u\"\npassword = \"p\"");
    let settings = parse(&user, &[]).unwrap().schemas;
    assert_eq!((settings.username.as_deref(), settings.password), (Some("u"), Some(Secret::new("p"))));
}

#[test]
fn a_secret_property_is_read_from_its_file_and_given_once() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let load = |text: &str, env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let text = format!("{SMALLEST}\n[kafka.property_files]\n{text}");
        config::parse("weir.toml", &text, folder.path(), env).map_err(|problems| problems.to_string())
    };
    for settings in [
        load("\"sasl.password\" = \"password\"", &[]).unwrap(),
        load("", &[("WEIR__KAFKA__PROPERTY_FILES__SASL_PASSWORD", "password")]).unwrap(),
    ] {
        let found: Vec<(&str, &str)> =
            settings.kafka.properties().map(|(name, value)| (&**name, value.expose())).collect();
        assert_eq!(found, [("sasl.password", "hunter2")]);
    }
    let twice = [("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", "other")];
    let error = load("\"sasl.password\" = \"password\"", &twice).unwrap_err();
    contains_all(&error, &["kafka.property_files and kafka.properties both have \"sasl.password\": keep one"]);
    for (text, expected) in [
        ("\"sasl.password\" = \"absent\"", "kafka.property_files.sasl.password names"),
        ("\"sasl.password\" = \"empty\"", "which is empty"),
        ("\"group.id\" = \"password\"", "kafka.property_files.group.id is for weir to set (set kafka.group)"),
        ("\"sasl.pasword\" = \"password\"", "kafka.property_files.sasl.pasword is no property of librdkafka"),
    ] {
        let error = load(text, &[]).unwrap_err();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn properties_that_weir_sets_itself_are_refused_with_the_reason() {
    for (name, reason) in REFUSED_PROPERTIES {
        let error = parse(&format!("{SMALLEST}\n[kafka.properties]\n\"{name}\" = \"x\""), &[]).unwrap_err();
        contains_all(&error, &[&format!("weir.toml:16:1: kafka.properties.{name} is for weir to set ({reason})")]);
    }
}

#[test]
fn a_property_is_set_by_one_of_its_names() {
    let with = |lines: &str, env: &[(&str, &str)]| parse(&format!("{SMALLEST}\n[kafka.properties]\n{lines}"), env);
    for (one, other) in [
        ("delivery.timeout.ms", "message.timeout.ms"),
        ("linger.ms", "queue.buffering.max.ms"),
        ("max.in.flight", "max.in.flight.requests.per.connection"),
        ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
        ("message.send.max.retries", "retries"),
    ] {
        let lines = [one, other].map(|name| format!("{name:?} = 5"));
        for line in &lines {
            with(line, &[]).unwrap();
        }
        let variable = format!("WEIR__KAFKA__PROPERTIES__{}", other.to_uppercase().replace('.', "_"));
        for error in [with(&lines.join("\n"), &[]), with(&lines[0], &[(&variable, "5")])].map(Result::unwrap_err) {
            let words = format!("{one:?} and {other:?}, which are two names of one property: keep one");
            assert!(error.contains(&format!("kafka.properties has {words}")), "{error}");
        }
    }
}

#[test]
fn the_new_protocol_of_groups_is_refused_by_the_name_that_was_given() {
    let error = parse(&format!("{SMALLEST}\n[kafka.properties]\n\"group.protocol\" = \"consumer\""), &[]).unwrap_err();
    assert!(error.contains("group.protocol") && error.contains("classic"), "{error}");
    assert!(!error.contains("partition.assignment.strategy"), "nobody has set that: {error}");
}

#[test]
fn brokers_are_hosts_with_ports_and_a_typing_error_is_not_read_as_other_ones() {
    // Clients have no error for <https://github.com/confluentinc/librdkafka/issues/746>, and took the first one alone in
    // <https://github.com/apache/kafka/pull/18740>.
    let schema = schema();
    for brokers in ["b", "b:9092", " b_1.x-y:9092 , [::1]:9092,[fe80::1%eth0]", "10.0.0.1:1,10.0.0.2:65535"] {
        let table = smallest_with("kafka.brokers", &format!("{brokers:?}"));
        assert!(schema.is_valid(&serde_json::to_value(&table).unwrap()), "{brokers}, to the schema");
        let found = parse(&SMALLEST.replace("b:9092", brokers), &[]).map(|settings| settings.kafka.brokers);
        assert_eq!(found.as_deref(), Ok(brokers));
    }
    let wrong = "0,0,0,0::0|a:9092 b:9092|a:9092;b:9092|a:9092x|a:port|a:|:9092|a:0|a:99999|::1|[::1|[b]:9092|a,,b";
    for brokers in wrong.split('|') {
        let error = parse(&SMALLEST.replace("b:9092", brokers), &[]).expect_err(brokers);
        assert!(error.contains("kafka.brokers must be host:port"), "{brokers}: {error}");
    }
}

/// Three brokers of Amazon MSK have long names (<https://github.com/DataDog/datadog-agent/pull/48807>), and a bound on all of them is too low
/// soon (<https://github.com/didi/KnowAgent/issues/28>). A token in a password's place has a thousand bytes and more.
#[test]
fn a_list_of_brokers_a_secret_and_a_path_may_be_longer_than_a_name() {
    let broker = |number| format!("b-{number}-public.messaging.a1b2c3.c4.kafka.eu-central-1.amazonaws.com:9198");
    let brokers = (1..=6).map(broker).collect::<Vec<String>>().join(",");
    let found = parse(&SMALLEST.replace("b:9092", &brokers), &[]).unwrap();
    assert_eq!(found.kafka.brokers, brokers);

    let (token, key) = ("e".repeat(2_000), format!("s3://bucket/{}/policy.toml", "k".repeat(900)));
    let node = format!("rediss://weir:{token}@r:6379");
    let env = [("WEIR__REDIS__NODES", &*node), ("WEIR__HTTP__TOKEN", &*token), ("WEIR__POLICY__SOURCE", &*key)];
    let found = parse(SMALLEST, &env).unwrap();
    assert_eq!((found.redis.nodes, found.http.token), (vec![Secret::new(node)], vec![Secret::new(&*token)]));
    assert_eq!(found.policy.source.to_string(), key);
    let found = parse(SMALLEST, &[("WEIR__REDIS__PASSWORD", &token)]).unwrap();
    assert_eq!(found.redis.password, Some(Secret::new(token)));

    // What becomes a part of another name stays a name.
    let error = parse(SMALLEST, &[("WEIR__KAFKA__GROUP", &"g".repeat(257))]).unwrap_err();
    assert!(error.contains("kafka.group must not be longer than 256 bytes; it has 257"), "{error}");
}

#[test]
fn sasl_needs_a_mechanism_that_is_built_in_and_its_tokens() {
    // librdkafka's default is Kerberos: <https://github.com/fede1024/rust-rdkafka/issues/523>, and where it is not built in,
    // <https://github.com/confluentinc/librdkafka/issues/3501>.
    let with = |lines: &str| parse(&format!("{SMALLEST}\n[kafka.properties]\n{lines}"), &[]);
    for protocol in ["SASL_SSL", "sasl_plaintext"] {
        let signed = |mechanism: &str| {
            with(&format!(
                "\"security.protocol\" = {protocol:?}\n\"sasl.username\" = \"weir\"\n\"sasl.password\" = \"hunter2\"\n{mechanism}"
            ))
        };
        for mechanism in ["", "\"sasl.mechanism\" = \"GSSAPI\"", "\"sasl.mechanisms\" = \"plain\""] {
            let error = signed(mechanism).expect_err(mechanism);
            contains_all(&error, &["kafka.properties needs \"sasl.mechanism\""]);
            assert!(!error.contains("hunter2"), "{error}");
        }
        for name in ["sasl.mechanism", "sasl.mechanisms"] {
            for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
                signed(&format!("{name:?} = {mechanism:?}")).unwrap();
            }
            let by_token = |source: &str| signed(&format!("{name:?} = \"OAUTHBEARER\"\n{source}"));
            let (method, unsigned) = ("\"sasl.oauthbearer.method\"", "\"enable.sasl.oauthbearer.unsecure.jwt\"");
            for none in [String::new(), format!("{method} = \"default\""), format!("{unsigned} = false")] {
                let error = by_token(&none).expect_err(&none);
                let expected = "kafka.properties needs tokens for \"sasl.mechanism\" = \"OAUTHBEARER\"";
                contains_all(&error, &[expected, "set \"sasl.oauthbearer.method\" = \"oidc\"", "kafka.aws_iam_region"]);
                assert!(!error.contains("hunter2"), "{error}");
            }
            for source in [format!("{method} = \"oidc\""), format!("{method} = \"OIDC\""), format!("{unsigned} = true")]
            {
                by_token(&source).unwrap();
            }
        }
    }
    with("\"security.protocol\" = \"SSL\"").unwrap();
    // By this protocol nobody signs in.
    with("\"security.protocol\" = \"SSL\"\n\"sasl.mechanism\" = \"OAUTHBEARER\"").unwrap();
}

#[test]
fn secrets_are_never_printed() {
    let env = [
        ("WEIR__REDIS__PASSWORD", "hunter2"),
        ("WEIR__REDIS__NODES", "redis://user:hunter2@r:6379"),
        ("WEIR__HTTP__TOKEN", "hunter2"),
        ("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", "hunter2"),
    ];
    let printed = format!("{:#?}", parse(SMALLEST, &env).unwrap());
    assert!(!printed.contains("hunter2"), "{printed}");
    let wrong = [
        ("WEIR__REDIS__PASSWORD", "hunter2\n"),
        ("WEIR__REDIS__NODES", "http://user:hunter2@r:6379"),
        ("WEIR__HTTP__TOKEN", "hunter2\u{7}"),
    ];
    let error = parse(SMALLEST, &wrong).unwrap_err();
    assert_eq!(error.lines().count(), 3, "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = parse(&format!("{SMALLEST}\n[http]\ntoken = [\"hunter2\"]"), &[]).unwrap_err();
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn a_secret_may_be_in_a_file() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("weir.toml"), SMALLEST).unwrap();
    std::fs::write(folder.path().join("token"), "abc\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    std::fs::write(folder.path().join("lines"), "abc\ndef\n").unwrap();
    let load = |name: &str, value: &str| {
        config::load(&folder.path().join("weir.toml"), [(OsString::from(name), OsString::from(value))])
            .map_err(|error| error.to_string())
    };
    assert_eq!(load("WEIR__HTTP__TOKEN_FILE", "token").unwrap().http.token_file.unwrap().tokens, [Secret::new("abc")]);
    let redis = load("WEIR__REDIS__PASSWORD_FILE", "token").unwrap().redis;
    assert_eq!(redis.password_file, Some(folder.path().join("token")));
    std::fs::write(folder.path().join("marked"), "\u{FEFF}abc\n").unwrap();
    std::fs::write(folder.path().join("large"), "a".repeat(65_537)).unwrap();
    for (file, reason) in [
        ("large", "is larger than 65536 bytes"),
        ("empty", "is empty"),
        ("lines", "more than one line"),
        ("marked", "begins with a byte order mark"),
        ("absent", "cannot be read: No such file"),
    ] {
        let error = load("WEIR__HTTP__TOKEN_FILE", file).unwrap_err();
        assert!(error.contains("WEIR__HTTP__TOKEN_FILE: http.token_file names") && error.contains(reason), "{error}");
    }
    std::fs::write(folder.path().join("unfit"), "hunter2,hun ter3").unwrap();
    let error = load("WEIR__HTTP__TOKEN_FILE", "unfit").unwrap_err();
    assert!(error.contains("http.token_file") && error.contains("RFC 6750") && !error.contains("hun"), "{error}");
    let absent = config::load(&folder.path().join("absent.toml"), []).unwrap_err().to_string();
    assert!(absent.contains("absent.toml: cannot be read") && absent.contains("--config"), "{absent}");
}

/// What is another one in the smallest configuration, or more in a section of it or behind it (`\n` ends a line), and what is said of that.
/// Those with a `!` are known to weir alone, and not to the schema.
/// A database in a URL's query is as in <https://github.com/vert-x3/vertx-redis-client/pull/194>.
const WRONG: &str = r#"
! brokers = "b:9092"\n ->  => weir.toml:1:1: kafka.brokers is not set: write `brokers = ...` below [kafka], or set WEIR__KAFKA__BROKERS
b:9092 ->  => 3:11: kafka.brokers must not be empty
b:9092 -> kafka://b:9092 => must be host:port
b:9092 -> b:9092, => must be host:port
brokers -> broker => 3:1: kafka.broker is not a known setting; did you mean `brokers`?
[kafka] -> [kafak] => 2:2: kafak is not a known setting; did you mean `kafka`?
[redis]\n -> [redis]\nrefresh = "1s"\n => redis.refresh is not a known setting; did you mean kafka.refresh or segments.refresh or policy.refresh?
[redis]\n -> [redis]\ncolour = 1\n => known here: nodes, username, password, password_file
! "a" -> "i" => 5:12: kafka.approved and kafka.intents are both "i"
"a" -> "a b" => must be a topic's name
! "a" -> ".." => must be a topic's name
"a" -> 1 => kafka.approved must be a string, not 1
! kafka retries = "r" => kafka.retries needs kafka.deferred
! kafka retries = "r" => kafka.retries needs kafka.undelivered
! kafka deferred_before = ["x"] => kafka.deferred_before needs kafka.deferred
! kafka deferred = "x"\ndeferred_before = ["x"] => kafka.deferred_before has "x", which is kafka.deferred: leave it out
! kafka deferred = "x"\nrefunds = "x-hours" => kafka.deferred and kafka.refunds are both "x-hours"
! kafka refunds = "a" => kafka.refunds and kafka.approved are both "a"
! kafka refunds = "x"\nactivity = "x" => kafka.activity and kafka.refunds are both "x"
kafka delivery = "exactly-once" => must be one of "exactly_once", "at_least_once", not "exactly-once"; did you mean "exactly_once"?
kafka create_topics = "yes" => must be true or false, not "yes"
kafka properties = "x" => kafka.properties must be a table
kafka [kafka.properties]\nsecurity.protocol = "SSL" => put names with dots in quotes
! kafka [kafka.properties]\n"sasl.jaas.config" = "x" => 9:22: kafka.properties.sasl.jaas.config is a property of Java's clients: set sasl.username and sasl.password
! kafka [kafka.properties]\nbootstrap_servers = "b:9092" => kafka.properties.bootstrap_servers is no property of librdkafka; did you mean "bootstrap.servers"?
! kafka [kafka.properties]\n"session.timeout.ms" = "45s" => kafka.properties.session.timeout.ms must be a whole number in digits, without a unit
! kafka [kafka.properties]\n"sasl.password" = "x\u000A" => kafka.properties.sasl.password must not have control characters in it, such as a line's end
! redis://r:6379 -> redis://:12#34@r:6379 => redis.nodes[0] has a user or password that must be percent-encoded: %40 is @, %23 #
! redis://r:6379 -> redis://u:1/2@r:6379 => must be percent-encoded
! redis://r:6379 -> redis://r:6379/cache => redis.nodes[0] must have nothing behind the port but
! redis://r:6379 -> redis://r:6379?db=2 => redis.nodes[0] must have nothing behind the port but
! redis://r:6379 -> redis://r:6379/2?password=hunter2 => redis.nodes[0] must have nothing behind the port but
! redis://r:6379 -> rediss://r:6379/#insecure => redis.nodes[0] must have nothing behind the port but
["redis://r:6379"] -> [] => redis.nodes must not be an empty list
redis://r:6379 -> r:6379 => redis.nodes[0] must be redis://host:port
redis://r:6379 -> redis:// => redis.nodes[0] must be redis://host:port
! "redis://r:6379" -> "redis://r:1", "rediss://r:2" => must all be redis:// or all be rediss://
redis history = "8" => redis.history must be a length of time
! redis history = "1s" => redis.history must be from 1m to 3660d, not 1s
redis history = "5M" => must be in m (minutes) or months, not in M: "5M"
redis shards = 0 => redis.shards must be a whole number from 1 to 16384, not 0
redis shards = 16385 => redis.shards must be a whole number from 1 to 16384, not 16385
redis prefix = "" => redis.prefix must not be empty
redis prefix = "a{b}" => redis.prefix must be 1 to 64 letters
redis prefix = "a:b" => redis.prefix must be 1 to 64 letters
redis prefix = "a b" => redis.prefix must be 1 to 64 letters
redis prefix = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" => redis.prefix must be 1 to 64 letters
! redis cert_file = "c" => redis.cert_file needs redis.key_file
! redis key_file = "c" => redis.key_file needs redis.cert_file
! redis password = "p"\npassword_file = "f" => and redis.password are both set
! set/manifest.json -> http://x/y => has a scheme that is not supported
! set/manifest.json -> s3://bucket => names no object
policy.toml -> policy.yaml => must end in .toml or .json
and [s3]\nendpoint = "localhost:9000" => begins with http:// or https://
and [s3]\nendpoint = "http://localhost:9000/s3?region=a" => without `?` and `#`
and [intent.fields]\nid = "id" => must be a JSON pointer such as
and [intent.fields]\nid = "/a~2" => must be a JSON pointer such as
and [intent.fields]\nuser = "/u" => intent.fields.user is not a known setting; did you mean `user_id`?
and [worker]\nbatch = 0 => worker.batch must be a whole number from 1 to 100000, not 0
! and [worker]\nbatch = 1e3 => worker.batch must be a whole number
! and [worker]\ncommit_interval = "1m" => must be from 1ms to 10s, not 1m
and [worker]\nlanes = -1 => from 0 to 256, not -1
and [http]\nlisten = "localhost:80" => must be an IP address and port
and [log]\nformat = "xml" => must be one of "auto", "text", "json"
! and [log]\nlevel = "weir=loud" => log.level must be a level or a filter
! and [log]\nlevel = "warning" => "warning" is none of error, warn, info, debug, trace, off; did you mean "warn"?
! and [log]\nlevel = "info, weir=debug" => log.level must be a level or a filter
! and [log]\nlevel = "weir_kafka=debug" => it has no level for what it does not name
"i" -> "" => kafka.intents
["redis://r:6379"] -> ["http://r:6379"] => redis.nodes[0]
kafka deferred_before = ["a b"] => kafka.deferred_before
kafka properties = { acks = "1" } => kafka.properties.acks
kafka property_files = { "sasl.password" = 7 } => kafka.property_files
kafka property_files = { acks = "file" } => kafka.property_files.acks
kafka refresh = "10" => kafka.refresh
kafka aws_iam_region = "eu west" => kafka.aws_iam_region
redis aws_iam_region = "EU-WEST-1" => redis.aws_iam_region
redis aws_iam_cluster = "caps.x1.euw1.cache.amazonaws.com" => redis.aws_iam_cluster
redis aws_iam_service = "redis" => redis.aws_iam_service
redis password = "" => redis.password
redis history = "8 moons" => redis.history
redis history = 8 => redis.history
redis users = 1.5 => redis.users
and [intent]\nformat = "xml" => intent.format
and [schemas]\nregistry = "localhost:8081" => schemas.registry
and [schemas]\nregistry = "https://u:hunter2@r" => must be a URL without user
and [schemas]\nregistry = "http://r?key=secret" => schemas.registry
and [schemas]\nusername = "a:b" => schemas.username
and [schemas]\nfiles = { x = "a.avsc" } => schemas.files.x must be the id of a schema
and [schemas]\nfiles = { 7 = 8 } => schemas.files.7
! and [intent]\nformat = "avro" => intent.format needs schemas.registry or schemas.files
! and [intent]\nformat = "protobuf" => intent.format needs schemas.registry or schemas.files
! and [schemas]\nregistry = "https://r"\nusername = "u" => schemas.username and schemas.password_file belong together
! and [schemas]\nregistry = "https://r"\npassword = "p" => schemas.username and schemas.password_file belong together
! and [schemas]\nusername = "u"\npassword = "p" => schemas.registry is not set
and [schemas]\nfiles = "a.avsc" => must be a table
! and [schemas.files]\n7 = "a.avsc"\n7 = "a.avsc" => duplicate key
and [schemas.files]\n7 = "a.avsc"\n07 = "a.avsc" => schemas.files.07 must be the id of a schema
and [schemas.files]\n"+7" = "a.avsc" => schemas.files.+7 must be the id of a schema
and [schemas.files]\n-1 = "a.avsc" => schemas.files.-1 must be the id of a schema
and [schemas.files]\nintent = "a.avsc" => schemas.files.intent must be the id of a schema
! and [schemas.files]\n4294967296 = "a.avsc" => a whole number from 0 to 4294967295
and [schemas]\ncache = 0 => schemas.cache
and [worker]\nmemory = "300" => worker.memory
"#;

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_do_and_the_schema_refuses_it_too() {
    let with = |old: &str, new: &str| {
        assert!(SMALLEST.contains(old), "{old}");
        SMALLEST.replace(old, new)
    };
    let wrong = |line: &'static str| {
        let (sees, line) = line.strip_prefix("! ").map_or((true, line), |line| (false, line));
        let (text, expected) = line.split_once(" => ").unwrap();
        let text = text.replace("\\n", "\n");
        if let Some((old, new)) = text.split_once(" -> ") {
            return (with(old, new), sees, expected);
        }
        let (kind, more) = text.split_once(' ').unwrap();
        let text = match kind {
            "kafka" => with("[redis]", &format!("{more}\n[redis]")),
            "redis" => with("[segments]", &format!("{more}\n[segments]")),
            _ => format!("{SMALLEST}{more}"),
        };
        (text, sees, expected)
    };
    let others = [
        ("kafka = 3".to_owned(), true, "1:9: kafka must be a table"),
        ("[kafka\n".to_owned(), false, "weir.toml:1:7: is not TOML"),
    ];
    let schema = schema();
    for (text, sees, expected) in WRONG.trim().lines().map(wrong).chain(others) {
        let error = parse(&text, &[]).map_or_else(|error| error, |settings| format!("{settings:?}"));
        assert!(error.contains(expected), "{text}\nshould say: {expected}\nsays: {error}");
        assert!(!error.contains("hunter2"), "{error}");
        assert!(!sees || !schema.is_valid(&toml::from_str(&text).unwrap()), "the schema on\n{text}");
    }
}

#[test]
fn what_is_wrong_in_a_variable_is_said_with_its_name() {
    let cases = [
        (
            "WEIR__WORKER__BATCH",
            "many",
            "WEIR__WORKER__BATCH: worker.batch must be a whole number from 1 to 100000, not \"many\"",
        ),
        ("WEIR__KAFKA__CREATE_TOPICS", "1", "kafka.create_topics must be true or false, not \"1\""),
        ("WEIR__KAFKA__BROKER", "b", "WEIR__KAFKA__BROKER: names no setting; did you mean WEIR__KAFKA__BROKERS?"),
        ("WEIR__ZZZ", "b", "names no setting; docs/configuration.md has all of them"),
        ("WEIR__KAFKA__DEFERRED", "b c", "kafka.deferred must be a topic's name"),
        ("WEIR__KAFKA__PROPERTIES", "b", "names no setting"),
        ("WEIR__KAFKA__PROPERTIES__GROUP_ID", "b", "kafka.properties.group.id is for weir to set (set kafka.group)"),
        ("WEIR__REDIS__NODES", "redis://a:1,", "redis.nodes[1] must not be empty"),
        // As in <https://github.com/sashiko-dev/sashiko/pull/189>.
        ("WEIR_KAFKA__BROKERS", "b", "WEIR_KAFKA__BROKERS: has no effect; did you mean WEIR__KAFKA__BROKERS?"),
        ("WEIR_REDIS_WAIT_REPLICAS", "1", "has no effect; did you mean WEIR__REDIS__WAIT_REPLICAS?"),
        ("weir__redis__users", "1", "has no effect; did you mean WEIR__REDIS__USERS?"),
        ("WEIR_KAFKA_PROPERTIES_SASL_PASSWORD", "b", "did you mean WEIR__KAFKA__PROPERTIES__SASL_PASSWORD?"),
    ];
    for (name, value, expected) in cases {
        let error = parse(SMALLEST, &[(name, value)]).unwrap_err();
        assert!(error.contains(expected) && error.starts_with("environment variable"), "{name}={value}: {error}");
    }
    // Not ours. Kubernetes sets the last three for services that are called weir and weir-redis.
    for name in
        ["WEIRD", "KAFKA__BROKERS", "WEIR_TEST_BINARY", "WEIR_PORT", "WEIR_REDIS_PORT", "WEIR_REDIS_SERVICE_HOST"]
    {
        assert!(parse(SMALLEST, &[(name, "x")]).is_ok(), "{name}");
    }
}

#[test]
fn all_problems_are_said_at_once_by_place() {
    let text = SMALLEST.replace("\"a\"", "\"i\"").replace("brokers", "broker").replace("policy.toml", "policy");
    let error = parse(&text, &[("WEIR__WORKER__LANES", "x")]).unwrap_err();
    let places: Vec<&str> = error.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let expected =
        "weir.toml:1:1|weir.toml:3:1|weir.toml:5:12|weir.toml:13:10|environment variable WEIR__WORKER__LANES";
    assert_eq!(places.join("|"), expected);
}

#[test]
fn the_documentation_has_every_setting() {
    const BEGIN: &str = "<!-- settings -->\n";
    const END: &str = "<!-- /settings -->\n";
    is_current("docs/configuration.md", |found| {
        let (before, rest) = found.split_once(BEGIN).expect("the mark before the table");
        let (_, after) = rest.split_once(END).expect("the mark after the table");
        format!("{before}{BEGIN}\n{}\n{END}{after}", config::keys::markdown())
    });
}

#[test]
fn the_schema_checked_in_is_current() {
    is_current("schemas/config.schema.json", |_| config::keys::schema_text());
}
