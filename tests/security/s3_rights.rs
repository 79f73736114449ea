//! The rights at S3 of the builder of segments and of the reader.

use testkit::{process::Exit, wait_until};

use crate::{
    stage::{EntryPoint, S3_BUILDER, S3_KEY, S3_PREFIX, S3_SECRET, STAGE, check, lines, says},
    support::{DEADLINE, POLICY, Scene},
};

/// A command on S3, with the endpoint and authority as arguments; as the one or the other.
fn segments(scene: &Scene, key: &str, arguments: &[&str]) -> (Exit, String) {
    let endpoint = STAGE.s3.secured_endpoint().unwrap();
    let ca = STAGE.authority.ca_file().display().to_string();
    let access = ["--s3-endpoint", endpoint, "--s3-ca-file", &ca, "--s3-region", "us-east-1", "--s3-path-style"];
    let mut bare = Scene::bare_on(scene.kafka.clone(), scene.redis.clone(), "bare", 1, "");
    bare.env = scene.env.iter().filter(|(name, _)| name.starts_with("AWS_SECRET")).cloned().collect();
    bare.set("AWS_ACCESS_KEY_ID", key);
    says(&bare, &[], &[&["segments"], arguments, &access].concat())
}

#[test]
fn a_set_is_built_by_one_who_may_only_write_and_read_by_one_who_may_only_read() {
    let scene = STAGE.files("builder");
    let ids = format!("new={}", scene.ids("new", [1, 2, 3]).display());
    let folder = STAGE.s3.bucket().url(&format!("{S3_PREFIX}{}/built", scene.name));
    let manifest = format!("{folder}/manifest.json");
    let build = |to: &str, key: &str| segments(&scene, key, &["build", "--user-id", "u32", "--into", to, &ids]);

    let (exit, said) = build(&folder, S3_KEY);
    assert!(exit == Exit::Code(1) && said.contains("access was denied") && said.contains("s3:PutObject"), "{said}");
    let (exit, said) = segments(&scene, S3_KEY, &["inspect", &manifest]);
    assert_ne!(exit, Exit::Code(0), "nothing was written: {said}");

    let (exit, said) = build(&folder, S3_BUILDER);
    assert_eq!(exit, Exit::Code(0), "{said}");
    let (exit, said) = segments(&scene, S3_BUILDER, &["inspect", &manifest]);
    assert!(exit == Exit::Code(1) && said.contains("access was denied") && said.contains("s3:GetObject"), "{said}");
    let (exit, said) = segments(&scene, S3_KEY, &["lookup", &manifest, "2"]);
    assert!(exit == Exit::Code(0) && said.contains("new"), "{said}");

    // Neither has rights elsewhere in the bucket.
    let elsewhere = STAGE.s3.bucket().url("elsewhere");
    let (exit, said) = build(&elsewhere, S3_BUILDER);
    assert!(exit == Exit::Code(1) && said.contains("access was denied"), "{said}");
}

#[test]
fn the_authority_is_taken_from_the_argument_and_no_other_is_trusted() {
    let scene = STAGE.files("authority");
    let (endpoint, stranger) = (STAGE.s3.secured_endpoint().unwrap(), STAGE.stranger.ca_file().display().to_string());
    let inspect = ["segments", "inspect", &scene.segments, "--s3-endpoint", endpoint];
    let (exit, said) = says(&scene, &[], &[&inspect[..], &["--s3-ca-file", &stranger]].concat());
    assert!(exit == Exit::Code(1) && said.contains("certificate") && said.contains("s3.ca_file"), "{said}");
    let known = STAGE.authority.ca_file().display().to_string();
    let (exit, said) =
        says(&scene, &[("WEIR__S3__CA_FILE", &stranger)], &[&inspect[..], &["--s3-ca-file", &known]].concat());
    assert_eq!(exit, Exit::Code(0), "the argument wins: {said}");
    let none = scene.path("policy.toml").display().to_string();
    let (exit, said) = says(&scene, &[], &[&inspect[..], &["--s3-ca-file", &none]].concat());
    assert!(exit == Exit::Code(2) && said.contains("no certificate in it"), "{said}");
}

#[test]
fn keys_and_an_authority_that_were_replaced_are_used_without_a_restart() {
    let mut scene = STAGE.scene("s3-replaced", EntryPoint::Mutual("s3-replaced"));
    STAGE.grant("s3-replaced", &lines("kafka run", &scene));
    let (keys, ca) = (scene.path("aws-credentials"), scene.path("s3-ca.pem"));
    let write_keys = |secret: &str| {
        std::fs::write(&keys, format!("[default]\naws_access_key_id = {S3_KEY}\naws_secret_access_key = {secret}\n"))
            .unwrap();
    };
    write_keys(S3_SECRET);
    std::fs::copy(STAGE.authority.ca_file(), &ca).unwrap();
    scene.env.retain(|(name, _)| !name.starts_with("AWS_") && *name != "WEIR__S3__CA_FILE");
    scene.set("AWS_SHARED_CREDENTIALS_FILE", keys.display().to_string());
    scene.set("WEIR__S3__CA_FILE", ca.display().to_string());
    let worker = scene.ready("i");
    let folder = format!("{S3_PREFIX}{}", scene.name);
    let publish_policy = |version: &str| {
        let policy = POLICY.replace("test-1", version);
        STAGE.s3.bucket().put(&format!("{folder}/policy.toml"), policy).unwrap();
    };
    let logs = |words: &str| wait_until(DEADLINE, words, || worker.log().contains(words));

    write_keys("wrong");
    publish_policy("test-2");
    logs("access was denied");
    assert!(!worker.log().contains("test-2"), "{}", worker.log());
    write_keys(S3_SECRET);
    logs("test-2");

    std::fs::copy(STAGE.stranger.ca_file(), &ca).unwrap();
    publish_policy("test-3");
    logs("the TLS connection failed");
    assert!(!worker.log().contains("test-3"), "{}", worker.log());
    std::fs::copy(STAGE.authority.ca_file(), &ca).unwrap();
    logs("test-3");
}

#[test]
fn a_key_with_a_passphrase_lets_in_who_has_it() {
    const PASSPHRASE: &str = "MARKED-passphrase";
    let mut scene = STAGE.scene("passphrase", EntryPoint::Mutual("passphrase"));
    STAGE.grant("passphrase", &[lines("kafka run", &scene), lines("kafka check", &scene)].concat());
    let key = STAGE.authority.client("passphrase").unwrap();
    // The certificate was recreated with the key.
    STAGE.come_by(&mut scene, EntryPoint::Mutual("passphrase"));
    let location = key_of(&scene);
    let identity = testkit::tls::Identity { key: location.into(), ..key };
    let encrypted = identity.encrypted_key(PASSPHRASE).unwrap().display().to_string();
    let location = ("WEIR__KAFKA__PROPERTIES__SSL_KEY_LOCATION", encrypted.as_str());
    let (exit, said) =
        check(&scene, &[location, ("WEIR__KAFKA__PROPERTIES__SSL_KEY_PASSWORD", PASSPHRASE)], &["--create"]);
    assert_eq!(exit, Exit::Code(0), "{said}");
    for wrong in [Some("MARKED-another"), None] {
        let password = wrong.map(|wrong| ("WEIR__KAFKA__PROPERTIES__SSL_KEY_PASSWORD", wrong));
        let env: Vec<(&str, &str)> = [location].into_iter().chain(password).collect();
        let (exit, said) = check(&scene, &env, &[]);
        assert_eq!(exit, Exit::Code(2), "{wrong:?}: {said}");
        assert!(said.contains("ssl.key") && !said.contains("MARKED"), "{wrong:?}: {said}");
    }
}

fn key_of(scene: &Scene) -> String {
    let found = scene.env.iter().rev().find(|(name, _)| *name == "WEIR__KAFKA__PROPERTIES__SSL_KEY_LOCATION");
    found.unwrap().1.clone()
}
