//! `weir check` asks the Schema Registry what a lane would ask it.

use crate::{
    check::{check, check_with, fine, scene},
    support::contains_all,
};
use testkit::{
    registry::{PASSWORD, Registry, USER},
    tls::Authority,
};

#[test]
fn the_registry_is_asked_and_each_thing_that_keeps_weir_out_is_found() {
    let (scene, _redis) = scene("check-registry");
    let authority = Authority::new().unwrap();
    let registry = Registry::start(&authority).unwrap();
    let password = scene.path("registry-password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let with = |format: &str| {
        format!(
            "{}\n[intent]\nformat = \"{format}\"\n[schemas]\nregistry = \"{}\"\nusername = \"{USER}\"\n\
             password_file = {password:?}\nca_file = {:?}\n",
            scene.config("i"),
            registry.url(),
            authority.ca_file()
        )
    };
    let good = with("avro");
    let answers = |config: &str| {
        let found = fine(&scene, config, &[]);
        found.of("ok").iter().any(|line| line.starts_with("schema registry: it answers"))
    };
    assert!(answers(&good) && answers(&with("protobuf")));

    std::fs::write(&password, "wrong\n").unwrap();
    check(&scene, &good).is_one("error", &["schema registry:", "it answers 401", "schemas.username, the password"]);
    std::fs::write(&password, PASSWORD).unwrap();
    check(&scene, &good.replace(&format!("\"{USER}\""), "\"nobody\"")).is_one("error", &["it answers 401"]);
    let stranger = Authority::new().unwrap();
    let foreign = good.replace(authority.ca_file().to_str().unwrap(), stranger.ca_file().to_str().unwrap());
    check(&scene, &foreign).is_one("error", &["schema registry:", "certificate", "schemas.ca_file"]);
    let plain = good.replace(registry.url(), &registry.url().replace("https", "http"));
    check(&scene, &plain).is_one("error", &["schema registry:"]);
    let elsewhere = good.replace(registry.url(), &format!("{}/elsewhere", registry.url()));
    check(&scene, &elsewhere).is_one("error", &["schema registry:", "is schemas.registry its URL?"]);
    let nobody = good.replace(registry.url(), "https://127.0.0.1:1");
    check(&scene, &nobody).is_one("error", &["schema registry:", "Connection refused"]);
    registry.set_failing(true);
    check(&scene, &good).is_one("error", &["schema registry:", "it answers 503"]);

    // Where it is not needed, or not to be connected to, it is not asked.
    let asked = registry.asked();
    let offline = check_with(&scene, &good, &["--offline"]);
    offline.is_fine();
    contains_all(&offline.of("skipped").concat(), &["schema registry: not connected to"]);
    for (format, finding, words) in [("json_schema", "skipped", "not asked"), ("json", "warning", "Set intent.format")]
    {
        let found = fine(&scene, &with(format), &[]);
        let line = found.of(finding).into_iter().find(|line| line.starts_with("schema registry:")).unwrap();
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(registry.asked(), asked);
}
