//! Two rows in a copy of this test binary: so a test sees all that is said, and may end it. The steps are copies of the copy.

use std::env;

use super::*;
use crate::shell::command;

/// The scene that a copy runs, and the step of it that a copy of a copy runs.
const SCENE: &str = "WEIR_TEST_ROWS";
const STEP: &str = "WEIR_TEST_STEP";
/// After how many seconds the step is ended, and whether it is beside the first row.
const SECONDS: &str = "WEIR_TEST_STEP_SECONDS";
const BESIDE: &str = "WEIR_TEST_STEP_BESIDE";
/// The test that a copy runs: in a copy it is something else.
const COPIED: &str = "rows::tests::both_rows_run_and_what_each_step_says_is_whole";
const DEADLINE: Duration = Duration::from_secs(60);

/// A step: its name, after how many seconds it is ended, and what it runs.
type Script = (&'static str, u64, &'static str);

/// What is deleted a moment after the end is not left.
const LAST: &str =
    "echo last $(nice); touch $TMPDIR/../last $TMPDIR/soon; (sleep 0.2; rm $TMPDIR/soon) >/dev/null 2>&1 &";
/// Until the last of the other row has begun.
const UNTIL_LAST: &str =
    "for i in 1 2 3 4 5; do echo beside $i; sleep 0.1; done; until [ -e $TMPDIR/../last ]; do sleep 0.1; done";

/// The rows of a scene. No two have a `sleep` of the same length.
fn rows_of(scene: &str) -> [&'static [Script]; 2] {
    match scene {
        "all-pass" => [
            &[("first", 60, "for i in 1 2 3 4 5; do echo first $i; sleep 0.1; done"), ("last", 60, LAST)],
            &[("beside", 60, UNTIL_LAST), ("nicer", 60, "echo nicer $(nice)")],
        ],
        "first-fails" => [&[("breaks", 60, "echo it breaks; exit 7")], &[("long", 60, "sleep 1005")]],
        "second-fails" => [&[("long", 60, "sleep 1006")], &[("breaks", 60, "echo it breaks; exit 7")]],
        "second-is-late" => [&[("goes-on", 60, "sleep 1007")], &[("late", 1, "sleep 1011 & sleep 1008; true")]],
        "leaves-a-process" => [&[("leaves", 60, "sleep 1012 &")], &[]],
        "leaves-a-folder" => [&[("leaves", 60, "mkdir $TMPDIR/left")], &[]],
        "signal" => [&[("one", 120, "exec sleep 1009")], &[("two", 120, "exec sleep 1010")]],
        _ => panic!("there is no scene {scene}"),
    }
}

#[test]
fn both_rows_run_and_what_each_step_says_is_whole() {
    if let Ok(scene) = env::var(SCENE) {
        act(&scene);
    }
    let (code, said) = Scene::begin("all-pass").end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\nbeside 1\nbeside 2\nbeside 3\nbeside 4\nbeside 5\n"), "{said}");
    let numbers = |step: &str| -> Vec<i32> {
        said.lines().filter_map(|line| line.strip_prefix(step)?.trim().parse().ok()).collect()
    };
    assert_eq!(numbers("first "), [1, 2, 3, 4, 5], "{said}");
    // CI may be nice itself, and nothing is nicer than 19.
    assert_eq!(numbers("nicer "), [(numbers("last ")[0] + NICE).min(19)], "{said}");
    for step in ["first", "last"] {
        assert!(in_table(&said, step).ends_with(" s"), "{step}: {said}");
        assert!(said.contains(&format!("\n== step {step} passed after ")), "{step}: {said}");
    }
    assert!(in_table(&said, "beside").ends_with(", beside first and last"), "{said}");
    assert!(!in_table(&said, "nicer").is_empty() && in_table(&said, "all").ends_with(" s"), "{said}");
    assert_eq!(in_table(&said, "counts").split_once(' ').unwrap().1.trim(), "not run: why", "{said}");
}

#[test]
fn a_step_that_fails_ends_that_of_the_other_row() {
    for (scene, sleeps) in [("first-fails", "1005"), ("second-fails", "1006")] {
        let (code, said) = Scene::begin(scene).end();
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(scene == "first-fails", said.contains("\n== step long was cut off after "), "{said}");
        let ends = ["failed: exit status: 7", "step long: cut off", "\nError: step breaks failed: exit status: 1"];
        for part in ["\nit breaks\n"].into_iter().chain(ends) {
            assert!(said.contains(part), "{part:?}: {said}");
        }
        assert!(in_table(&said, "breaks").ends_with(", failed"), "{said}");
        assert!(in_table(&said, "long").ends_with(", cut off"), "{said}");
        assert!(!runs(sleeps), "{said}");
    }
}

#[test]
fn a_deadline_ends_what_its_step_has_started_and_then_the_other_row() {
    let (code, said) = Scene::begin("second-is-late").end();
    assert_eq!(code, Some(1), "{said}");
    let late = said.split_once("== step late failed").unwrap().1.split_once("== step late has said that").unwrap().0;
    for part in ["did not end within 1 s", "sleep 1008", "sleep 1011"] {
        assert!(late.contains(part), "{part}: {said}");
    }
    assert!(!late.contains("sleep 1007"), "{said}");
    assert!(in_table(&said, "late").ends_with(", failed"), "{said}");
    assert!(in_table(&said, "goes-on").ends_with(", cut off"), "{said}");
    assert!(!["1007", "1008", "1011"].into_iter().any(runs), "{said}");
}

#[test]
fn what_a_step_leaves_behind_is_named_and_ended_and_the_step_has_failed() {
    for (scene, left) in [
        ("leaves-a-process", ["these processes were left when it ended", "sleep 1012"]),
        ("leaves-a-folder", ["these were left in the temporary folder", ": left"]),
    ] {
        let (code, said) = Scene::begin(scene).end();
        assert_eq!(code, Some(1), "{said}");
        assert!(left.iter().all(|part| said.contains(part)) && !runs("1012"), "{scene}: {said}");
        assert!(in_table(&said, "leaves").ends_with(", failed"), "{said}");
    }
}

#[test]
fn a_signal_ends_both_rows_and_the_tables_have_both() {
    let scene = Scene::begin("signal");
    wait_until("both steps run", || runs("1009") && runs("1010"));
    // The copy alone: its steps have not heard it.
    bounds::signal(i32::try_from(scene.copy.id()).unwrap(), Signal::TERM);
    let (code, said) = scene.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(in_table(&said, "one").ends_with(" s, and had not ended"), "{said}");
    assert!(in_table(&said, "two").ends_with(", beside one, and had not ended"), "{said}");
    let two = said.split_once("== step two was ended by a signal").unwrap().1;
    let two = two.split_once("== step two has said that").unwrap().0;
    assert!(two.contains("sleep 1010") && two.contains("step two: a signal ends it"), "{said}");
    assert!(!runs("1009") && !runs("1010"), "{said}");
}

/// A copy that runs a scene, and its temporary folder.
struct Scene {
    copy: Child,
    folder: PathBuf,
}

impl Scene {
    fn begin(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("weir-rows-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let said = File::create(folder.join("said")).unwrap();
        let mut copy = copy();
        copy.env(SCENE, name).env("TMPDIR", &folder).env_remove("WEIR_TEST_KEEP");
        copy.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        Self { copy: copy.spawn().unwrap(), folder }
    }

    /// Waits for its end. Returns its exit code and all that it said; of its steps no temporary folder is left.
    fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait_until("the copy ends", || {
            status = self.copy.try_wait().unwrap();
            status.is_some()
        });
        let said = fs::read_to_string(self.folder.join("said")).unwrap();
        let names = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.starts_with("weir-step-")).collect();
        assert!(left.is_empty(), "{left:?}: {said}");
        (status.unwrap().code(), said)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Where a test has failed: the steps end with it.
        let _ = self.copy.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn copy() -> Command {
    let mut copy = Command::new(env::current_exe().unwrap());
    copy.args([COPIED, "--exact", "--nocapture"]);
    copy
}

/// Does what a copy is for, and ends it.
fn act(scene: &str) -> ! {
    let rows = rows_of(scene);
    let outcome = env::var(STEP).map_or_else(|_| act_as_rows(&rows), |step| act_as_step(&rows, &step));
    if let Err(error) = &outcome {
        eprintln!("\nError: {error:#}");
    }
    std::process::exit(i32::from(outcome.is_err()))
}

fn act_as_rows(rows: &[&'static [Script]]) -> Result<()> {
    let planned = |&(name, seconds, _): &Script| Planned { name, seconds, in_part: false };
    let rows: Vec<Vec<Planned>> = rows.iter().map(|row| row.iter().map(planned).collect()).collect();
    let process = |step: &Planned, limit: Duration, is_beside: bool| {
        let mut copy = copy();
        copy.env(STEP, step.name).env(SECONDS, limit.as_secs().to_string());
        copy.envs(is_beside.then_some((BESIDE, "")));
        copy
    };
    tables::begin(&[]);
    tables::leave_out("counts", "not run: why".to_owned());
    let outcome = run(&Plan { rows: &rows, end: None, outputs: &env::temp_dir(), process: &process });
    tables::print();
    outcome
}

fn act_as_step(rows: &[&'static [Script]], step: &str) -> Result<()> {
    begin_step(parent_id(), env::var_os(BESIDE).is_some())?;
    let &(name, _, script) = rows.iter().copied().flatten().find(|(name, ..)| *name == step).unwrap();
    let limit = Duration::from_secs(env::var(SECONDS).unwrap().parse().unwrap());
    bounds::within(name, limit, || temporary::run(command("sh", &["-c", script])))
}

/// The line of a step in the table.
fn in_table<'a>(said: &'a str, step: &str) -> &'a str {
    let table = said.split_once("how long they took:\n").map_or("", |(_, table)| table);
    table.lines().find(|line| line.split_whitespace().next() == Some(step)).unwrap_or_default()
}

/// Whether a process sleeps for so many seconds.
fn runs(seconds: &str) -> bool {
    let processes = procfs::process::all_processes().unwrap().flatten();
    processes.filter_map(|process| process.cmdline().ok()).any(|line| line == ["sleep", seconds])
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "within {} s: {what}", DEADLINE.as_secs());
        thread::sleep(LOOK);
    }
}
