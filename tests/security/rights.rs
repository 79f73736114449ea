//! Without any one of the page's rights at Kafka, the worker ends with an error that names it.

use testkit::{process::Exit, wait_until, worker::Worker};

use crate::{
    stage::{EntryPoint, STAGE, check, lines, publish},
    support::{DEADLINE, POLICY, Scene, ends},
};

/// The rights that one user lacks, and their names in the error.
struct Case {
    user: &'static str,
    delivery: &'static str,
    /// Lines that contain this are left out,
    without: String,
    /// and these are there.
    with: Vec<String>,
    names: String,
}

fn cases(scene: &Scene) -> Vec<Case> {
    let (intents, approved) = (scene.topic("intents"), scene.topic("approved"));
    let write = "--operation Write --topic";
    let others = vec![
        format!("{write} {}", scene.topic("suppressed")),
        format!("{write} {}", scene.topic("dead")),
        format!("--operation Describe --topic {approved}"),
    ];
    let case = |user, without: &str, with: &[String], names: &str| Case {
        user,
        delivery: "exactly_once",
        without: without.to_owned(),
        with: with.to_vec(),
        names: format!("grant {names}"),
    };
    let group = |user: &str| group(scene, user);
    let (sees, read) = (format!("--operation Describe --topic {intents}"), format!("READ on the topic {intents}"));
    let sees_group = format!("--operation Describe --group {}", group("sees-group"));
    let transaction = format!("WRITE on the transactional id {}/i/0", group("no-transaction"));
    vec![
        case("no-intents", &intents, &[], &read),
        case("sees-intents", &intents, &[sees], &read),
        case("no-outputs", write, &others[..2], &format!("WRITE on the topic {approved}")),
        case("sees-approved", write, &others, "WRITE on each of the topics"),
        Case {
            delivery: "at_least_once",
            ..case("sees-approved-too", write, &others, &format!("WRITE on the topic {approved}"))
        },
        case("no-group", "--group", &[], &format!("READ on the group {}", group("no-group"))),
        case("sees-group", "--group", &[sees_group], &format!("READ on the group {}", group("sees-group"))),
        case("no-transaction", "--transactional-id", &[], &transaction),
    ]
}

/// Each user's own group, so that all cases can run at once.
fn group(scene: &Scene, user: &str) -> String {
    format!("{}-{user}", scene.name)
}

/// A worker with the rights that its case leaves.
fn lacking(scene: &mut Scene, case: &Case) -> Worker {
    let group = group(scene, case.user);
    let own = |line: String| {
        let line = line.replace(&format!("--group {}", scene.name), &format!("--group {group}"));
        line.replace(&format!("{}/i/", scene.name), &format!("{group}/i/"))
    };
    let lines = lines("kafka run", scene).into_iter().map(own);
    let kept = lines.filter(|line| !line.contains(&case.without)).chain(case.with.clone());
    STAGE.grant(case.user, &kept.collect::<Vec<_>>());
    STAGE.come_by(scene, EntryPoint::Mutual(case.user));
    scene.set("WEIR__KAFKA__GROUP", group);
    scene.set("WEIR__KAFKA__DELIVERY", case.delivery);
    scene.worker("i")
}

#[test]
fn each_right_that_is_missing_ends_the_worker_with_an_error_that_names_it() {
    let mut scene = STAGE.scene("lacking", EntryPoint::Mutual("unused"));
    publish(&scene);
    let cases = cases(&scene);
    let running: Vec<Worker> = cases.iter().map(|case| lacking(&mut scene, case)).collect();
    for (case, mut worker) in cases.iter().zip(running) {
        let log = ends(&mut worker, 1);
        let said: Vec<&str> = log.lines().filter(|line| line.starts_with("weir: ")).collect();
        assert!(said.len() == 1 && said[0].contains(&case.names), "{} should say {:?}: {log}", case.user, case.names);
    }
    assert_eq!(scene.count("approved"), 0, "nobody was allowed to publish");
}

#[test]
fn check_finds_each_right_that_a_worker_would_lack_and_says_which_one_it_lacks_itself() {
    let mut scene = STAGE.scene("checker", EntryPoint::Mutual("checker"));
    STAGE.grant("checker", &lines("kafka run", &scene));
    let (exit, said) = check(&scene, &[], &["--create"]);
    assert_eq!(exit, Exit::Code(0), "{said}");
    assert!(said.contains(&format!("DESCRIBE_CONFIGS on the topic {}", scene.topic("intents"))), "{said}");
    assert!(said.contains("a transaction can be opened"), "{said}");

    // Everything but the transactional ids: only opening a transaction shows it.
    let run = lines("kafka run", &scene);
    let kept: Vec<String> = run.iter().filter(|line| !line.contains("--transactional-id")).cloned().collect();
    STAGE.grant("check-no-transaction", &[kept, lines("kafka check", &scene)].concat());
    STAGE.come_by(&mut scene, EntryPoint::Mutual("check-no-transaction"));
    let (exit, said) = check(&scene, &[], &[]);
    assert_eq!(exit, Exit::Code(1), "{said}");
    let wrong: Vec<&str> = said.lines().filter(|line| line.starts_with("ERROR")).collect();
    let named = format!("grant WRITE on the transactional ids {}/i/* (--resource-pattern-type prefixed)", scene.name);
    assert!(wrong.len() == 1 && wrong[0].contains(&named), "{said}");
    // At least once there are no transactions.
    let (exit, said) = check(&scene, &[("WEIR__KAFKA__DELIVERY", "at_least_once")], &[]);
    assert_eq!(exit, Exit::Code(0), "{said}");
}

#[test]
fn check_finds_the_rights_that_routes_and_lanes_of_waiting_intents_lack() {
    let mut scene = STAGE.scene("waiting", EntryPoint::Mutual("check-waiting"));
    scene.policy = scene.path("policy.toml").display().to_string();
    let group = format!("{}-hedwig", scene.name);
    scene.write_policy(&format!("{POLICY}\n[[routes]]\nname = \"email\"\nconsumer_group = \"{group}\"\nrate = 5\n"));
    scene.wait_for_routes(&["email"]);
    let of = |block| lines(block, &scene);
    let all = [of("kafka run"), of("kafka check"), of("kafka waiting")].concat();
    let lacks = [format!("--transactional-id {}-waiting-", scene.name), format!("--group {group}")];
    let is_kept = |line: &&String| !lacks.iter().any(|right| line.contains(right));
    STAGE.grant("check-waiting", &all.iter().filter(is_kept).cloned().collect::<Vec<_>>());
    let (exit, said) = check(&scene, &[], &[]);
    assert_eq!(exit, Exit::Code(1), "{said}");
    let wrong: Vec<&str> = said.lines().filter(|line| line.starts_with("ERROR")).collect();
    assert_eq!(wrong.len(), lacks.len(), "{said}");
    let transaction = format!("grant WRITE on the transactional ids {}-waiting-email/i/*", scene.name);
    for named in [transaction, format!("grant DESCRIBE on the group {group}")] {
        assert!(wrong.iter().any(|line| line.contains(&named)), "{named}: {said}");
    }
    STAGE.grant("check-waiting", &all);
    wait_until(DEADLINE, "nothing is lacking", || check(&scene, &[], &[]).0 == Exit::Code(0));
}
